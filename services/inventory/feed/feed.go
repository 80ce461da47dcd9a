// Package feed keeps one delta set per view of the roster, together with the roster's status. It
// guarantees what deltaset guarantees, and that a view has no nodes for subscribers before the first
// publication. It does not know its readers: it has no queue, no client and no clock.
package feed

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"k8s.io/apimachinery/pkg/labels"
)

// View is the subset of nodes and labels that a client may see.
type View struct {
	Selector labels.Selector // which nodes; nil: all
	Labels   []string        // keys of the exported node labels, in any order
}

// Key is equal for two views only if they publish the same for every roster.
func (v View) Key() string {
	selector := ""
	if v.Selector != nil {
		selector = v.Selector.String()
	}
	b := binary.AppendUvarint(nil, uint64(len(selector)))
	b = append(b, selector...)
	for _, key := range v.exportedKeys() {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
	}
	return string(b)
}

func (v View) exportedKeys() []string {
	return slices.Compact(slices.Sorted(slices.Values(v.Labels)))
}

func (v View) selects(n *roster.Node) bool {
	return v.Selector == nil || v.Selector.Matches(labels.Set(n.Labels))
}

// exportedLabels returns the labels of the node that the view exports.
func (v View) exportedLabels(n *roster.Node) map[string]string {
	var exported map[string]string
	for _, key := range v.Labels {
		value, ok := n.Labels[key]
		if !ok {
			continue
		}
		if exported == nil {
			exported = make(map[string]string, len(v.Labels))
		}
		exported[key] = value
	}
	return exported
}

// Entry is a node as one view publishes it. Entries are immutable.
type Entry struct {
	Node        *roster.Node
	Labels      map[string]string // the exported ones
	Fingerprint Digest
}

// Identity implements deltaset.Entry. All entries of a view are in one group.
func (e *Entry) Identity() (group, key string, fingerprint Digest) {
	return "", e.Node.Name, e.Fingerprint
}

// Position identifies a state of a view: a cursor and the digest at it.
type Position = deltaset.Position

// Update takes a reader to the current set.
type Update struct {
	deltaset.Delta[*Entry] // valid only if Synced, or from Snapshot

	Status        source.Status
	StatusVersion uint64 // increases with each SetStatus of the store

	// Synced is false before the first publication (rule R8).
	Synced bool
}

// SameStatus reports whether two statuses differ in nothing but ages.
func SameStatus(a, b source.Status) bool {
	samePart := func(a, b source.PartStatus) bool { return a.Sync == b.Sync && a.Reason == b.Reason }
	return a.Publishable == b.Publishable && a.Observation == b.Observation &&
		samePart(
			a.Membership,
			b.Membership,
		) && samePart(a.Addresses, b.Addresses) && slices.Equal(a.Ports, b.Ports)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

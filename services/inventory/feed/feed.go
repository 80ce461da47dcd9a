// Package feed keeps what each view of the roster is told, in a ledger of its own, and what
// that is worth. It promises what the ledger does, that nothing is told before the first word is
// due, and to say when a view is in doubt. It refuses to know its readers: no queue, no client,
// no clock.
package feed

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"k8s.io/apimachinery/pkg/labels"
)

// View is the part of the roster that a client is told.
type View struct {
	Selector labels.Selector // which nodes; nil: all of them
	Labels   []string        // keys of the node labels that are told, in any order
}

// Key is the same for two views only if they tell the same of every roster.
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

// exportedLabels returns those labels of the node that the view tells.
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

// Entry is a node as one view tells it. Entries are immutable.
type Entry struct {
	Node        *roster.Node
	Labels      map[string]string // those that the view tells
	Fingerprint Digest
}

// Identity is that of a ledger's entry.
func (e *Entry) Identity() (group, key string, fingerprint Digest) {
	return "", e.Node.Name, e.Fingerprint
}

// Position is a state of a view: a cursor and the digest of the set at it.
type Position = deltaset.Position

// Update is what leads a reader to the present set.
type Update struct {
	deltaset.Delta[*Entry] // meaningful when Synced

	Status        roster.Status
	StatusVersion uint64 // numbers the statuses of a store: of one number, they are one

	// Synced is false while the first word has not been given (rule R8): then there is
	// nothing but the status.
	Synced bool
}

// SameStatus reports whether two statuses say the same but for how long they have said it.
func SameStatus(a, b roster.Status) bool {
	samePart := func(a, b roster.Part) bool { return a.Sync == b.Sync && a.Reason == b.Reason }
	return a.Told == b.Told && a.Observation == b.Observation &&
		samePart(a.Membership, b.Membership) && samePart(a.Addresses, b.Addresses) && slices.Equal(a.Ports, b.Ports)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

package feed

import (
	"maps"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Digest is a fingerprint of a node, or the XOR of the fingerprints of a set (rule R4).
type Digest = deltaset.Digest

// fingerprint hashes what is published of a node, except for ages.
func fingerprint(n *roster.Node) Digest {
	h := make(deltaset.Hasher, 0, 256)
	h.AddString("slicefeed.inventory.v1.Node")
	h.AddString(n.Name)
	h.AddString(n.UID)
	h.AddUint(uint64(len(n.Addresses)))
	for _, a := range n.Addresses {
		h.AddString(a.String())
	}
	h.AddUint(uint64(n.State))
	h.AddString(n.Zone)
	h.AddString(n.Region)
	h.AddUint(uint64(len(n.Labels)))
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		h.AddString(key)
		h.AddString(n.Labels[key])
	}
	if n.Hostname != "" || len(n.Ports) > 0 { // without them, the fingerprint is that of versions that know neither
		h.AddString(n.Hostname)
	}
	for _, p := range n.Ports {
		h.AddString(p.Name)
		h.AddString(p.Protocol)
		h.AddUint(uint64(p.Number))
	}
	return h.Fingerprint()
}

package feed

import (
	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Digest is a fingerprint of a node, or the XOR of the fingerprints of a set (rule R4).
type Digest = deltaset.Digest

// fingerprint hashes what a view publishes of a node, except for ages.
func fingerprint(n *roster.Node, labels map[string]string) Digest {
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
	h.AddUint(uint64(len(labels)))
	for _, key := range sortedKeys(labels) {
		h.AddString(key)
		h.AddString(labels[key])
	}
	if n.Hostname != "" { // without one, the fingerprint is that of versions that know none
		h.AddString(n.Hostname)
	}
	return h.Fingerprint()
}

package feed

import (
	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Digest is a fingerprint of a node, or the XOR of the fingerprints of a set (rule R4).
type Digest = deltaset.Digest

// fingerprint hashes what a view tells of a node, except for ages.
func fingerprint(n *roster.Node, labels map[string]string) Digest {
	c := make(deltaset.Hasher, 0, 256)
	c.AddString("slicefeed.inventory.v1.Node")
	c.AddString(n.Name)
	c.AddString(n.UID)
	c.AddUint(uint64(len(n.Addresses)))
	for _, a := range n.Addresses {
		c.AddString(a.String())
	}
	c.AddUint(uint64(n.State))
	c.AddString(n.Zone)
	c.AddString(n.Region)
	c.AddUint(uint64(len(labels)))
	for _, key := range sortedKeys(labels) {
		c.AddString(key)
		c.AddString(labels[key])
	}
	return c.Fingerprint()
}

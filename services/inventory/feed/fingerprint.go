package feed

import (
	"github.com/slicefeed/slicefeed/services/internal/ledger"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Digest is a fingerprint of a node, or the XOR of the fingerprints of a set (rule R4).
type Digest = ledger.Digest

// fingerprint hashes what a view tells of a node, except for ages.
func fingerprint(n *roster.Node, labels map[string]string) Digest {
	c := make(ledger.Content, 0, 256)
	c.Text("slicefeed.inventory.v1.Node")
	c.Text(n.Name)
	c.Text(n.UID)
	c.Number(uint64(len(n.Addresses)))
	for _, a := range n.Addresses {
		c.Text(a.String())
	}
	c.Number(uint64(n.State))
	c.Text(n.Zone)
	c.Text(n.Region)
	c.Number(uint64(len(labels)))
	for _, key := range sortedKeys(labels) {
		c.Text(key)
		c.Text(labels[key])
	}
	return c.Fingerprint()
}

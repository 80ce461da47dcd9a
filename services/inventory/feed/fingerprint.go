package feed

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Digest is a fingerprint of a node, or the XOR of the fingerprints of a set (rule R4).
type Digest [16]byte

func (d *Digest) toggle(o Digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

// fingerprint hashes what a view tells of a node, except for ages. Every string is preceded
// by its length and every list by its number of items, so no two nodes are encoded
// alike. Replicas of different versions compare by it: altering the encoding makes each
// client read its whole set once more, and costs nothing else.
func fingerprint(n *roster.Node, labels map[string]string) Digest {
	b := make([]byte, 0, 256)
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	text("slicefeed.inventory.v1.Node")
	text(n.Name)
	text(n.UID)
	b = binary.AppendUvarint(b, uint64(len(n.Addresses)))
	for _, a := range n.Addresses {
		text(a.String())
	}
	b = append(b, byte(n.State))
	text(n.Zone)
	text(n.Region)
	b = binary.AppendUvarint(b, uint64(len(labels)))
	for _, key := range sortedKeys(labels) {
		text(key)
		text(labels[key])
	}
	sum := sha256.Sum256(b)
	return Digest(sum[:16])
}

package ledger

import (
	"crypto/sha256"
	"encoding/binary"
)

// Digest is a fingerprint of an entry, or the XOR of the fingerprints of a set (rule R4).
type Digest [16]byte

// Toggle takes a fingerprint into a digest, or out of it.
func (d *Digest) Toggle(o Digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

// Content is what is told of an entry, encoded for its fingerprint. Every text is preceded by
// its length; whoever writes a list writes its number of items first: then no two entries
// are encoded alike. Replicas of different versions compare by it: altering an encoding makes
// each client read its whole set once more, and costs nothing else.
type Content []byte

// Text adds a text.
func (c *Content) Text(s string) {
	c.Number(uint64(len(s)))
	*c = append(*c, s...)
}

// Number adds a number.
func (c *Content) Number(n uint64) { *c = binary.AppendUvarint(*c, n) }

// Yes adds the answers to questions of yes or no.
func (c *Content) Yes(answers ...bool) {
	for _, yes := range answers {
		var b byte
		if yes {
			b = 1
		}
		*c = append(*c, b)
	}
}

// Fingerprint hashes what was added.
func (c *Content) Fingerprint() Digest {
	sum := sha256.Sum256(*c)
	return Digest(sum[:16])
}

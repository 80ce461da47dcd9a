package deltaset

import (
	"crypto/sha256"
	"encoding/binary"
)

// Digest is a fingerprint of an entry, or the XOR of the fingerprints of a set (rule R4).
type Digest [16]byte

// XOR adds a fingerprint to a digest, or removes it.
func (d *Digest) XOR(o Digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

// Hasher encodes the published content of an entry for its fingerprint. The encoding is unambiguous:
// a string is preceded by its length, and callers write the length of a list before its items.
// Replicas of different versions compare fingerprints, so a changed encoding makes each client
// receive its complete set once more.
type Hasher []byte

// AddString adds a string.
func (c *Hasher) AddString(s string) {
	c.AddUint(uint64(len(s)))
	*c = append(*c, s...)
}

// AddUint adds an unsigned integer.
func (c *Hasher) AddUint(n uint64) { *c = binary.AppendUvarint(*c, n) }

// AddBools adds booleans.
func (c *Hasher) AddBools(values ...bool) {
	for _, value := range values {
		var b byte
		if value {
			b = 1
		}
		*c = append(*c, b)
	}
}

// Fingerprint hashes the content added so far.
func (c *Hasher) Fingerprint() Digest {
	sum := sha256.Sum256(*c)
	return Digest(sum[:16])
}

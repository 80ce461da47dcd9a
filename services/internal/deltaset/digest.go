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
func (h *Hasher) AddString(s string) {
	h.AddUint(uint64(len(s)))
	*h = append(*h, s...)
}

// AddUint adds an unsigned integer.
func (h *Hasher) AddUint(n uint64) { *h = binary.AppendUvarint(*h, n) }

// AddBools adds booleans.
func (h *Hasher) AddBools(values ...bool) {
	for _, value := range values {
		var b byte
		if value {
			b = 1
		}
		*h = append(*h, b)
	}
}

// Fingerprint hashes the content added so far.
func (h *Hasher) Fingerprint() Digest {
	sum := sha256.Sum256(*h)
	return Digest(sum[:16])
}

// Package inventoryv1 is the contract between the halves: what is generated from its .proto
// and, in this file, the limits and checks that both ends share.
package inventoryv1

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// The limits of the contract. They bound what either end has to bear.
const (
	// DigestSize is the length of a digest and of a fingerprint, in bytes.
	DigestSize = 16
	// MaxChunk is the greatest number of upserts, or of removed names, in one message (R3).
	MaxChunk = 500
	// MaxMessageSize is the greatest size of a message of the server, in bytes (R3).
	MaxMessageSize = 4 << 20
	// MaxConfirmObservations is the longest series of observations a client can ask for.
	MaxConfirmObservations = 10

	// MaxEpochLength is the greatest length of an epoch, in bytes.
	MaxEpochLength = 64
	// MaxNameLength is that of a node's name: a DNS subdomain, RFC 1123.
	MaxNameLength = 253
	// MaxUIDLength is that of a node's UID.
	MaxUIDLength = 128
	// MaxReasonLength is that of a reason.
	MaxReasonLength = 1024
	// MaxLabels is the greatest number of labels of a node.
	MaxLabels = 256
	// MaxLabelKeyLength is Kubernetes' own limit: a prefix of 253 bytes, a slash, a name of 63.
	MaxLabelKeyLength = 317
	// MaxLabelValueLength is Kubernetes' own limit; it holds for zone and region too.
	MaxLabelValueLength = 63

	// MaxSourcePorts is the greatest number of ports that a source tells.
	MaxSourcePorts = 16

	maxNames     = 1000
	maxExplained = 100
)

// Validate reports what makes the request malformed, if anything: a server answers
// it with INVALID_ARGUMENT.
func (r *WatchNodesRequest) Validate() error {
	if r.GetCursor() == nil {
		if len(r.GetDigest()) != 0 {
			return errors.New("digest without a cursor: send both or neither")
		}
	} else {
		if l := len(r.GetCursor().GetEpoch()); l == 0 || l > MaxEpochLength {
			return fmt.Errorf("cursor.epoch has %d bytes: 1 to %d are expected", l, MaxEpochLength)
		}
		if l := len(r.GetDigest()); l != DigestSize {
			return fmt.Errorf("digest has %d bytes: %d are expected beside a cursor", l, DigestSize)
		}
	}
	if n := r.GetConfirmObservations(); n > MaxConfirmObservations {
		return fmt.Errorf("confirm_observations is %d: at most %d are possible", n, MaxConfirmObservations)
	}
	return nil
}

// Validate reports what makes the request malformed, if anything.
func (r *ListNodesRequest) Validate() error {
	if n := len(r.GetNames()); n > maxNames {
		return fmt.Errorf("%d names: at most %d are possible; an empty list stands for all", n, maxNames)
	}
	if n := len(r.GetNames()); r.GetExplain() && (n == 0 || n > maxExplained) {
		return fmt.Errorf("explain with %d names: 1 to %d are possible", n, maxExplained)
	}
	for i, name := range r.GetNames() {
		if name == "" || len(name) > MaxNameLength || !utf8.ValidString(name) {
			return fmt.Errorf("names[%d] is no node name: 1 to %d bytes are expected", i, MaxNameLength)
		}
	}
	return nil
}

// Package writerv1 is what a writer lets others see: what is generated from its .proto and, in
// this file, the limits and checks that both ends share.
package writerv1

import (
	"errors"
	"fmt"
	"net/netip"
	"unicode/utf8"
)

// The limits of the contract. They bound what either end has to bear.
const (
	// DigestSize is the length of a digest and of a fingerprint, in bytes.
	DigestSize = 16
	// MaxChunk is the greatest number of upserts, or of removed keys, in one message (R3).
	MaxChunk = 500
	// MaxMessageSize is the greatest size of a message of the server, in bytes (R3).
	MaxMessageSize = 4 << 20

	// MaxEpochLength is the greatest length of an epoch, in bytes.
	MaxEpochLength = 64
	// MaxKeyLength is that of an entry's key.
	MaxKeyLength = 256
	// MaxNameLength is that of the names of namespaces, Services, ports, sources and zones.
	MaxNameLength = 63
	// MaxAppProtocolLength is Kubernetes' own limit: a prefix of 253 bytes, a slash, a name of 63.
	MaxAppProtocolLength = 317
	// MaxReasonLength is that of a target's reason.
	MaxReasonLength = 128
	// MaxTextLength is that of sentences for people.
	MaxTextLength = 1024

	// MaxPorts is the greatest number of ports of a target.
	MaxPorts = 1000
	// MaxBackends is the greatest number of backends that a group tells.
	MaxBackends = 10_000
	// MaxSources is the greatest number of sources that a status tells.
	MaxSources = 64
	// MaxSelectors is the greatest number of selectors of one request.
	MaxSelectors = 100
)

// Validate reports what makes the request malformed, if anything: a server answers
// it with INVALID_ARGUMENT.
func (r *WatchEndpointsRequest) Validate() error {
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
	return validateSelectors(r.GetServices())
}

// Validate reports what makes the request malformed, if anything.
func (r *ListTargetsRequest) Validate() error { return validateSelectors(r.GetServices()) }

// Validate reports what makes the request malformed, if anything.
func (r *ExplainEndpointRequest) Validate() error {
	if !isName(r.GetNamespace()) || !isName(r.GetService()) {
		return fmt.Errorf("namespace and service have %d and %d bytes: 1 to %d are expected", len(r.GetNamespace()), len(r.GetService()), MaxNameLength)
	}
	if a, err := netip.ParseAddr(r.GetAddress()); err != nil || a.Zone() != "" {
		return fmt.Errorf("address %.64q is no IP address", r.GetAddress())
	}
	return nil
}

func validateSelectors(selectors []*ServiceSelector) error {
	if n := len(selectors); n > MaxSelectors {
		return fmt.Errorf("%d services: at most %d are possible; an empty list stands for all", n, MaxSelectors)
	}
	for i, s := range selectors {
		if !isName(s.GetNamespace()) {
			return fmt.Errorf("services[%d].namespace has %d bytes: 1 to %d are expected", i, len(s.GetNamespace()), MaxNameLength)
		}
		if s.GetService() != "" && !isName(s.GetService()) {
			return fmt.Errorf("services[%d].service is no name of a Service: at most %d bytes are expected", i, MaxNameLength)
		}
	}
	return nil
}

func isName(name string) bool {
	return name != "" && len(name) <= MaxNameLength && utf8.ValidString(name)
}

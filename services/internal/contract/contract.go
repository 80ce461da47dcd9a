// Package contract has the limits that the comments of the .proto files state and that more than one
// package needs. It guarantees that both components count alike. It does not check messages: servers
// check requests, and the subscriber checks what it receives.
package contract

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of both streams.
const (
	DigestSize     = 16      // bytes of a digest and of a fingerprint (R4)
	MaxChunk       = 500     // upserts, or removed keys, of one message (R3)
	MaxMessageSize = 4 << 20 // bytes of a message of the server (R3)
	MaxEpochLength = 64      // bytes
	MaxTextLength  = 1024    // bytes of a reason, and of other sentences for people
)

// Digest is a fingerprint of an entry, or the XOR of the fingerprints of a set (rule R4).
type Digest [DigestSize]byte

// XOR adds a fingerprint to a digest, or removes it.
func (d *Digest) XOR(o Digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

// Limits of slicefeed.inventory.v1. Lengths are in bytes.
const (
	MaxNameLength       = 253
	MaxUIDLength        = 128
	MaxLabels           = 256
	MaxLabelKeyLength   = 317 // a prefix of 253, a slash and a name of 63
	MaxLabelValueLength = 63  // also of zone, region, and a port's name and protocol
	MaxPorts            = 16  // of a node
)

// Port is a port of a node.
type Port struct {
	Name     string // empty: it has none
	Protocol string // TCP, UDP or SCTP
	Number   uint16
}

// IsValid reports whether clients accept the port.
func (p Port) IsValid() bool {
	return p.Number > 0 && (p.Protocol == "TCP" || p.Protocol == "UDP" || p.Protocol == "SCTP") &&
		len(p.Name) <= MaxLabelValueLength && utf8.ValidString(p.Name)
}

func (p Port) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol))
}

// IsHostname reports whether a text can be the hostname of a node: a DNS label. The API server rejects a slice that has
// another one.
func IsHostname(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }

// ParseService splits the field service of a request, namespace/name. It reports whether both are DNS labels.
func ParseService(text string) (service types.NamespacedName, ok bool) {
	service.Namespace, service.Name, ok = strings.Cut(text, "/")
	return service, ok && len(validation.IsDNS1123Label(service.Namespace))+len(validation.IsDNS1123Label(service.Name)) == 0
}

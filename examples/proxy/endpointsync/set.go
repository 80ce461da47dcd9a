// Package endpointsync is the client's side of slicefeed.writer.v1: it keeps a set of endpoints in step with a writer. It
// uses nothing of Slicefeed but the generated code, because the contract states all that a client needs.
package endpointsync

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

// Limits that writer.proto states, lengths in bytes.
const (
	maxChunk       = 500
	digestSize     = 16
	maxEpochLength = 64
	maxKeyLength   = 256
)

// Set is the client's state of the contract: a set, a cursor, a digest, and what is staged. It is
// pure: messages come in. It is not safe for concurrent use.
type Set struct {
	entries map[string]*writerv1.Entry // in force, by key
	cursor  *writerv1.Cursor           // nil: none
	digest  []byte

	staged   map[string]*writerv1.Entry // nil: nothing is
	reset    bool                       // what is staged began with a reset
	inStream bool                       // synced in the present stream
}

// Begin says that a new stream begins: what the last one staged is lost (rule R1). It puts
// into the request what is held.
func (s *Set) Begin(req *writerv1.WatchEndpointsRequest) {
	s.staged, s.reset, s.inStream = nil, false, false
	req.Cursor, req.Digest = s.cursor, s.digest
}

// Forget drops cursor and digest after a breach, so that the next stream starts over. The set
// stays (rule R13).
func (s *Set) Forget() { s.cursor, s.digest = nil, nil }

// Breach is what a server did that the contract rules out.
type Breach string

// Error says what.
func (b Breach) Error() string { return "breach of the contract: " + string(b) }

func breach(format string, args ...any) error { return Breach(fmt.Sprintf(format, args...)) }

// Apply takes in the next message of the stream, and reports whether it put a synced state in
// force. An error is a Breach: then the set is as it was, and the stream has to end.
func (s *Set) Apply(m *writerv1.WatchEndpointsResponse) (synced bool, err error) {
	if len(m.GetUpserts()) > maxChunk || len(m.GetRemoved()) > maxChunk {
		return false, breach("%d upserts and %d removed keys in a message", len(m.GetUpserts()), len(m.GetRemoved()))
	}
	switch {
	case m.GetReset_():
		s.staged, s.reset = map[string]*writerv1.Entry{}, true
	case s.staged == nil:
		s.staged, s.reset = map[string]*writerv1.Entry{}, false
		maps.Copy(s.staged, s.entries)
	}
	seen := map[string]bool{}
	for _, key := range m.GetRemoved() {
		if s.staged[key] == nil {
			return false, breach("the removal of %.256q, which is not in the set", key)
		}
		delete(s.staged, key)
		seen[key] = true
	}
	for _, e := range m.GetUpserts() {
		if err := check(e); err != nil {
			return false, err
		}
		if seen[e.GetKey()] {
			return false, breach("%q comes twice in a message", e.GetKey())
		}
		seen[e.GetKey()] = true
		s.staged[e.GetKey()] = e
	}
	if !m.GetSynced() {
		return false, nil
	}
	return true, s.commit(m)
}

// commit holds a synced message against what is staged, and puts that in force.
func (s *Set) commit(m *writerv1.WatchEndpointsResponse) error {
	digest := make([]byte, digestSize)
	for _, e := range s.staged {
		for i, b := range e.GetFingerprint() {
			digest[i] ^= b
		}
	}
	epoch, revision := m.GetCursor().GetEpoch(), m.GetCursor().GetRevision()
	switch {
	case m.GetStatus() == nil || epoch == "" || len(epoch) > maxEpochLength:
		return breach("synced without status or cursor")
	case s.inStream && !s.reset && epoch != s.cursor.GetEpoch():
		return breach("the epoch changes within a stream")
	case epoch == s.cursor.GetEpoch() && revision < s.cursor.GetRevision():
		return breach("the revision goes back from %d to %d", s.cursor.GetRevision(), revision)
	case int64(len(s.staged)) != int64(m.GetCount()):
		return breach("%d entries were told, and there are %d", m.GetCount(), len(s.staged))
	case !bytes.Equal(digest, m.GetDigest()):
		return breach("the digest %x was told, and it is %x", m.GetDigest(), digest)
	}
	s.entries, s.cursor, s.digest = s.staged, m.GetCursor(), digest
	s.staged, s.reset, s.inStream = nil, false, true
	return nil
}

// check holds an entry against the contract. One of a kind that we do not know is kept (R12).
func check(e *writerv1.Entry) error {
	switch {
	case e.GetKey() == "" || len(e.GetKey()) > maxKeyLength:
		return breach("a key of %d bytes", len(e.GetKey()))
	case e.GetNamespace() == "" || e.GetService() == "":
		return breach("%q is of no Service", e.GetKey())
	case len(e.GetFingerprint()) != digestSize:
		return breach("the fingerprint of %q has %d bytes", e.GetKey(), len(e.GetFingerprint()))
	case e.GetEndpoint() != nil:
		return checkBackends(e.GetKey(), e.GetEndpoint().GetPort(), e.GetEndpoint().GetBackend())
	case e.GetGroup() != nil:
		return checkBackends(e.GetKey(), e.GetGroup().GetPort(), e.GetGroup().GetBackends()...)
	}
	return nil
}

func checkBackends(key string, port *writerv1.Port, backends ...*writerv1.Backend) error {
	if n := port.GetNumber(); n < 1 || n > 65535 {
		return breach("%q has the port %d", key, n)
	}
	seen := map[string]bool{}
	for _, b := range backends {
		address, err := netip.ParseAddr(b.GetAddress())
		if err != nil || address.String() != b.GetAddress() || address.Zone() != "" || address.Is4In6() {
			return breach("%q has the address %.64q", key, b.GetAddress())
		}
		if b.GetReady() && !b.GetServing() {
			return breach("%q is ready and does not serve", key)
		}
		if seen[b.GetAddress()] {
			return breach("%q has %s twice", key, address)
		}
		seen[b.GetAddress()] = true
	}
	return nil
}

// Backends are where new connections to a port of a Service go: to all that are ready, or while
// none is, to those that still serve. Sorted.
func (s *Set) Backends(namespace, service, port string) []netip.AddrPort {
	var ready, serving []netip.AddrPort
	for _, e := range s.entries {
		at := e.GetEndpoint()
		if at == nil || e.GetNamespace() != namespace || e.GetService() != service || at.GetPort().GetName() != port {
			continue
		}
		address := netip.AddrPortFrom(
			netip.MustParseAddr(at.GetBackend().GetAddress()),
			uint16(at.GetPort().GetNumber()),
		) // it has been checked
		switch {
		case at.GetBackend().GetReady():
			ready = append(ready, address)
		case at.GetBackend().GetServing():
			serving = append(serving, address)
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.SortFunc(ready, func(a, b netip.AddrPort) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Port(), b.Port()))
	})
	return ready
}

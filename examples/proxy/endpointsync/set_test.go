package endpointsync

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func at(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

// entry is an endpoint of web/shop, with a fingerprint of its own.
func entry(n byte, alter ...func(*writerv1.Entry)) *writerv1.Entry {
	e := &writerv1.Entry{
		Key: fmt.Sprintf("web/shop/http/10.0.0.%d", n), Namespace: "web", Service: "shop", Fingerprint: make([]byte, 16),
		Kind: &writerv1.Entry_Endpoint{Endpoint: &writerv1.Endpoint{
			Port:    &writerv1.Port{Name: "http", Protocol: "TCP", Number: 30080},
			Backend: &writerv1.Backend{Address: fmt.Sprintf("10.0.0.%d", n), Ready: true, Serving: true},
		}},
	}
	e.Fingerprint[0] = n
	for _, f := range alter {
		f(e)
	}
	return e
}

func backend(alter func(*writerv1.Backend)) func(*writerv1.Entry) {
	return func(e *writerv1.Entry) { alter(e.GetEndpoint().GetBackend()) }
}

// whole is a reset to a set of which the digest is right.
func whole(revision uint64, entries ...*writerv1.Entry) *writerv1.WatchEndpointsResponse {
	m := &writerv1.WatchEndpointsResponse{
		Reset_: true, Synced: true, Upserts: entries, Status: &writerv1.WriterStatus{},
		Cursor: &writerv1.Cursor{Epoch: "e", Revision: revision}, Count: uint32(len(entries)), Digest: make([]byte, 16),
	}
	for _, e := range entries {
		for i, b := range e.GetFingerprint() {
			m.Digest[i] ^= b
		}
	}
	return m
}

func TestR1OnlySyncedStatesCount(t *testing.T) {
	var s Set
	chunk := whole(1, entry(1))
	chunk.Synced, chunk.Cursor = false, nil
	if synced, err := s.Apply(chunk); synced || err != nil {
		t.Fatal(synced, err)
	}
	want(t, "after a chunk", s.Backends("web", "shop", "http"), nil)
	s.Begin(&writerv1.WatchEndpointsRequest{})
	if synced, err := s.Apply(whole(2, entry(2), entry(3))); !synced || err != nil {
		t.Fatal(synced, err)
	}
	want(t, "after another stream's reset", s.Backends("web", "shop", "http"), at("10.0.0.2:30080", "10.0.0.3:30080"))
	want(t, "of another port", s.Backends("web", "shop", "admin"), nil)
}

func TestNewConnectionsGoToDrainingBackendsOnlyIfNoneIsReady(t *testing.T) {
	draining := backend(func(b *writerv1.Backend) { b.Ready, b.Terminating = false, true })
	out := backend(func(b *writerv1.Backend) { b.Ready, b.Serving = false, false })
	for _, c := range []struct {
		name    string
		entries []*writerv1.Entry
		want    []netip.AddrPort
	}{
		{"one is ready", []*writerv1.Entry{entry(1), entry(2, draining), entry(3, out)}, at("10.0.0.1:30080")},
		{"none is", []*writerv1.Entry{entry(2, draining), entry(3, out)}, at("10.0.0.2:30080")},
		{"all are out", []*writerv1.Entry{entry(3, out)}, nil},
	} {
		var s Set
		if _, err := s.Apply(whole(1, c.entries...)); err != nil {
			t.Fatal(err)
		}
		want(t, c.name, s.Backends("web", "shop", "http"), c.want)
	}
}

func TestR12KeepsWhatANewerServerTells(t *testing.T) {
	var s Set
	unknown := entry(1, func(e *writerv1.Entry) { e.Kind = nil })
	if synced, err := s.Apply(whole(1, unknown, entry(2))); !synced || err != nil {
		t.Fatal(synced, err)
	}
	want(t, "backends", s.Backends("web", "shop", "http"), at("10.0.0.2:30080"))
}

func TestR13ABreachLeavesTheSetAsItWas(t *testing.T) {
	delta := func(alter func(*writerv1.WatchEndpointsResponse)) *writerv1.WatchEndpointsResponse {
		m := whole(7, entry(1), entry(2))
		m.Reset_, m.Upserts = false, nil
		alter(m)
		return m
	}
	upsert := func(e *writerv1.Entry) *writerv1.WatchEndpointsResponse { return whole(8, e) }
	for name, m := range map[string]*writerv1.WatchEndpointsResponse{
		"a digest that does not fit":     delta(func(m *writerv1.WatchEndpointsResponse) { m.Digest[5] ^= 1 }),
		"a count that does not fit":      delta(func(m *writerv1.WatchEndpointsResponse) { m.Count = 3 }),
		"a revision that goes back":      delta(func(m *writerv1.WatchEndpointsResponse) { m.Cursor.Revision = 6 }),
		"another epoch without a reset":  delta(func(m *writerv1.WatchEndpointsResponse) { m.Cursor.Epoch = "f" }),
		"synced without a cursor":        delta(func(m *writerv1.WatchEndpointsResponse) { m.Cursor = nil }),
		"synced without a status":        delta(func(m *writerv1.WatchEndpointsResponse) { m.Status = nil }),
		"a removal of what is not there": delta(func(m *writerv1.WatchEndpointsResponse) { m.Removed = []string{"web/shop/http/10.0.0.9"} }),
		"a key both removed and upserted": delta(func(m *writerv1.WatchEndpointsResponse) {
			m.Removed, m.Upserts = []string{entry(1).GetKey()}, []*writerv1.Entry{entry(1)}
		}),
		"a key twice":                delta(func(m *writerv1.WatchEndpointsResponse) { m.Upserts = []*writerv1.Entry{entry(1), entry(1)} }),
		"too many removed keys":      delta(func(m *writerv1.WatchEndpointsResponse) { m.Removed = make([]string, 501) }),
		"no key":                     upsert(entry(1, func(e *writerv1.Entry) { e.Key = "" })),
		"no Service":                 upsert(entry(1, func(e *writerv1.Entry) { e.Service = "" })),
		"a short fingerprint":        upsert(entry(1, func(e *writerv1.Entry) { e.Fingerprint = nil })),
		"no port":                    upsert(entry(1, func(e *writerv1.Entry) { e.GetEndpoint().Port = nil })),
		"no backend":                 upsert(entry(1, func(e *writerv1.Entry) { e.GetEndpoint().Backend = nil })),
		"an address in another form": upsert(entry(1, backend(func(b *writerv1.Backend) { b.Address = "fd00:0::1" }))),
		"ready and not serving":      upsert(entry(1, backend(func(b *writerv1.Backend) { b.Serving = false }))),
		"an address twice in a group": upsert(entry(1, func(e *writerv1.Entry) {
			b := e.GetEndpoint().GetBackend()
			e.Kind = &writerv1.Entry_Group{Group: &writerv1.Group{Port: e.GetEndpoint().GetPort(), Backends: []*writerv1.Backend{b, b}}}
		})),
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			if _, err := s.Apply(whole(7, entry(1), entry(2))); err != nil {
				t.Fatal(err)
			}
			_, err := s.Apply(m)
			if breach := Breach(""); !errors.As(err, &breach) {
				t.Errorf("error %v: want a breach", err)
			}
			want(t, "backends", s.Backends("web", "shop", "http"), at("10.0.0.1:30080", "10.0.0.2:30080"))
			s.Forget()
			var req writerv1.WatchEndpointsRequest
			s.Begin(&req)
			if req.GetCursor() != nil || req.GetDigest() != nil {
				t.Errorf("after the breach it would resume: %v", &req)
			}
		})
	}
}

func TestR14DelaysGrowAndFallBackAfterAStableStream(t *testing.T) {
	var f Follower
	limit := func(synced time.Duration, breach bool) time.Duration { return f.delay(synced, breach, 1) }
	for _, step := range []struct {
		synced time.Duration
		breach bool
		want   time.Duration
	}{
		{0, false, time.Second},
		{29 * time.Second, false, 2 * time.Second},
		{0, false, 4 * time.Second},
		{0, false, 4 * time.Second},
		{time.Hour, false, time.Second},
		{time.Hour, true, time.Second},
		{time.Hour, true, 2 * time.Second}, // a breach counts though the stream was stable
		{time.Hour, true, 4 * time.Second},
		{time.Hour, true, 8 * time.Second},
		{time.Hour, false, time.Second},
	} {
		want(t, fmt.Sprint(step.synced, step.breach), limit(step.synced, step.breach), step.want)
	}
	want(t, "the shortest", f.delay(0, false, 0), 500*time.Millisecond)
}

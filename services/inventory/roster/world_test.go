package roster

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	dc = "0dc00000-0000-4000-8000-000000000000"
	s1 = "11111111-1111-4111-8111-111111111111"
	s2 = "22222222-2222-4222-8222-222222222222"
	s3 = "33333333-3333-4333-8333-333333333333"
)

var (
	addr = netip.MustParseAddr
	t0   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cidr = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
)

// world drives a roster by hand, with a clock that only it turns.
type world struct {
	*Roster

	t    *testing.T
	now  time.Time
	rv   uint64
	copy map[string]*Node
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	if cfg.Resolver == 0 {
		cfg.Resolver = ByCloud
	}
	cfg.CIDRs = cidr
	return &world{Roster: New(cfg), t: t, now: t0, rv: 100, copy: map[string]*Node{}}
}

func (w *world) up(cs ...Candidate) {
	for _, c := range cs {
		w.Upsert(w.now, c)
	}
	w.rv++
	w.Heard(w.now, w.rv)
}

// Heard is the source's word that it lives, and what it has caught up with.
func (w *world) Heard(now time.Time, mark uint64) {
	w.Hear(now, News{LastContact: now, Verified: mark})
}

func (w *world) WatchFailed(now time.Time, what string) { w.Hear(now, News{Failure: what}) }

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// wake moves the clock to when the roster wants to be asked again, and asks.
func (w *world) wake() Ask {
	w.t.Helper()
	a := w.Ask(w.now)
	if a.Look != NoLook || a.List {
		return a
	}
	if !a.Wake.After(w.now) {
		w.t.Fatalf("wake %s is not after %s though nothing was asked", a.Wake, w.now)
	}
	w.now = a.Wake
	return w.Ask(w.now)
}

// serve answers whatever is asked in the best way until the roster is satisfied or it has
// had so many turns; it returns when each look and listing began.
func (w *world) serve(l Listing, turns int) (looks []Look, lists []time.Duration) {
	w.t.Helper()
	for range turns {
		a := w.wake()
		if a.Look != NoLook {
			looks = append(looks, a.Look)
			w.Looked(w.now, w.now, a.Look, w.rv, nil)
		}
		if a.List {
			lists = append(lists, w.now.Sub(t0))
			w.Listed(w.now, w.now, l, nil, 0)
		}
		w.Heard(w.now, w.rv)
	}
	return looks, lists
}

// observed brings the roster to its first complete observation.
func (w *world) observed(l Listing) {
	w.t.Helper()
	for range 10 {
		if w.serve(l, 1); w.Status(w.now).Observation > 0 {
			return
		}
	}
	w.t.Fatal("no observation after 10 turns")
}

func (w *world) sees(want ...string) {
	w.t.Helper()
	var got []string
	for _, n := range w.Nodes() {
		words := []string{n.Name}
		for _, a := range n.Addresses {
			words = append(words, a.String())
		}
		got = append(got, strings.Join(words, " "))
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatalf("nodes (-want +got):\n%s", d)
	}
}

func (w *world) omits(name string) Omission {
	w.t.Helper()
	for _, o := range w.Omitted() {
		if o.Name == name {
			return o
		}
	}
	w.t.Fatalf("%s is not left out; left out are %v", name, w.Omitted())
	return Omission{}
}

func (w *world) list(l Listing) {
	w.pass(time.Second)
	w.Listed(w.now, w.now, l, nil, 0)
}

func node(name, server string) Candidate {
	return Candidate{Name: name, UID: "uid-" + name, ProviderID: "ionos://" + server, State: Ready}
}

func server(id, name string, ips ...string) Server {
	n := NIC{ID: "nic-" + id, LAN: "3"}
	for _, ip := range ips {
		n.Addresses = append(n.Addresses, addr(ip))
	}
	return Server{ID: id, Datacenter: dc, Name: name, NICs: []NIC{n}}
}

func listing(s ...Server) Listing { return Listing{Servers: s} }

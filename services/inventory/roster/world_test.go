package roster

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
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

// maxIdle is how long a source may be silent, as package observe has it.
const maxIdle = 150 * time.Second

func addrs(ss ...string) (as []netip.Addr) {
	for _, s := range ss {
		as = append(as, addr(s))
	}
	return as
}

// world drives a roster with a clock that only it moves.
type world struct {
	*Roster

	t       *testing.T
	now     time.Time
	rv      uint64
	changes []Change // since take
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	if cfg.Method == 0 {
		cfg.Method = resolve.ByCloud
	}
	cfg.CIDRs = cidr
	return &world{Roster: New(cfg), t: t, now: t0, rv: 100}
}

func (w *world) apply(now time.Time, update Update) {
	w.changes = append(w.changes, w.Apply(now, update)...)
}

// take returns the changes since the last call.
func (w *world) take() []Change {
	changes := w.changes
	w.changes = nil
	return changes
}

func (w *world) applySource(now time.Time, update source.Update) {
	w.apply(now, Update{Source: update})
}

func (w *world) upsert(now time.Time, c source.Candidate) {
	w.applySource(now, source.Update{Changed: []source.Candidate{c}})
}

func (w *world) remove(now time.Time, name string) {
	w.applySource(now, source.Update{Removed: []string{name}})
}

func (w *world) up(cs ...source.Candidate) {
	for _, c := range cs {
		w.upsert(w.now, c)
	}
	w.rv++
	w.contact(w.now, w.rv)
}

// contact is a sign of life of the source, and what it has caught up with.
func (w *world) contact(now time.Time, verified uint64) {
	w.applySource(now, source.Update{LastContact: now, Verified: verified})
}

func (w *world) sourceFailed(now time.Time, text string) {
	w.applySource(now, source.Update{Failure: text})
}

func (w *world) verified(now, startedAt time.Time, mode source.Verification, number uint64, err error) {
	w.apply(now, Update{Verification: &observe.VerificationResult{StartedAt: startedAt, Mode: mode, Number: number, Err: err}})
}

func (w *world) listed(now, startedAt time.Time, l source.Listing, err error, retryAfter time.Duration) {
	w.apply(now, Update{Listing: &observe.ListingResult{StartedAt: startedAt, Listing: l, Err: err, RetryAfter: retryAfter}})
}

// list is a listing that was started a second later.
func (w *world) list(l source.Listing) {
	w.pass(time.Second)
	w.listed(w.now, w.now, l, nil, 0)
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// isConfirming reports whether a full verification is due soon. It counts as started.
func (w *world) isConfirming() bool {
	return w.NextActions(w.now.Add(5*time.Second)).Verify == source.FullVerification
}

// wake moves the clock to when the roster wants to be asked again, and asks.
func (w *world) wake() observe.Actions {
	w.t.Helper()
	a := w.NextActions(w.now)
	if a.Verify != source.NoVerification || a.List {
		return a
	}
	if !a.Wake.After(w.now) {
		w.t.Fatalf("wake %s is not after %s though nothing was requested", a.Wake, w.now)
	}
	w.now = a.Wake
	return w.NextActions(w.now)
}

// serve answers each request in the best way, so many times; it returns the verifications and when each
// listing was started.
func (w *world) serve(l source.Listing, turns int) (modes []source.Verification, lists []time.Duration) {
	w.t.Helper()
	for range turns {
		a := w.wake()
		if a.Verify != source.NoVerification {
			modes = append(modes, a.Verify)
			w.verified(w.now, w.now, a.Verify, w.rv, nil)
		}
		if a.List {
			lists = append(lists, w.now.Sub(t0))
			w.listed(w.now, w.now, l, nil, 0)
		}
		w.contact(w.now, w.rv)
	}
	return modes, lists
}

// observed brings the roster to its first complete observation.
func (w *world) observed(l source.Listing) {
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
		parts := []string{n.Name}
		for _, a := range n.Addresses {
			parts = append(parts, a.String())
		}
		got = append(got, strings.Join(parts, " "))
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
	w.t.Fatalf("%s is not omitted; omitted are %v", name, w.Omitted())
	return Omission{}
}

func node(name, server string) source.Candidate {
	return source.Candidate{Name: name, UID: "uid-" + name, ProviderID: "ionos://" + server, State: source.Ready}
}

func server(id, name string, ips ...string) source.Server {
	n := source.NIC{ID: "nic-" + id, LAN: "3"}
	for _, ip := range ips {
		n.Addresses = append(n.Addresses, addr(ip))
	}
	return source.Server{ID: id, Datacenter: dc, Name: name, NICs: []source.NIC{n}}
}

func listing(s ...source.Server) source.Listing { return source.Listing{Servers: s} }

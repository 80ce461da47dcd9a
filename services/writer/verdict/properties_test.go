package verdict

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

const nodes = 6 // the last one is outside every allowlist

func drawWorld(t *rapid.T, tb testing.TB) *world {
	w := newWorld(tb, 0)
	w.in.Limits = Limits{
		Probing: rapid.Bool().Draw(t, "probing"), ListUnready: rapid.Bool().Draw(t, "list out"),
		EmptyThreshold: rapid.IntRange(1, 3).Draw(t, "empty threshold"),
		ShrinkWindow:   rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "window"),
	}
	w.in.Limits.FailoverBelow = rapid.IntRange(0, 2).Draw(t, "failover below")
	w.in.Limits.ExpireAfter = rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Second}).Draw(t, "expire after")
	w.in.LeadingSince = rapid.SampledFrom([]time.Time{{}, start.Add(-5 * time.Second), start.Add(-time.Hour)}).Draw(t, "leads since")
	w.in.Sources = nil
	for _, name := range []string{"blue", "default", "green"}[:rapid.IntRange(1, 3).Draw(t, "sources")] {
		w.in.Sources = append(w.in.Sources, trusted(name))
		w.source(name).Tier = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "tier")
		w.change(t, name)
	}
	for n := range nodes {
		w.probe(n, probe.Health(rapid.IntRange(0, 2).Draw(t, "health")))
		if rapid.Bool().Draw(t, "held") {
			w.in.Current = append(w.in.Current, CurrentEndpoint{
				Address:    addr(n),
				Conditions: rapid.SampledFrom([]Conditions{ready, draining, {}}).Draw(t, "conditions"),
				Source:     rapid.SampledFrom([]string{"", "blue", "green", "former"}).Draw(t, "label"),
			})
		}
	}
	return w
}

// change makes a source another one.
func (w *world) change(t *rapid.T, name string) {
	s := w.source(name)
	odd := rapid.IntRange(0, 9).Draw(t, "trouble")
	s.EverSynced = s.EverSynced && odd != 0
	s.Connected, s.MembershipSynced = odd != 1, odd != 2
	s.MembershipSyncedAt = w.now
	if odd == 3 {
		s.MembershipSyncedAt = w.now.Add(-time.Hour)
	}
	s.Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")} // 0 to 3
	if odd != 4 {
		s.Allowlist.CIDRs = append(s.Allowlist.CIDRs, netip.MustParsePrefix("10.0.0.4/32"))
	}
	for n := range nodes {
		if rapid.Bool().Draw(t, "listed") {
			w.report(name, n, State(rapid.IntRange(0, 3).Draw(t, "state")))
		} else {
			w.unlist(name, n)
		}
	}
}

// Random walks: after every step, the decision has the properties of any decision.
func TestPropertiesOfEveryDecision(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt, t)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			frozen := clone(w.in)
			mem, d := Decide(w.mem, w.in, w.now)

			again, same := Decide(w.mem, clone(w.in), w.now)
			if diff := cmp.Diff(d, same, byValue); diff != "" {
				rt.Fatalf("the same input has two decisions:\n%s", diff)
			}
			if !slices.Equal(mem.addresses, again.addresses) || !slices.Equal(mem.sources, again.sources) {
				rt.Fatal("the same input leaves two memories")
			}
			if diff := cmp.Diff(frozen, w.in, byValue); diff != "" {
				rt.Fatalf("the input was changed:\n%s", diff)
			}
			checkDecision(rt, w, d)

			next := clone(w.in)
			if d.Write {
				next.Current = held(d)
			}
			_, second := Decide(mem, next, w.now)
			if diff := cmp.Diff(held(d), held(second), byValue); diff != "" {
				rt.Fatalf(
					"written, and decided again, the decision differs:\n%s\nfirst:\n%s\nsecond:\n%s",
					diff,
					reasons(d),
					reasons(second),
				)
			}

			w.mem, w.in = mem, next
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 6).Draw(rt, "seconds")) * time.Second)
			for i := range w.in.Sources {
				if rapid.Bool().Draw(rt, "changes") {
					w.change(rt, w.in.Sources[i].Name)
				}
				if rapid.Bool().Draw(rt, "observes") {
					w.observe(w.in.Sources[i].Name)
				}
			}
			w.probe(rapid.IntRange(0, nodes-1).Draw(rt, "node"), probe.Health(rapid.IntRange(0, 2).Draw(rt, "health")))
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				w.restart()
			}
		}
	})
}

func checkDecision(t *rapid.T, w *world, d Decision) {
	before := map[netip.Addr]*CurrentEndpoint{}
	for i := range w.in.Current {
		before[w.in.Current[i].Address] = &w.in.Current[i]
	}
	isTrusted := func(s *Source) bool {
		return s.EverSynced && s.Connected && s.MembershipSynced && w.now.Sub(s.MembershipSyncedAt) <= DefaultMaxStaleness
	}
	listed := map[netip.Addr]Endpoint{}
	for i, e := range d.Endpoints {
		if i > 0 && !d.Endpoints[i-1].Address.Less(e.Address) {
			t.Fatalf("%v twice, or not in order", e.Address)
		}
		if e.Reason.Source == "" || e.Rule == "" || e.Verdict == 0 || e.Source == "" {
			t.Fatalf("incomplete: %+v", e)
		}
		if e.Listed {
			listed[e.Address] = e
		}
		if before[e.Address] != nil || !e.Listed {
			continue
		}
		if e.Rule == RulePanic && !w.in.Limits.ListUnready {
			continue // a failure had made it not ready, and is ignored now
		}
		// Nothing is added but what a trusted source reports within its allowlist, and its probe confirms.
		ok := slices.ContainsFunc(w.in.Sources, func(s Source) bool {
			return s.Name == e.Source && isTrusted(&s) && s.Allowlist.denyReason(e.Address) == "" &&
				slices.ContainsFunc(s.Members, func(m Member) bool { return m.Address == e.Address })
		})
		if !ok || (w.in.Limits.Probing && w.probeOf(e.Address).Health != probe.Passing) || !e.Conditions.inUse() {
			t.Fatalf("added: %+v", e)
		}
	}
	// A source that is not trusted takes nothing away; only a failing probe or the allowlist may.
	for i := range w.in.Sources {
		s := &w.in.Sources[i]
		for a, h := range before {
			if h.sourceName() != s.Name || isTrusted(s) || s.Allowlist.denyReason(a) != "" {
				continue
			}
			after, stays := listed[a]
			if failing := w.in.Limits.Probing && w.probeOf(a).Health == probe.Failing; failing {
				continue
			}
			switch {
			case !h.Conditions.inUse(): // may come back, or have been on its way out
			case after.Rule == RuleFloor: // it is ready instead of draining
			case d.endpoint(a).Rule == RuleFailover: // our own setting takes it out
			case d.endpoint(a).Rule == RuleExpiry && !w.now.Before(w.in.LeadingSince.Add(w.in.Limits.ExpireAfter)):
			case !stays || after.Conditions != h.Conditions || after.Source != s.Name:
				t.Fatalf("%v left %s, which is not isTrusted:\n%s", a, s.Name, reasons(d))
			}
		}
	}
}

func clone(in Input) Input {
	in.Sources = slices.Clone(in.Sources)
	for i := range in.Sources {
		in.Sources[i].Members = slices.Clone(in.Sources[i].Members)
		in.Sources[i].Allowlist.CIDRs = slices.Clone(in.Sources[i].Allowlist.CIDRs)
	}
	in.Current = slices.Clone(in.Current)
	in.Probes = slices.Clone(in.Probes)
	return in
}

// one draws one of these.
func one[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

func maybe(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }

func among(t *rapid.T, low, high int, what string) int {
	return rapid.IntRange(low, high).Draw(t, what)
}

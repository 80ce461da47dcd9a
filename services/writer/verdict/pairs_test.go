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

// The pairs of guards that interact, each over random histories of worlds in which both of
// the pair have something to say.

func TestAnEmptySourceKeepsAllUntilItIsConfirmedAndThenShrinkHoldsNoneOfIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, among(rt, 1, 6, "nodes"))
		count := len(w.in.Current)
		w.shrinks()
		w.in.LeadingSince = one(rt, "leads since", start, start.Add(-time.Hour))
		w.in.Limits.Probing, w.in.Limits.ListUnready = maybe(rt, "probing"), maybe(rt, "list out")
		w.in.Limits.EmptyThreshold = among(rt, 1, 3, "threshold")
		if w.in.Limits.Probing || maybe(rt, "another source") { // with probing on the floor has a say when nothing else is ready
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.report("green", 50, Ready)
			w.probe(50, probe.Passing)
		}
		blue := w.source("blue")
		for n := range count {
			w.report("blue", n, one(rt, "at first", Ready, Draining))
		}
		w.decide() // which may have opened a window, and used it up

		counted, confirmations, at := blue.Observation, 0, w.now
		for range among(rt, 2, 12, "steps") {
			empty := among(rt, 0, 5, "empty") > 0
			for n := range count {
				if w.unlist("blue", n); !w.in.Limits.Probing && maybe(rt, "not ready") {
					w.report("blue", n, NotReady)
				}
			}
			if !empty {
				w.report("blue", among(rt, 0, count-1, "node"), one(rt, "is", Ready, Draining))
			}
			w.pass(time.Duration(among(rt, 1, 6, "seconds")) * time.Second)
			if maybe(rt, "observes") {
				w.observe("blue")
			}
			switch among(rt, 0, 9, "what else") {
			case 0:
				w.takeover()
				counted, confirmations = blue.Observation, 0
			case 1:
				blue.Epoch += "'"
				counted, confirmations = blue.Observation, 0
			}
			before := of(w.in.Current, "blue")
			w.decide()
			switch {
			case !empty:
				counted, confirmations = blue.Observation, 0
				continue
			case blue.Observation > counted && (confirmations == 0 || blue.ObservationAt.Sub(at) >= 4*time.Second):
				counted, at = blue.Observation, blue.ObservationAt
				confirmations++
			}
			after := of(w.in.Current, "blue")
			if confirmations < w.in.Limits.EmptyThreshold {
				if diff := cmp.Diff(before, after, byValue); diff != "" {
					rt.Fatalf("%d confirmations, and this has changed:\n%s\n%s", confirmations, diff, reasons(w.d))
				}
				continue
			}
			if slices.ContainsFunc(after, func(h CurrentEndpoint) bool { return h.Conditions.inUse() }) {
				rt.Fatalf("confirmed, and this is left: %s\n%s", picture(after), reasons(w.d))
			}
		}
	})
}

func TestPanicFloorAndEmptyTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 0)
		w.in.Limits.ListUnready = maybe(rt, "list out")
		w.in.Limits.ShrinkWindow = one(rt, "window", 0, time.Minute)
		w.in.Sources = append(w.in.Sources, trusted("green"))
		w.report("blue", 50, Ready) // none passes that could be listed, but neither source is empty
		w.report("green", 51, Ready)
		w.fail(w.now, 50, 51)
		labels := []string{}
		for n := range among(rt, 1, 5, "nodes") {
			labels = append(labels, one(rt, "label", "blue", "green"))
			w.in.Current = append(
				w.in.Current,
				CurrentEndpoint{Address: addr(n), Source: labels[n], Conditions: one(rt, "held", ready, draining, Conditions{})},
			)
		}
		for range among(rt, 1, 4, "steps") {
			for i := range w.in.Sources {
				w.in.Sources[i].Connected = maybe(rt, "alive")
			}
			for n, label := range labels {
				w.probe(n, one(rt, "health", probe.Failing, probe.Pending))
				if state := one(rt, "listed", Ready, Draining, NotReady, Unknown, unlisted); state != unlisted {
					w.report(label, n, state)
				} else {
					w.unlist(label, n)
				}
			}
			before := w.in.Current
			w.decide()
			w.checkPanic(rt, before)
			w.pass(time.Second)
		}
	})
}

// checkPanic checks what must hold of a decision while nothing passes.
func (w *world) checkPanic(t *rapid.T, before []CurrentEndpoint) {
	fails := func(h CurrentEndpoint) bool { return w.probeOf(h.Address).Health == probe.Failing }
	panics := slices.ContainsFunc(before, fails) &&
		slices.ContainsFunc(before, func(h CurrentEndpoint) bool { return h.Conditions.inUse() })
	if w.d.Panic != panics {
		t.Fatalf("panic %t, want %t", w.d.Panic, panics)
	}
	answers := false
	for _, h := range before {
		e, s := w.endpoint(h.Address), w.source(h.Source)
		state, _ := reportedState(s, h.Address)
		taken := s.Connected && (state == NotReady || state == unlisted)
		answers = answers || h.Conditions.Ready && !fails(h)
		switch {
		case !fails(h), !panics:
		case e.Rule == RuleFloor:
			t.Fatalf("the floor prefers %v, which fails:\n%s", h.Address, reasons(w.d))
		case !h.Conditions.inUse(): // it may get back what it had
		case !taken && (!e.Listed || e.Conditions != h.Conditions):
			t.Fatalf("%v was %s, and has changed on its probe alone:\n%s", h.Address, condition(h.Conditions), reasons(w.d))
		case taken && w.in.Limits.ShrinkWindow == 0 && e.Listed && e.Conditions.inUse():
			t.Fatalf("%v stays, though its source has taken it:\n%s", h.Address, reasons(w.d))
		}
	}
	if answers && !slices.ContainsFunc(w.d.Endpoints, func(e Endpoint) bool { return e.Listed && e.Conditions.Ready }) {
		t.Fatalf("nothing is ready, though something was that has not failed:\n%s", reasons(w.d))
	}
}

func TestInitialSyncTakeoverAndFirstWindowTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const size, window = 6, 10 * time.Second
		w := newWorld(t, 0)
		w.in.Limits = Limits{Probing: maybe(rt, "probing"), ListUnready: maybe(rt, "list out"), ShrinkWindow: window, EmptyThreshold: 1}
		w.in.Sources = append(w.in.Sources, trusted("green"))
		say := func(name string) { // anything but nothing, which could be confirmed
			w.report(name, 50, Unknown)
			for n := range size {
				if w.unlist(name, n); maybe(rt, "listed") {
					w.report(name, n, one(rt, "state", Unknown, Ready, Draining, NotReady))
				}
			}
		}
		for n := range size {
			w.probe(n, one(rt, "health", probe.Pending, probe.Passing, probe.Failing))
			if maybe(rt, "held") {
				w.in.Current = append(w.in.Current, CurrentEndpoint{
					Address: addr(
						n,
					),
					Source:     one(rt, "label", "blue", "green"),
					Conditions: one(rt, "conditions", ready, draining, Conditions{}),
				})
			}
		}
		say("blue")
		say("green")
		w.decide() // of the leader before

		w.restart()
		for range among(rt, 1, 4, "before the initial sync") {
			w.in.LeadingSince = one(rt, "leads since", time.Time{}, w.now, w.now.Add(-window/2), w.now.Add(-time.Hour))
			if s := w.source("blue"); maybe(rt, "begins to tell") {
				s.Connected, s.MembershipSynced = true, true
				say("blue")
				w.observe("blue")
			}
			before := w.in.Current
			w.decide()
			if diff := cmp.Diff(before, w.in.Current, byValue); diff != "" || !w.d.Write {
				rt.Fatalf("no source is synced and no probe has changed, but the slices have:\n%s\n%s", diff, reasons(w.d))
			}
			w.pass(time.Duration(among(rt, 1, 30, "seconds")) * time.Second)
		}

		w.in.LeadingSince = w.now.Add(-time.Duration(among(rt, 0, 9, "leads for")) * time.Second)
		for w.now.Before(w.in.LeadingSince.Add(window)) {
			for _, name := range []string{"blue", "green"} {
				if s := w.source(name); maybe(rt, "is heard") {
					*s = trusted(name)
					s.MembershipSyncedAt, s.Observation = w.now, uint64(among(rt, 1, 30, "observation"))
					say(name)
				}
			}
			w.probe(among(rt, 0, size-1, "node"), one(rt, "health", probe.Pending, probe.Passing, probe.Failing))
			before := w.in.Current
			w.decide()
			for _, h := range before {
				dead := w.in.Limits.Probing && w.probeOf(h.Address).Health == probe.Failing && !w.d.Panic
				if e := w.endpoint(h.Address); h.Conditions.Ready && !dead && (!e.Listed || !e.Conditions.Ready) {
					rt.Fatalf("%v left in the first window:\n%s", h.Address, reasons(w.d))
				}
			}
			w.pass(time.Duration(among(rt, 1, 4, "seconds")) * time.Second)
		}
	})
}

func TestAllowlistRemovesUnlessItWouldTakeAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 0)
		w.in.Limits = Limits{
			Probing: maybe(rt, "probing"), ListUnready: maybe(rt, "list out"), EmptyThreshold: 1,
			ShrinkWindow: one(rt, "window", 0, 10*time.Second),
		}
		w.in.LeadingSince = one(rt, "leads since", w.now, w.now.Add(-time.Hour))
		w.in.Sources = nil
		for _, name := range []string{"blue", "default", "green"}[among(rt, 0, 2, "from"):] {
			w.in.Sources = append(w.in.Sources, trusted(name))
		}
		adopted := []netip.Addr{addr(0), addr(1), addr(2), addr(3), netip.MustParseAddr("127.0.0.1")}
		for n, a := range adopted {
			w.probe(n, one(rt, "health", probe.Pending, probe.Passing, probe.Failing))
			if maybe(rt, "held") {
				w.in.Current = append(w.in.Current, CurrentEndpoint{
					Address:    a,
					Source:     one(rt, "label", "", "", "blue", "green", "former"),
					Conditions: one(rt, "conditions", ready, draining, Conditions{}),
				})
			}
		}
		for range among(rt, 1, 4, "steps") {
			for i := range w.in.Sources {
				s := &w.in.Sources[i]
				s.EverSynced, s.Connected = among(rt, 0, 4, "not synced") > 0, among(rt, 0, 4, "lost") > 0
				s.Allowlist, s.Members = Allowlist{Denied: map[netip.Addr]struct{}{}}, nil
				for _, a := range adopted {
					switch among(rt, 0, 5, "allowlist") {
					case 0: // outside of it
					case 1:
						s.Allowlist.Denied[a] = struct{}{}
						fallthrough
					default:
						s.Allowlist.CIDRs = append(s.Allowlist.CIDRs, netip.PrefixFrom(a, 32))
					}
					if maybe(rt, "listed") {
						s.Members = append(s.Members, Member{Address: a, State: one(rt, "state", Ready, Draining, NotReady)})
					}
				}
				w.observe(s.Name)
			}
			before := w.in.Current
			w.decide()
			w.checkAllowlist(rt, before)
			w.pass(5 * time.Second)
		}
	})
}

// checkAllowlist checks what must hold of a decision with any allowlists and labels.
func (w *world) checkAllowlist(t *rapid.T, before []CurrentEndpoint) {
	inside := func(s *Source, a netip.Addr) bool {
		_, forbidden := s.Allowlist.Denied[a]
		return !a.IsLoopback() && !forbidden && slices.ContainsFunc(s.Allowlist.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	struck := func(h CurrentEndpoint) bool {
		out := h.Address.IsLoopback()
		for i := range w.in.Sources {
			s := &w.in.Sources[i]
			if _, reports := reportedState(s, h.Address); s.EverSynced && reports && inside(s, h.Address) {
				return false // it becomes that one's
			}
			out = out || s.Name == h.sourceName() && !inside(s, h.Address)
		}
		return out
	}
	all := len(before) > 0
	for _, h := range before {
		all = all && struck(h)
	}
	if w.d.Write == all {
		t.Fatalf("write %t, though every held endpoint is outside: %t (%s)\n%s", w.d.Write, all, picture(before), reasons(w.d))
	}
	if all {
		if got := held(w.d); picture(got) != picture(before) {
			t.Fatalf("nothing may change: %s, was %s", picture(got), picture(before))
		}
		if len(w.d.Guards) != 1 || w.d.Guards[0].Rule != RuleAllowlist || w.d.Guards[0].Held != len(before) {
			t.Fatalf("the guards are %+v", w.d.Guards)
		}
		return
	}
	for _, h := range before {
		switch e := w.endpoint(h.Address); {
		case struck(h) && e.Listed:
			t.Fatalf("%v is outside, and is kept:\n%s", h.Address, reasons(w.d))
		case !struck(h) && e.Rule == RuleAllowlist:
			t.Fatalf("%v is denied, though it is allowed, or has no source:\n%s", h.Address, reasons(w.d))
		}
	}
	for _, e := range w.d.Endpoints {
		at := slices.IndexFunc(w.in.Sources, func(s Source) bool { return s.Name == e.Source })
		isNew := !slices.ContainsFunc(before, func(h CurrentEndpoint) bool { return h.Address == e.Address })
		if e.Listed && (at < 0 && isNew || at >= 0 && !inside(&w.in.Sources[at], e.Address)) {
			t.Fatalf("%v is written for %s, which may not have it:\n%s", e.Address, e.Source, reasons(w.d))
		}
	}
}

func TestLostSourceAndConnectedSourceDoNotAffectEachOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const lost, size = 4, 8 // nodes 0 to 3 are the lost one's, the others are the present one's
		w, alone := newWorld(t, 0), newWorld(t, 0)
		limits := Limits{
			Probing:      maybe(rt, "probing"),
			ListUnready:  maybe(rt, "list out"),
			ShrinkWindow: one(rt, "window", 0, 10*time.Second),
		}
		w.in.Limits, alone.in.Limits = limits, limits
		w.in.Sources, alone.in.Sources = append(w.in.Sources, trusted("green")), []Source{trusted("green")}
		both := func(do func(*world)) { do(w); do(alone) }
		for n := range size {
			h := CurrentEndpoint{Address: addr(n), Source: "blue", Conditions: one(rt, "conditions", ready, draining, Conditions{})}
			if n >= lost {
				h.Source = "green"
				alone.in.Current = append(alone.in.Current, h)
			} else {
				w.report("blue", n, one(rt, "state", Ready, Draining, NotReady))
			}
			w.in.Current = append(w.in.Current, h)
		}
		both(func(w *world) { // something is ready, so neither panic nor floor acts
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(50), Source: "green", Conditions: ready})
			w.report("green", 50, Ready)
			w.probe(50, probe.Passing)
		})
		how := one(rt, "is lost by", "link", "membership", "age", "restart")
		for step := range among(rt, 1, 6, "steps") {
			for n := range size {
				state, health := one(
					rt,
					"state",
					Ready,
					Draining,
					NotReady,
					Unknown,
					unlisted,
				), one(
					rt,
					"health",
					probe.Pending,
					probe.Passing,
					probe.Failing,
				)
				observes := n == 0 && maybe(rt, "observes")
				reports := n >= lost || slices.ContainsFunc(w.in.Current, func(h CurrentEndpoint) bool { return h.Address == addr(n) })
				both(func(w *world) {
					w.probe(n, health)
					if observes {
						w.observe("green")
					}
					if w.unlist("green", n); state != unlisted && reports && (n >= lost || w != alone) {
						w.report("green", n, state)
					}
				})
			}
			if step > 0 { // in the first it is present
				blue := w.source("blue")
				w.report("blue", 20, Ready) // which is new
				w.probe(20, probe.Passing)
				for n := range lost {
					if w.unlist("blue", n); maybe(rt, "listed") {
						w.report("blue", n, one(rt, "state", Ready, Draining, NotReady))
					}
				}
				blue.Connected, blue.MembershipSynced, blue.EverSynced = how != "link", how != "membership", how != "restart"
				if how == "age" {
					blue.MembershipSyncedAt = w.now.Add(-time.Hour)
				}
			}
			before := of(w.in.Current, "blue")
			both(func(w *world) { w.decide() })
			if diff := cmp.Diff(of(alone.in.Current, "green"), of(w.in.Current, "green"), byValue); diff != "" {
				rt.Fatalf("the present one is not as it is alone:\n%s\n%s", diff, reasons(w.d))
			}
			if step > 0 {
				w.checkLost(rt, before)
			}
			both(func(w *world) { w.pass(time.Duration(2+step) * time.Second) })
		}
	})
}

// checkLost checks what must hold of the endpoints of a source that is lost.
func (w *world) checkLost(t *rapid.T, before []CurrentEndpoint) {
	for _, h := range before {
		e, health := w.endpoint(h.Address), w.probeOf(h.Address).Health
		if !w.in.Limits.Probing {
			health = notProbed
		}
		want, listed := h.Conditions, true
		switch {
		case health == probe.Failing:
			want, listed = Conditions{}, w.in.Limits.ListUnready
		case health == probe.Passing && !h.Conditions.inUse(): // it comes back, as its source last reported it
			want = e.Conditions
		}
		if e.Source != h.Source || e.Listed != listed || e.Conditions != want {
			t.Fatalf("%v was %s and its source is lost:\n%s", h.Address, condition(h.Conditions), reasons(w.d))
		}
	}
	for _, h := range of(w.in.Current, "blue") {
		if !slices.ContainsFunc(before, func(b CurrentEndpoint) bool { return b.Address == h.Address }) {
			t.Fatalf("%v is new:\n%s", h.Address, reasons(w.d))
		}
	}
}

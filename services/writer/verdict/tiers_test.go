package verdict

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// twoTiers has nodes 0 to 2 of blue, and nodes 3 to 5 of green, which stands by.
func twoTiers(rt *rapid.T, tb testing.TB) *world {
	w := newWorld(tb, 3)
	w.in.Limits.FailoverBelow = among(rt, 0, 2, "failover below")
	w.in.Limits.ShrinkWindow = one(rt, "window", 0, 10*time.Second)
	green := trusted("green")
	green.Tier = 1
	w.in.Sources = append(w.in.Sources, green)
	for n := 3; n < 6; n++ {
		w.report("green", n, Ready)
		w.probe(n, probe.Passing)
	}
	return w
}

// step changes one thing about one node, or about a source. It reports whether the memory was lost.
func (w *world) step(rt *rapid.T) (forgot bool) {
	n := among(rt, 0, 5, "node")
	source := "blue"
	if n > 2 {
		source = "green"
	}
	switch one(rt, "what", "report", "probe", "link", "selector", "restart", "takeover") {
	case "report":
		if state := State(among(rt, 0, 3, "state")); state == Unknown {
			w.unlist(source, n)
		} else {
			w.report(source, n, state)
		}
	case "probe":
		w.probe(n, probe.Health(among(rt, 0, 2, "status")))
	case "link":
		s := w.source(source)
		s.Connected = !s.Connected
	case "selector":
		w.reselect(source, w.source(source).Selector+"x")
	case "restart":
		w.mem, forgot = Memory{}, true
	case "takeover":
		w.takeover()
		forgot = true
	}
	w.pass(time.Duration(among(rt, 0, 40, "seconds")) * time.Second)
	w.observe(source)
	return forgot
}

func TestALaterTierIsListedOnlyWhileItIsNeeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := twoTiers(rt, t)
		var enoughSince, known time.Time // as far as this test can know, and as far as the memory goes back
		for range among(rt, 1, 25, "steps") {
			if w.step(rt) {
				known = w.now
			}
			before := w.in.Current
			w.decide()
			below, ready := max(1, w.in.Limits.FailoverBelow), 0
			for _, e := range w.d.Endpoints { // what output guards hold does not count
				if e.Source == "blue" && e.Listed && e.Conditions.Ready && e.Rule != RuleShrink && e.Rule != RuleFloor {
					ready++
				}
			}
			switch {
			case ready < below:
				enoughSince = time.Time{}
			case enoughSince.IsZero():
				enoughSince = w.now
			}
			for _, e := range w.d.Endpoints {
				if e.Source != "green" || e.Rule == RuleFloor || e.Rule == RulePanic {
					continue
				}
				was := lists(before, e.Address)
				switch {
				case e.Listed && !was && ready >= below:
					rt.Fatalf("%s is added beside %d ready ones before it:\n%s", e.Address, ready, reasons(w.d))
				case e.Rule == RuleFailover && was && (ready < below || w.now.Sub(enoughSince) < time.Minute):
					rt.Fatalf(
						"%s leaves, with %d ready ones before it since %s:\n%s",
						e.Address,
						ready,
						w.now.Sub(enoughSince),
						reasons(w.d),
					)
				case e.Rule == RuleFailover && ready < below:
					rt.Fatalf("%s stands by, with %d ready ones before it:\n%s", e.Address, ready, reasons(w.d))
				case e.Listed && ready >= below && w.now.Sub(enoughSince) > 2*time.Minute && w.now.Sub(known) > 2*time.Minute && e.Rule != RuleShrink:
					rt.Fatalf(
						"%s is still listed, with %d ready ones before it since %s:\n%s",
						e.Address,
						ready,
						w.now.Sub(enoughSince),
						reasons(w.d),
					)
				}
			}
		}
	})
}

func TestEndpointsExpireOnlyBesidesReadyOnes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := twoTiers(rt, t)
		w.in.Limits.ExpireAfter = one(rt, "expire after", 0, time.Minute, 3*time.Minute)
		if maybe(rt, "without tiers") {
			w.source("green").Tier = 0
		}
		untrusted := map[string]time.Time{}
		for range among(rt, 1, 25, "steps") {
			w.step(rt)
			w.decide()
			for i := range w.in.Sources {
				s := &w.in.Sources[i]
				if s.lostReason(&w.in, w.now) == "" {
					delete(untrusted, s.Name)
				} else if untrusted[s.Name].IsZero() {
					untrusted[s.Name] = w.now
				}
			}
			for _, e := range w.d.Endpoints {
				if e.Rule != RuleExpiry {
					continue
				}
				after, since := w.in.Limits.ExpireAfter, untrusted[e.Source]
				if after == 0 || since.IsZero() || w.now.Sub(since) < after || w.now.Sub(w.in.LeadingSince) < after {
					rt.Fatalf(
						"%s has expired, untrusted since %s, leading since %s",
						e.Address,
						w.now.Sub(since),
						w.now.Sub(w.in.LeadingSince),
					)
				}
				other := false
				for _, o := range w.d.Endpoints {
					other = other || o.Source != e.Source && o.Listed && o.Conditions.Ready
				}
				if !other {
					rt.Fatalf("%s has expired, and no other source has a ready endpoint:\n%s", e.Address, reasons(w.d))
				}
			}
		}
	})
}

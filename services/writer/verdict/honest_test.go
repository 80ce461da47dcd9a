package verdict

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// truth is a small installation with honest inventories that are late, disconnected or new at times, and a prober
// that may be broken. What the writer knows of it is in the world.
type truth struct {
	*world

	nodes   [5]fact
	broken  bool // the prober's network
	away    bool // the API server of the consuming cluster
	oracles map[string]*oracle
}

// fact is what is true of a node.
type fact struct {
	exists, alive bool // its Node does; its backend answers
	state         State
}

// Invariants I2 and I4, and that deciding again after the write changes nothing, over random histories.
func TestAnHonestInventoryNeverEmptiesAServiceAndNoBudgetIsExceeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &truth{world: newWorld(t, len(truth{}.nodes)), oracles: map[string]*oracle{}}
		w.in.Limits = Limits{
			Probing: rapid.IntRange(0, 3).Draw(rt, "probing") > 0, ListUnready: rapid.Bool().Draw(rt, "list out"),
			ShrinkWindow: rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(rt, "window"),
		}
		for n := range w.nodes {
			w.nodes[n] = fact{exists: true, alive: true, state: Ready}
		}
		if rapid.Bool().Draw(rt, "two sources") {
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.in.Current[3].Source, w.in.Current[4].Source = "green", "green"
			w.hear(0)
			w.hear(1)
		}
		node := func(rt *rapid.T) int { return rapid.IntRange(0, len(w.nodes)-1).Draw(rt, "node") }
		source := func(rt *rapid.T) int { return rapid.IntRange(0, len(w.in.Sources)-1).Draw(rt, "source") }
		rt.Repeat(map[string]func(*rapid.T){
			"": w.check,
			"a backend dies or lives": func(rt *rapid.T) {
				f := &w.nodes[node(rt)]
				f.alive = !f.alive
			},
			"a Node comes or goes": func(rt *rapid.T) {
				f := &w.nodes[node(rt)]
				f.exists = !f.exists
			},
			"a Node changes": func(rt *rapid.T) {
				w.nodes[node(rt)].state = rapid.SampledFrom([]State{Ready, Draining, NotReady, Unknown}).Draw(rt, "state")
			},
			"every Node changes": func(rt *rapid.T) {
				state := rapid.SampledFrom([]State{Ready, Draining, NotReady}).Draw(rt, "state")
				for n := range w.nodes {
					w.nodes[n].state = state
				}
			},
			"every Node goes": func(*rapid.T) {
				for n := range w.nodes {
					w.nodes[n].exists = false
				}
			},
			"the prober breaks or is mended": func(*rapid.T) { w.broken = !w.broken },
			"a node is probed":               func(rt *rapid.T) { w.judge(node(rt)) },
			"all are probed": func(*rapid.T) {
				for n := range w.nodes {
					w.judge(n)
				}
			},
			"a source is heard": func(rt *rapid.T) { w.hear(source(rt)) },
			"a source observes": func(rt *rapid.T) {
				j := source(rt)
				w.hear(j)
				if s := &w.in.Sources[j]; s.Connected {
					s.Observation, s.ObservationAt = s.Observation+1, w.now
				}
			},
			"a link is lost": func(rt *rapid.T) { w.in.Sources[source(rt)].Connected = false },
			"a link is back": func(rt *rapid.T) {
				s := source(rt)
				w.in.Sources[s].Connected, w.in.Sources[s].EverSynced, w.in.Sources[s].MembershipSynced = true, true, true
				w.hear(s)
			},
			"an inventory is degraded": func(rt *rapid.T) { w.in.Sources[source(rt)].MembershipSynced = false },
			"an inventory restarts": func(rt *rapid.T) {
				s := &w.in.Sources[source(rt)]
				s.Epoch, s.Observation, s.ObservationAt = s.Epoch+"'", 1, w.now
			},
			"the API server goes away or is back": func(*rapid.T) { w.away = !w.away },
			"the writer restarts": func(*rapid.T) {
				w.restart()
				w.in.LeadingSince = w.now
				w.in.Probes = nil
			},
			"another writer takes over": func(rt *rapid.T) {
				w.takeover()
				w.broken = rapid.Bool().Draw(rt, "its prober is broken")
				for n := range w.nodes {
					w.judge(n)
				}
			},
			"time passes": func(rt *rapid.T) {
				probes := slices.Clone(w.in.Probes)
				w.pass(time.Duration(rapid.IntRange(1, 8).Draw(rt, "seconds")) * time.Second)
				w.in.Probes = probes
			},
		})
	})
}

// hear reports the truth to the writer, as far as a source may report it.
func (w *truth) hear(source int) {
	s := &w.in.Sources[source]
	if !s.Connected || !s.MembershipSynced {
		return
	}
	s.MembershipSyncedAt = w.now
	for n, f := range w.nodes {
		mine := len(w.in.Sources) == 1 || (n < 3) == (source == 0)
		if mine && f.exists {
			w.report(s.Name, n, f.state)
		} else {
			w.unlist(s.Name, n)
		}
	}
}

// judge updates the probes with the truth, unless the prober is broken.
func (w *truth) judge(n int) {
	passes := w.nodes[n].alive && !w.broken
	switch p, known := w.in.Probe(addr(n), 0); {
	case known && passes == (p.Health == probe.Passing) && p.Health != probe.Pending:
		p.RunLast = w.now
		w.setProbe(p)
	case passes:
		w.probe(n, probe.Passing)
	default:
		w.probe(n, probe.Failing)
	}
}

// check decides, and checks what must hold of a decision.
func (w *truth) check(t *rapid.T) {
	mem, d := Decide(w.mem, w.in, w.now)
	for _, s := range w.in.Sources {
		w.checkBudget(t, s, d)
	}
	if who, protected := w.protected(d); protected && !usable(d) {
		t.Fatalf("nothing is usable, though %v is alive and not called dead:\n%s", who, reasons(d))
	}
	if w.away {
		w.mem = mem
		return
	}
	w.in.Current = held(d)
	var second Decision
	w.mem, second = Decide(mem, w.in, w.now)
	if diff := cmp.Diff(held(d), held(second), byValue); diff != "" {
		t.Fatalf("written, and asked again, the answer differs:\n%s\nfirst:\n%s\nsecond:\n%s", diff, reasons(d), reasons(second))
	}
	var followed []probe.Status
	for _, e := range d.Endpoints { // as the app does: removed addresses are not probed
		if p, known := w.in.Probe(e.Address, 0); known && e.Verdict != Remove {
			followed = append(followed, p)
		}
	}
	w.in.Probes = followed
}

// speaks reports whether a source can send now.
func (w *truth) speaks(s Source, d Decision) bool {
	for _, g := range d.Guards {
		if g.Rule == RuleEmpty && g.Source == s.Name {
			return false
		}
	}
	return s.EverSynced && s.Connected && s.MembershipSynced && w.now.Sub(s.MembershipSyncedAt) <= DefaultMaxStaleness
}

// failed reports whether an endpoint fails its probe, and another one of this target has passed while it failed.
func (w *truth) failed(a netip.Addr) bool {
	f := w.probeOf(a)
	if !w.in.Limits.Probing || f.Health != probe.Failing {
		return false
	}
	for _, p := range w.in.Probes {
		if p.Health == probe.Passing && !p.RunLast.Before(f.RunStart) && p.RunStart.Before(f.RunLast) {
			return true
		}
	}
	return false
}

// protected finds a current endpoint that is in use, or not ready in a panic, that is alive, and that not both
// its source and its probe report dead.
func (w *truth) protected(d Decision) (netip.Addr, bool) {
	for _, h := range w.in.Current {
		if n := int(h.Address.As4()[3]); !h.Conditions.inUse() && !d.Panic || !w.nodes[n].alive {
			continue
		}
		alive, dead := false, false
		for _, s := range w.in.Sources {
			if !w.speaks(s, d) {
				continue
			}
			reported := unlisted
			for _, m := range s.Members {
				if m.Address == h.Address {
					reported = m.State
				}
			}
			switch {
			case reported == unlisted && s.Name != h.sourceName():
			case reported == unlisted, reported == NotReady:
				dead = true
			default:
				alive = true
			}
		}
		switch {
		case w.failed(h.Address):
			dead = true
		case w.in.Limits.Probing && w.probeOf(h.Address).Health == probe.Passing:
			alive = true
		}
		if alive || !dead {
			return h.Address, true
		}
	}
	return netip.Addr{}, false
}

func usable(d Decision) bool {
	for _, e := range d.Endpoints {
		if e.Listed && (e.Conditions.Ready || e.Conditions.Serving && e.Conditions.Terminating) {
			return true
		}
	}
	return false
}

// oracle counts the departures of one source.
type oracle struct {
	leader      time.Time
	opened      time.Time
	budget      int
	gone        map[netip.Addr]bool // that may leave, and are still ready in the slices
	count       int
	epoch       string
	observation uint64
}

func (w *truth) checkBudget(t *rapid.T, s Source, d Decision) {
	if w.in.Limits.ShrinkWindow == 0 {
		return
	}
	o := w.oracles[s.Name]
	if o == nil || !o.leader.Equal(w.in.LeadingSince) {
		o = &oracle{leader: w.in.LeadingSince}
		w.oracles[s.Name] = o
	}
	if w.away { // nobody leaves before it is written; a window begins with the first departure that is
		unwritten := *o
		o = &unwritten
		o.gone = maps.Clone(o.gone)
	}
	after := map[netip.Addr]Endpoint{}
	for _, e := range d.Endpoints {
		after[e.Address] = e
	}
	nothing := true // that could serve
	for _, m := range s.Members {
		nothing = nothing && m.State == NotReady && (!w.in.Limits.Probing || w.probeOf(m.Address).Health != probe.Passing)
	}
	ready, still := 0, map[netip.Addr]bool{}
	var leaving []netip.Addr
	for _, h := range w.in.Current {
		if h.sourceName() != s.Name || !h.Conditions.Ready {
			continue
		}
		ready++
		still[h.Address] = o.gone[h.Address]
		e := after[h.Address]
		if !e.Listed || !e.Conditions.Ready {
			if confirmed := nothing && w.speaks(s, d); !w.failed(h.Address) && !confirmed {
				leaving = append(leaving, h.Address)
			}
		}
	}
	o.gone = still
	if len(leaving) == 0 {
		return
	}
	size := w.in.Limits.ShrinkWindow
	if w.now.Before(w.in.LeadingSince.Add(size)) {
		t.Fatalf("%v left %s in the leader's first window:\n%s", leaving, s.Name, reasons(d))
	}
	if o.opened.IsZero() || !w.now.Before(o.opened.Add(size)) {
		if !o.opened.IsZero() && o.epoch == s.Epoch && o.observation >= s.Observation {
			t.Fatalf("%v left %s without a newer observation:\n%s", leaving, s.Name, reasons(d))
		}
		o.opened, o.budget, o.count, o.gone = w.now, max(1, ready/2), 0, map[netip.Addr]bool{}
	}
	for _, a := range leaving {
		if !o.gone[a] {
			o.gone[a] = true
			o.count++
			o.epoch, o.observation = s.Epoch, s.Observation
		}
	}
	if o.count > o.budget {
		t.Fatalf("%d left %s in one window, more than %d:\n%s", o.count, s.Name, o.budget, reasons(d))
	}
}

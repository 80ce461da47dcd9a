package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// host is what is behind an address.
type host struct {
	powered      bool
	dead, silent int // faults in force
	down         bool
	left         map[uint16]bool // ports that its backend has left
	alive        map[uint16]bool // as the oracle was told
}

// host is that of an address; each has one.
func (w *world) host(a netip.Addr) *host {
	h := w.hosts[a]
	if h == nil {
		h = &host{left: map[uint16]bool{}, alive: map[uint16]bool{}}
		w.hosts[a] = h
	}
	return h
}

func (h *host) answers(port uint16) bool {
	return h.powered && h.dead == 0 && h.silent == 0 && !h.down && port != silentPort && !h.left[port]
}

// alive tells the oracle whether what is behind an address answers.
func (w *world) alive(a netip.Addr) {
	h := w.host(a)
	for _, port := range answering {
		if now := h.answers(port); now != h.alive[port] && (w.script.Setup.Ports || port == answering[0]) {
			h.alive[port] = now
			w.tellf("the backend at %s:%d %s", a, port, map[bool]string{true: "answers", false: "does not answer"}[now])
			w.see(oracle.Backend{Address: a, Port: port, Alive: now})
		}
	}
}

// probes are a writer's prober: the product's schedule, and answers from the world.
type probes struct {
	w        *writer
	rand     *rand.Rand
	schedule *probe.Schedule
	probed   map[probe.Key]struct{}
	wake     *event
}

func newProbes(w *writer) *probes {
	return &probes{w: w, rand: w.chance(fmt.Sprintf("probes %s/%d", w.name, w.lives)), schedule: probe.NewSchedule(512)}
}

// Set replaces what is probed. There is but one target.
func (p *probes) Set(target string, requests []probe.Request) {
	probed, before := make(map[probe.Key]struct{}, len(requests)), p.probed
	for _, r := range requests {
		if r.Key.Spec.Mode == probe.Off {
			continue
		}
		r.Key.Spec = r.Key.Spec.Canonical()
		if _, already := p.probed[r.Key]; !already {
			p.confide(r.Key, probe.Status{})
		}
		probed[r.Key] = struct{}{}
	}
	for k := range before { // what was found at a port that is not probed any more is forgotten
		if _, is := probed[k]; !is && p.w.script.Setup.Ports {
			p.confide(k, probe.Status{})
		}
	}
	p.probed = probed
	p.schedule.SetTarget(target, requests, time.Now())
	// Not at once: the decision that asks for it is still under way.
	p.wake.cancel()
	p.wake = p.w.at(time.Now(), p.run)
}

// Status is the present word on a key.
func (p *probes) Statuses(requests []probe.Request) (all []probe.Status) {
	for i := range requests {
		all = append(all, p.schedule.Status(requests[i].Key))
	}
	return all
}

// TakeChanged returns nothing: the writer is poked.
func (p *probes) TakeChanged() map[string]struct{} { return nil }

// Changed delivers nothing, for the same reason.
func (p *probes) Changed() <-chan struct{} { return nil }

// run starts what is due. What answers, or refuses, does so at once: a probe that takes no time
// makes no event.
func (p *probes) run() {
	for _, k := range p.schedule.Expire(time.Now()) {
		p.w.tellf("%s cannot probe %s: its status has expired", p.w.name, k.Address)
		p.confide(k, p.schedule.Status(k))
		p.w.poke()
	}
	for {
		now := time.Now()
		a, due := p.schedule.Start(now, p.rand.Float64())
		if !due {
			break
		}
		h := p.w.host(a.Key.Address)
		switch blind := p.w.blind+p.w.cutOff > 0; {
		case !blind && h.answers(a.Key.Port):
			p.finish(a, probe.Pass, "")
		case !blind && h.powered && h.silent == 0:
			p.finish(a, probe.Fail, "connection refused")
		default:
			p.w.at(now.Add(probe.DefaultTimeout), func() {
				p.finish(a, probe.Fail, "timeout")
				p.run()
			})
		}
	}
	p.wake.cancel()
	if at, some := p.schedule.Wake(); some {
		p.wake = p.w.at(at, p.run)
	}
}

func (p *probes) finish(a probe.Attempt, outcome probe.Result, detail string) {
	if p.schedule.Finish(a, outcome, detail, time.Now()) {
		p.w.tellf("%s probes %s:%d: %s", p.w.name, a.Key.Address, a.Key.Port, p.schedule.Status(a.Key).Health)
		p.w.poke()
	}
	if _, still := p.probed[a.Key]; still {
		p.confide(a.Key, p.schedule.Status(a.Key))
	}
}

// confide tells the oracle a word.
func (p *probes) confide(k probe.Key, word probe.Status) {
	verdicts := [...]oracle.Verdict{probe.Pending: oracle.Unjudged, probe.Passing: oracle.Passing, probe.Failing: oracle.Failing}
	p.w.see(oracle.Probed{
		Writer: p.w.name, Probe: probeName(k.Spec), Address: k.Address, Port: k.Port, Verdict: verdicts[word.Health],
		FailingSince: word.RunStart, LastPassed: word.LastPassed,
	})
}

// probeName names a way of probing; empty: there is none.
func probeName(s probe.Spec) string {
	if s.Mode == probe.Off {
		return ""
	}
	s = s.Canonical()
	return s.Mode.String() + s.Path + " " + s.Interval.String()
}

package search

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// account is our own count of who left a source on its word alone, in tumbling windows.
type account struct {
	opened      time.Time
	budget      int
	left        int
	gone        [3]bool // let go, and still held as ready
	life        int
	observation uint64
}

// judge holds a decision against the invariants.
func (w *writerWorld) judge(in verdict.Input, d verdict.Decision) error {
	if !d.Wake.IsZero() && !d.Wake.After(w.now) {
		return fmt.Errorf("livelock: asked to be asked again at %s, which is no later than now", d.Wake.Format(time.TimeOnly))
	}
	if !d.Write {
		return nil
	}
	for _, e := range listOf(d) {
		if n := w.number(e.Address); n == nobody || w.outside(n) || !w.ever[n] {
			return fmt.Errorf("%s is listed (I1), which no source has told or the fence refuses", e.Address)
		}
	}
	for _, e := range listOf(d) {
		n, lists := w.number(e.Address), func(h verdict.CurrentEndpoint) bool { return h.Address == e.Address }
		if w.setup.Probing && w.probes[n].Health != probe.Passing && !slices.ContainsFunc(in.Current, lists) && word(e) != "out" &&
			!w.panics(in) {
			return fmt.Errorf("node-%d is listed as %s, which is new and has not passed a probe", n, word(e))
		}
	}
	for _, e := range listOf(d) {
		n := w.number(e.Address)
		if w.tier(w.of(n)) > 0 &&
			!slices.ContainsFunc(in.Current, func(h verdict.CurrentEndpoint) bool { return h.Address == e.Address }) &&
			w.serves(0, d) {
			return fmt.Errorf("node-%d of the source that stands by comes, though the first source serves", n)
		}
	}
	if n, protected := w.protected(in, d); protected && !usable(d) {
		return fmt.Errorf("nothing is usable (I2), though node-%d answers or not every witness calls it dead", n)
	}
	for s := range w.setup.Sources {
		if err := w.count(s, d); err != nil {
			return err
		}
	}
	return nil
}

// serves reports whether a source is trusted and reports READY for a node that passes its probe and may be listed.
func (w *writerWorld) serves(s int, d verdict.Decision) bool {
	for n := range w.setup.Nodes {
		passes := !w.setup.Probing || w.probes[n].Health == probe.Passing
		if w.of(n) == s && w.sources[s].words[n] == verdict.Ready && passes && !w.outside(n) && w.speaks(s, d) {
			return true
		}
	}
	return false
}

// readyOf reports whether a source has a ready endpoint.
func readyOf(w *writerWorld, s int, listed []planner.Endpoint) bool {
	return slices.ContainsFunc(listed, func(e planner.Endpoint) bool { return e.Ready && w.of(w.number(e.Address)) == s })
}

// bySetting reports whether a node may leave by failover or expiry, which shrink does not count. The other source must
// have a ready endpoint. For failover it must have had one for a minute. For expiry the node's own source must not be
// trusted, and the leader must not be new.
func (w *writerWorld) bySetting(n int, d verdict.Decision) bool {
	s := w.of(n)
	if w.setup.Sources < 2 || !readyOf(w, 1-s, listOf(d)) {
		return false
	}
	failsBack := w.tier(s) > 0 && !w.serving.IsZero() && !w.now.Before(w.serving.Add(failback))
	expires := w.setup.Expiry && !w.speaks(s, d) && !w.now.Before(w.leading.Add(expireAfter))
	for _, e := range d.Endpoints {
		if e.Address == w.address(n) {
			return e.Rule == verdict.RuleFailover && failsBack || e.Rule == verdict.RuleExpiry && expires
		}
	}
	return false
}

func usable(d verdict.Decision) bool {
	for _, e := range listOf(d) {
		if e.Ready || e.Serving && e.Terminating {
			return true
		}
	}
	return false
}

// speaks says whether a source's word counts at present.
func (w *writerWorld) speaks(s int, d verdict.Decision) bool {
	for _, g := range d.Guards {
		if g.Rule == verdict.RuleEmpty && g.Source == sourceName(s) {
			return false
		}
	}
	from := &w.sources[s]
	return from.heard && from.alive && w.now.Sub(from.wordAt) <= maxStaleness
}

// panics says that one fails of what the slices list, one is of use, and no probe passes of what may be listed.
func (w *writerWorld) panics(in verdict.Input) bool {
	fails, use := false, false
	for _, h := range in.Current {
		fails = fails || w.probes[w.number(h.Address)].Health == probe.Failing
		use = use || h.Conditions != verdict.Conditions{}
	}
	for n := range w.setup.Nodes {
		if w.probes[n].Health == probe.Passing && !w.outside(n) {
			return false
		}
	}
	return w.setup.Probing && fails && use
}

// failed says that a node fails its probe, and that this counts: another one has passed while it failed.
func (w *writerWorld) failed(n int) bool {
	f := &w.probes[n]
	if !w.setup.Probing || f.Health != probe.Failing {
		return false
	}
	for other := range w.setup.Nodes {
		p := &w.probes[other]
		apart := p.RunLast.Before(f.RunStart) || !f.RunLast.After(p.RunStart)
		if p.Health == probe.Passing && !w.outside(other) && !apart {
			return true
		}
	}
	return false
}

// protected finds a node that is held and of use, and that not every witness who can speak calls dead. What
// failures have put out is protected, too, while nothing passes.
func (w *writerWorld) protected(in verdict.Input, d verdict.Decision) (node int, yes bool) {
	for _, h := range in.Current {
		n := w.number(h.Address)
		if h.Conditions == (verdict.Conditions{}) && !w.panics(in) {
			continue
		}
		alive, dead := false, false
		if s := w.of(n); w.speaks(s, d) {
			state := w.sources[s].words[n]
			dead = state == unlisted || state == verdict.NotReady
			alive = !dead
		}
		switch {
		case w.failed(n):
			continue // it may be dead indeed
		case w.setup.Probing && w.probes[n].Health == probe.Passing:
			alive = true
		}
		if alive || !dead {
			return n, true
		}
	}
	return 0, false
}

// count books who leaves a source now, and says if a window is exceeded (I4).
func (w *writerWorld) count(s int, d verdict.Decision) error {
	now := listOf(d)
	ready, leaving := 0, []int(nil)
	a := &w.accounts[s]
	var still [3]bool
	nothing := w.empty(s)
	for _, e := range w.listed {
		n := w.number(e.Address)
		if e.Group != sourceName(s) || !e.Ready {
			continue
		}
		ready++
		still[n] = a.gone[n]
		if stays(now, e) {
			continue
		}
		if confirmed := nothing && w.speaks(s, d); !w.failed(n) && !confirmed && !w.bySetting(n, d) {
			leaving = append(leaving, n)
		}
	}
	a.gone = still
	if len(leaving) == 0 {
		return nil
	}
	from := &w.sources[s]
	if w.now.Before(w.leading.Add(shrinkWindow)) {
		return fmt.Errorf("a guard is exceeded (I4): node-%d leaves in the leader's first window", leaving[0])
	}
	waiting, leaves := 0, false // let go before, which has not been written yet
	for n, gone := range a.gone {
		if gone {
			waiting, leaves = waiting+1, leaves || slices.Contains(leaving, n)
		}
	}
	over := !w.now.Before(a.opened.Add(shrinkWindow))
	if !over && leaves && waiting == a.left { // a window begins with the first that leaves
		a.opened, a.life, a.observation = w.now, from.life, from.observation
	}
	if a.opened.IsZero() || over {
		if !a.opened.IsZero() && a.life == from.life && a.observation >= from.observation {
			return fmt.Errorf("a guard is exceeded (I4): node-%d leaves without a newer observation", leaving[0])
		}
		*a = account{opened: w.now, budget: max(1, ready/2)}
	}
	for _, n := range leaving {
		if !a.gone[n] {
			a.gone[n], a.life, a.observation = true, from.life, from.observation
			a.left++
		}
	}
	if a.left > a.budget {
		return fmt.Errorf("a guard is exceeded (I4): %d nodes leave in one window, %d may", a.left, a.budget)
	}
	return nil
}

func stays(now []planner.Endpoint, e planner.Endpoint) bool {
	for _, is := range now {
		if is.Address == e.Address && is.Ready {
			return true
		}
	}
	return false
}

// empty says whether a source has nothing that could serve: of what is not ready, only what passes its probe.
func (w *writerWorld) empty(s int) bool {
	for n, state := range w.sources[s].words[:w.setup.Nodes] {
		could := state != verdict.NotReady || w.setup.Probing && w.probes[n].Health == probe.Passing
		if state != unlisted && !w.outside(n) && could {
			return false
		}
	}
	return true
}

// Check lets everything stay as it is but the time, which passes: the API server is back, links that
// are up bring heartbeats, and inventories observe once a minute. Then there must be an end.
func (w *writerWorld) Check() error {
	rest := *w
	return rest.settle()
}

// settle goes on until nothing happens any more. On the way no endpoint becomes again what it has ceased to be, unless a
// source's emptiness was confirmed in between. That is news from the source, not the passing of time: what another source
// has drained while the unconfirmed one held a ready endpoint is the last that is left after it, and the floor makes it
// ready again. Each source is confirmed once, so this excuses no livelock.
func (w *writerWorld) settle() error {
	w.away = false
	flaps := flapChecker{confirming: w.confirming()}
	quiet, listed := 0, ""
	for range rounds {
		if err := w.react(); err != nil {
			return fmt.Errorf("at rest: %w", err)
		}
		if err := flaps.check(w); err != nil {
			return err
		}
		if now := w.picture(w.listed); now != listed {
			listed, quiet = now, 0
		}
		switch wake := w.decision.Wake; {
		case !wake.IsZero() && !w.routine(wake):
			w.pass(wake.Sub(w.now))
		case quiet == calm:
			return w.conclude()
		default: // at rest every inventory looks once a minute
			quiet++
			w.pass(time.Minute)
			w.observeAll()
		}
	}
	return fmt.Errorf("livelock: nothing changes but the time, and after %d wake-ups there is no end", rounds)
}

// flapChecker remembers the states that each endpoint has had.
type flapChecker struct {
	seen       [3]map[string]bool
	last       [3]string
	confirming [2]bool
}

// check returns an error if an endpoint has returned to a state that it had left. A change in which
// sources are being confirmed as empty is a report, so it clears the memory.
func (f *flapChecker) check(w *writerWorld) error {
	if now := w.confirming(); now != f.confirming {
		f.confirming, f.seen = now, [3]map[string]bool{}
	}
	for n := range w.setup.Nodes {
		now := "absent"
		for _, e := range w.listed {
			if e.Address == w.address(n) {
				now = word(e)
			}
		}
		if now != f.last[n] && f.seen[n][now] {
			return fmt.Errorf("flapping: nothing changes but the time, and node-%d becomes %s again", n, now)
		}
		if f.seen[n] == nil {
			f.seen[n] = map[string]bool{}
		}
		f.seen[n][now], f.last[n] = true, now
	}
	return nil
}

// confirming says which sources are being seen empty, and are not believed yet.
func (w *writerWorld) confirming() (which [2]bool) {
	for _, g := range w.decision.Guards {
		for s := range w.setup.Sources {
			which[s] = which[s] || g.Rule == verdict.RuleEmpty && g.Source == sourceName(s)
		}
	}
	return which
}

// calm is for how many minutes nothing must have been written at the end: more looks than an empty source
// needs to be believed.
const calm = 3

func (w *writerWorld) observeAll() {
	for s := range w.setup.Sources {
		w.observe(s)
	}
}

// routine says whether a wake-up is the one that looks whether a source that was alive still is.
func (w *writerWorld) routine(wake time.Time) bool {
	for s := range w.setup.Sources {
		if w.sources[s].alive && wake.After(w.sources[s].wordAt.Add(maxStaleness)) {
			return true
		}
	}
	return false
}

// conclude holds what is left at the end against what decision-rules.md makes of the truth (I5, in the simple
// case: every source speaks, and something of it that is READY passes).
func (w *writerWorld) conclude() error {
	serving := false
	for s := range w.setup.Sources {
		if !w.speaks(s, w.decision) {
			return nil
		}
	}
	if !w.decision.Write {
		return nil
	}
	for n := range w.setup.Nodes {
		passes := !w.setup.Probing || w.probes[n].Health == probe.Passing
		serving = serving || w.sources[w.of(n)].words[n] == verdict.Ready && passes && !w.outside(n)
	}
	if !serving {
		return nil
	}
	firstServes := readyOf(w, 0, w.listed)
	for n := range w.setup.Nodes {
		is := "absent"
		for _, e := range w.listed {
			if e.Address == w.address(n) {
				is = word(e)
			}
		}
		health := w.probes[n].Health
		if !w.setup.Probing {
			health = probe.Passing
		}
		ok := true
		switch state := w.sources[w.of(n)].words[n]; {
		case w.outside(n), state == unlisted, firstServes && w.tier(w.of(n)) > 0:
			ok = is == "absent"
		case health == probe.Pending:
		case health == probe.Failing:
			ok = is == "out" || is == "absent"
		case state == verdict.Draining:
			ok = is == "drain"
		case state == verdict.NotReady && !w.setup.Probing:
			ok = is == "out" || is == "absent"
		default:
			ok = is == "ready"
		}
		if !ok {
			return fmt.Errorf("divergence (I5): at the end node-%d is %s, which its source and its probe do not say", n, is)
		}
	}
	return nil
}

package search

import (
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// writerStep is one thing that can happen to a writer.
type writerStep struct {
	does  func(w *writerWorld, s writerStep)
	n     int // a node, or a source
	state verdict.State
	says  string
}

var stateWords = map[verdict.State]string{
	verdict.Ready:    "READY",
	verdict.Draining: "DRAINING",
	verdict.NotReady: "NOT_READY",
	verdict.Unknown:  "in a state we do not know",
	unlisted:         "absent",
}

func (w *writerWorld) steps() (all []writerStep) {
	add := func(says string, n int, state verdict.State, does func(w *writerWorld, s writerStep)) {
		all = append(all, writerStep{does, n, state, says})
	}
	every := map[verdict.State]bool{}
	for n := range w.setup.Nodes {
		for _, state := range []verdict.State{verdict.Ready, verdict.Draining, verdict.NotReady, unlisted} {
			if w.sources[w.of(n)].words[n] != state {
				add("node-%d is %s", n, state, (*writerWorld).changes)
				every[state] = true
			}
		}
		if w.setup.Probing {
			if w.probes[n].Health != probe.Passing {
				add("the probe of node-%d passes", n, 0, (*writerWorld).passes)
			}
			if w.probes[n].Health != probe.Failing {
				add("the probe of node-%d fails", n, 0, (*writerWorld).fails)
			}
		}
	}
	for _, state := range []verdict.State{verdict.Draining, verdict.NotReady, unlisted} {
		if every[state] {
			add("every node is %s at once", 0, state, (*writerWorld).allChange)
		}
	}
	if w.setup.Probing {
		add("every probe fails at once", 0, 0, (*writerWorld).allFail)
	}
	for s := range w.setup.Sources {
		if w.sources[s].alive {
			add("the link of source %d is lost", s, 0, (*writerWorld).loses)
			add("source %d completes a look", s, 0, (*writerWorld).looks)
		} else {
			add("the link of source %d is back", s, 0, (*writerWorld).regains)
		}
		add("the inventory of source %d starts again", s, 0, (*writerWorld).renews)
	}
	add("5 s pass", 0, 0, func(w *writerWorld, _ writerStep) { w.pass(tick) })
	add("the standby takes over", 0, 0, (*writerWorld).takesOver)
	add("the writer starts again", 0, 0, (*writerWorld).restarts)
	if w.away {
		add("the API server is back", 0, 0, func(w *writerWorld, _ writerStep) { w.away = false })
	} else {
		add("the API server is away", 0, 0, func(w *writerWorld, _ writerStep) { w.away = true })
	}
	return all
}

func (w *writerWorld) changes(s writerStep) { w.tell(s.n, s.state) }

func (w *writerWorld) allChange(s writerStep) {
	for n := range w.setup.Nodes {
		w.tell(n, s.state)
	}
}

// Each result of a probe comes a moment after whatever was before, so that runs of results may overlap or not.
const probeGap = time.Millisecond

func (w *writerWorld) passes(s writerStep) {
	w.now = w.now.Add(probeGap)
	w.probe(s.n, probe.Passing)
}

func (w *writerWorld) fails(s writerStep) {
	w.now = w.now.Add(probeGap)
	w.probe(s.n, probe.Failing)
}

func (w *writerWorld) allFail(writerStep) {
	w.now = w.now.Add(probeGap)
	for n := range w.setup.Nodes {
		if w.probes[n].Health != probe.Failing {
			w.probe(n, probe.Failing)
		}
	}
}

func (w *writerWorld) loses(s writerStep) { w.sources[s.n].alive = false }

func (w *writerWorld) regains(s writerStep) {
	from := &w.sources[s.n]
	from.alive, from.heard, from.wordAt = true, true, w.now
	for n := range w.setup.Nodes {
		if w.of(n) == s.n && from.words[n] != unlisted {
			w.ever[n] = true
		}
	}
}

func (w *writerWorld) looks(s writerStep) { w.observe(s.n) }

func (w *writerWorld) renews(s writerStep) {
	from := &w.sources[s.n]
	from.life, from.observation, from.observedAt = from.life+1, 1, w.now
}

// takesOver is another writer, warm, whose memory is its own.
func (w *writerWorld) takesOver(writerStep) {
	w.memory, w.leading = verdict.Memory{}, w.now
	w.accounts = [2]account{}
}

// restarts is this writer anew: it knows nothing but the slices.
func (w *writerWorld) restarts(writerStep) {
	w.takesOver(writerStep{})
	for s := range w.setup.Sources {
		w.sources[s].heard, w.sources[s].alive = false, false
	}
	w.probes = [3]probe.Status{}
}

// Steps and the others are those of a World.
func (w *writerWorld) Steps() int { return len(w.steps()) }

// Name says what a step is.
func (w *writerWorld) Name(step int) string {
	s := w.steps()[step]
	switch strings.Count(s.says, "%") {
	case 0:
		return s.says
	case 2:
		return fmt.Sprintf(s.says, s.n, stateWords[s.state])
	}
	if strings.Contains(s.says, "%s") {
		return fmt.Sprintf(s.says, stateWords[s.state])
	}
	return fmt.Sprintf(s.says, s.n)
}

// Take lets it happen.
func (w *writerWorld) Take(step int) (World, error) {
	s := w.steps()[step]
	to := *w
	s.does(&to, s)
	return &to, to.react()
}

package control

import (
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// problem is one thing that keeps a target from being right. A target without any is served,
// written as decided, has an endpoint that is ready, and no guard acts.
type problem string

// The problems, as metrics label them.
const (
	problemRefused   problem = "rejected"           // the Service cannot be served as it is
	problemPaused    problem = "paused"             // somebody acts by hand
	problemForbidden problem = "writes_blocked"     // nothing at all may be written: a guard says why
	problemUnwritten problem = "out_of_sync"        // the slices are not as is decided, or a write fails
	problemNoneReady problem = "no_ready_endpoints" // the decision lists no endpoint that is ready
	problemHeldBack  problem = "guard_active"       // a guard acts
)

var problems = []problem{
	problemRefused, problemPaused, problemForbidden, problemUnwritten, problemNoneReady, problemHeldBack,
}

// health is whether a target is right.
type health struct {
	wrong map[problem]bool // what is wrong; empty: it is right
	since time.Time        // since when anything is; zero: nothing is
}

// of takes in what is wrong now.
func (h *health) of(now time.Time, wrong map[problem]bool) health {
	switch {
	case len(wrong) == 0:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = now
	}
	h.wrong = wrong
	return *h
}

// ailments are the problems of a target. Failed is how many writes failed in a row.
func ailments(view targets.Resolution, in verdict.Input, d verdict.Decision, failed int) map[problem]bool {
	wrong := map[problem]bool{}
	if view.Paused {
		wrong[problemPaused] = true
	}
	if view.Rejection != nil {
		wrong[problemRefused] = true
		return wrong // nothing is decided
	}
	if view.OptedOut {
		return wrong
	}
	if len(d.Guards) > 0 {
		wrong[problemHeldBack] = true
	}
	if !d.Write {
		wrong[problemForbidden] = true
	}
	if !view.Paused && (failed > 0 || d.Write && !asDecided(in.Current, d.Endpoints)) {
		wrong[problemUnwritten] = true
	}
	ready := false
	for _, e := range d.Endpoints {
		ready = ready || e.Listed && e.Conditions.Ready
	}
	if !ready {
		wrong[problemNoneReady] = true
	}
	return wrong
}

// asDecided reports whether what the slices list is what the decision lists. Both are sorted by
// address. Ports are not compared: a write that would put them right and fails is a problem too.
func asDecided(held []verdict.CurrentEndpoint, decided []verdict.Endpoint) bool {
	n := 0
	for _, e := range decided {
		if !e.Listed {
			continue
		}
		if n == len(held) {
			return false
		}
		if h := held[n]; h.Address != e.Address || h.Conditions != e.Conditions || h.Zone != e.Zone {
			return false
		}
		n++
	}
	return n == len(held)
}

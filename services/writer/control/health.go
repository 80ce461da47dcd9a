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
	problemRejected         problem = "rejected"           // the Service cannot be served as it is
	problemPaused           problem = "paused"             // a person acts by hand
	problemWritesBlocked    problem = "writes_blocked"     // nothing at all may be written: a guard says why
	problemOutOfSync        problem = "out_of_sync"        // the slices are not as is decided, or a write fails
	problemNoReadyEndpoints problem = "no_ready_endpoints" // the decision lists no endpoint that is ready
	problemGuardActive      problem = "guard_active"       // a guard acts
)

var problems = []problem{
	problemRejected, problemPaused, problemWritesBlocked, problemOutOfSync, problemNoReadyEndpoints, problemGuardActive,
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

// findProblems returns the problems of a target. failed is how many writes failed in a row.
func findProblems(view targets.Resolution, in verdict.Input, d verdict.Decision, failed int) map[problem]bool {
	wrong := map[problem]bool{}
	if view.Paused {
		wrong[problemPaused] = true
	}
	if view.Rejection != nil {
		wrong[problemRejected] = true
		return wrong // nothing is decided
	}
	if view.OptedOut {
		return wrong
	}
	if len(d.Guards) > 0 {
		wrong[problemGuardActive] = true
	}
	if !d.Write {
		wrong[problemWritesBlocked] = true
	}
	if !view.Paused && (failed > 0 || d.Write && !isInSync(in.Current, d.Endpoints)) {
		wrong[problemOutOfSync] = true
	}
	ready := false
	for _, e := range d.Endpoints {
		ready = ready || e.Listed && e.Conditions.Ready
	}
	if !ready {
		wrong[problemNoReadyEndpoints] = true
	}
	return wrong
}

// isInSync reports whether the slices list what the decision lists. Both are sorted by
// address. Ports are not compared: a write that would put them right and fails is a problem too.
func isInSync(held []verdict.CurrentEndpoint, decided []verdict.Endpoint) bool {
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

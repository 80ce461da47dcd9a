// Package health decides whether a target is healthy, and keeps the metrics that say so, why not, since when and what
// was decided.
package health

import (
	"slices"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// problem is a reason why a target is not healthy. A healthy one is managed, written as decided and has an endpoint
// that is ready, and no guard is active.
type problem string

// The problems, as metrics label them.
const (
	problemRejected         problem = "rejected"           // the Service cannot be managed as it is
	problemPaused           problem = "paused"             // a person acts by hand
	problemWritesBlocked    problem = "writes_blocked"     // a guard blocks all writes
	problemOutOfSync        problem = "out_of_sync"        // the slices differ from the decision, or a write fails
	problemNoReadyEndpoints problem = "no_ready_endpoints" // the decision lists no endpoint that is ready
	problemGuardActive      problem = "guard_active"       // a guard holds a change
)

var allProblems = []problem{
	problemRejected, problemPaused, problemWritesBlocked, problemOutOfSync, problemNoReadyEndpoints, problemGuardActive,
}

// findProblems returns the problems of a target.
func findProblems(view targets.Resolution, input verdict.Input, d verdict.Decision, writeFails bool) map[problem]bool {
	problems := map[problem]bool{}
	if view.Paused {
		problems[problemPaused] = true
	}
	if view.Rejection != nil {
		problems[problemRejected] = true
		return problems
	}
	if view.OptedOut {
		return problems
	}
	if len(d.Guards) > 0 {
		problems[problemGuardActive] = true
	}
	if !d.Write {
		problems[problemWritesBlocked] = true
	}
	if !view.Paused && (writeFails || d.Write && !isInSync(input.Current, d.Endpoints)) {
		problems[problemOutOfSync] = true
	}
	if !slices.ContainsFunc(d.Endpoints, func(e verdict.Endpoint) bool { return e.Listed && e.Conditions.Ready }) {
		problems[problemNoReadyEndpoints] = true
	}
	return problems
}

// isInSync reports whether the slices list what the decision lists. Both are sorted by address. Ports are not
// compared: a write that would repair them and fails is a problem too.
func isInSync(current []verdict.CurrentEndpoint, decided []verdict.Endpoint) bool {
	for i := range decided {
		e := &decided[i]
		if !e.Listed {
			continue
		}
		if len(current) == 0 || current[0].Address != e.Address || current[0].Conditions != e.Conditions || current[0].Zone != e.Zone ||
			current[0].Hostname != e.Hostname {
			return false
		}
		current = current[1:]
	}
	return len(current) == 0
}

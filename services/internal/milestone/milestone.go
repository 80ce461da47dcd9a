// Package milestone notes in the runtime's execution trace how far a change has come, so that
// go tool trace, and the bench, can tell where its time goes, across both halves. It promises to
// cost nothing to speak of while nobody takes a trace from /debug/pprof/trace, and refuses to say
// anything of the change itself: a trace must be fit to be passed on.
package milestone

import (
	"context"
	"runtime/trace"
)

// Milestone is a point that each change passes on its way.
type Milestone string

// The milestones, in the order of the way.
const (
	Told     Milestone = "told"     // the watch of the secured cluster has told it
	Stored   Milestone = "stored"   // it is in the feed
	Sent     Milestone = "sent"     // a subscriber was sent it
	Received Milestone = "received" // its message has come
	Viewed   Milestone = "viewed"   // it is checked, and in the view
	Decided  Milestone = "decided"  // there is a verdict on it
	Writing  Milestone = "writing"  // the write is planned, and being sent
	Written  Milestone = "written"  // the write was answered
)

// category is that of all milestones in the trace.
const category = "slicefeed"

// Pass notes that a change passes a milestone. It may be joined with others on its way, and has no
// task or context of its own.
//
//nolint:contextcheck,nolintlint // callers that have a context need not pass it; the second linter sees no callers
func Pass(m Milestone) { trace.Log(context.Background(), category, string(m)) }

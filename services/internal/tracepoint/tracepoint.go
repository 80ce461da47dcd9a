// Package tracepoint marks how far a change has come in the execution trace of the runtime, so that
// go tool trace and the bench can show where its time goes, across both components. It guarantees
// that a point costs next to nothing while no trace is taken from /debug/pprof/trace. It records
// nothing about the change itself, so that a trace can be shared.
package tracepoint

import (
	"context"
	"runtime/trace"
)

// Point is a step that each change takes on its way from the watch to the slice.
type Point string

// The points, in the order in which a change reaches them.
const (
	Reported Point = "reported" // the watch of the secured cluster delivered it
	Stored   Point = "stored"   // it is in the feed
	Sent     Point = "sent"     // it was sent to a subscriber
	Received Point = "received" // the writer received its message
	Applied  Point = "applied"  // the message is checked and applied to the writer's set
	Decided  Point = "decided"  // it has a verdict
	Writing  Point = "writing"  // the write is planned and about to be sent
	Written  Point = "written"  // the API server answered the write
)

// category is the category of all points in a trace.
const category = "slicefeed"

// Log records that a change reached a point. A change may be merged with others on its way, so that it
// has no task or context of its own.
//
//nolint:contextcheck,nolintlint // callers that have a context need not pass it; the second linter sees no callers
func Log(p Point) { trace.Log(context.Background(), category, string(p)) }

// Package tracepoint names the steps that a change takes from the source to the EndpointSlice. A step
// is marked in the execution trace of the runtime, where go tool trace and the bench of propagation
// show its time, and it is the message of the Debug lines that show what changed (docs/operate/logs.md).
//
// It guarantees that a step costs next to nothing while neither a trace is taken from
// /debug/pprof/trace nor the level is debug, and that a trace has no content of the change, so that
// it can be shared. It does not connect the steps: a change may be merged with others on its way, and
// is followed by the node, revision, address and service in the lines.
package tracepoint

import (
	"context"
	"log/slog"
	"runtime/trace"
)

// Point is a step of a change.
type Point string

// The points, in the order in which a change reaches them. Those without a line only mark the trace.
const (
	WatchEvent     Point = "watch event"     // a watch of the secured cluster delivered an object; no line
	UpdateReceived Point = "update received" // the source delivered a change of a node
	NodeResolved   Point = "node resolved"   // a node and its addresses entered, changed in or left the published set
	DeltaPublished Point = "delta published" // a set changed
	DeltaSent      Point = "delta sent"      // it was sent to a subscriber; no line
	DeltaReceived  Point = "delta received"  // the writer received a message; no line
	DeltaApplied   Point = "delta applied"   // the message was checked and applied to the writer's set
	Decision       Point = "decision"        // there is a verdict about an address
	Plan           Point = "plan"            // the writes are planned, and the first is about to be sent
	Write          Point = "write"           // the API server responded to a write
)

// category is the category of all points in a trace.
const category = "slicefeed"

// Mark records in the trace that a change reached a point. A change may be merged with others on its
// way, so that it has no task or context of its own.
//
//nolint:contextcheck,nolintlint // callers that have a context need not pass it; the second linter sees no callers
func Mark(p Point) { trace.Log(context.Background(), category, string(p)) }

// Enabled reports whether Log writes lines. Check it before building attributes that allocate.
//
//nolint:contextcheck,nolintlint // as for Mark
func Enabled(log *slog.Logger) bool { return log.Enabled(context.Background(), slog.LevelDebug) }

// Log writes the Debug line of a point. Its keys are listed in docs/operate/logs.md.
//
//nolint:contextcheck,nolintlint // as for Mark
func Log(log *slog.Logger, p Point, attrs ...slog.Attr) {
	log.LogAttrs(context.Background(), slog.LevelDebug, string(p), attrs...)
}

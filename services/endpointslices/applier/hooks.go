package applier

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// Hooks receive what an Applier does, for metrics, Events and status pages. Each may be nil. They run within Apply,
// which waits for them, and must not call the Applier.
type Hooks struct {
	// Planned receives a plan that is not empty, before its first request.
	Planned func(service corev1.ObjectReference, plan planner.Plan)
	// Wrote receives each request and its result.
	Wrote func(Write)
	// Repaired receives how many slices were repaired that other clients had modified, deleted or added.
	Repaired func(service corev1.ObjectReference, slices int)
	// RepairDelayed receives each repair that waits because another client keeps modifying the slices, once.
	RepairDelayed func(service corev1.ObjectReference, delay RepairDelay)
	// Rejected receives the first write that the API server rejects, until InSync; the next one too if it returns false.
	Rejected func(service corev1.ObjectReference, write Write) bool
	// InSync is called when nothing is left to write after a rejection at this time.
	InSync func(service corev1.ObjectReference, rejectedAt time.Time)
}

// Write is a request and its result.
type Write struct {
	Service   corev1.ObjectReference
	Slice     string
	Verb      Verb
	Result    Result
	Err       error                      // of the request; a delete of what is gone has one and ResultOK
	Took      time.Duration              // until the response, or until there was none
	Old, New  *discoveryv1.EndpointSlice // as observed before, nil: it did not exist; as sent, nil: deleted
	First     bool                       // the Service had no slice of this writer before
	ReasonFor func(netip.Addr) string    // of the Order
}

// RepairDelay is a repair that waits.
type RepairDelay struct {
	Slice  string
	Editor string // who modified it, for people: the field manager, if it is known
	Budget int    // how many repairs a minute do not wait
	At     time.Time
}

// report calls a hook unless it is nil.
func report[T any](hook func(corev1.ObjectReference, T), service corev1.ObjectReference, what T) {
	if hook != nil {
		hook(service, what)
	}
}

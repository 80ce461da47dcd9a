package reconciler

import (
	"net/netip"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/writer/propagation"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// order is what to write for a target.
type order struct {
	applier.Order

	term   int                // in which it was given
	causes propagation.Causes // the oldest of each kind
}

// orderOf returns what follows from a decision; nil: nothing may be written.
func (r *Reconciler) orderOf(view targets.Resolution, decision verdict.Decision, current []*discoveryv1.EndpointSlice) *order {
	if !decision.Write || view.Settings.Paused {
		return nil
	}
	return &order{Order: applier.Order{
		Service: view.Reference(), Desired: r.desiredOf(view, decision), Current: current, Adjust: view.State == targets.ProbesOnly,
		ReasonFor: func(address netip.Addr) string { return why(decision.Endpoints, address) },
	}}
}

// withdrawal returns the deletion of the owned slices of a target that is leaving, else nil.
func withdrawal(view targets.Resolution, current []*discoveryv1.EndpointSlice) *order {
	if view.State != targets.Leaving || view.Settings.Paused {
		return nil
	}
	o := &order{Order: applier.Order{Service: view.Reference(), Desired: view.Desired(), Current: current, Withdraw: true}}
	if view.Successor != "" {
		o.Condition = func(existing []*discoveryv1.EndpointSlice) bool {
			return view.IsReplaced(view.Successor, existing)
		}
	}
	return o
}

// slot has the newest order of a target until Write takes it.
type slot struct {
	mu        sync.Mutex
	order     *order
	unwritten propagation.Causes // of earlier orders that were not carried out
	notBefore time.Time          // when the next write may start
}

// put replaces the order, and reports whether there is one now: nil, or one in no term, is none. Its causes include those
// of earlier orders that were not carried out. Whether an order writes anything is for the applier to find out, which
// knows what other clients did meanwhile.
func (s *slot) put(o *order, term int, of propagation.Causes) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order != nil {
		s.unwritten = s.unwritten.With(s.order.causes)
	}
	s.unwritten, of, s.order = propagation.Causes{}, of.With(s.unwritten), nil
	if o == nil || term == 0 {
		return false
	}
	o.term, o.causes = term, of
	s.order = o
	return true
}

// take removes the order and returns it. If it has to wait, take leaves it and returns how long; nil and 0: there is none.
func (s *slot) take(now time.Time) (o *order, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order == nil {
		return nil, 0
	}
	if wait = s.notBefore.Sub(now); wait > 0 {
		return nil, wait
	}
	o = s.order
	s.order, s.notBefore = nil, time.Time{}
	return o, 0
}

// keepCauses keeps the causes of an order that was not carried out for the next one.
func (s *slot) keepCauses(of propagation.Causes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwritten = s.unwritten.With(of)
}

// delay sets when the next write may start.
func (s *slot) delay(notBefore time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notBefore = notBefore
}

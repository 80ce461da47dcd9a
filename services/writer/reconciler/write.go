package reconciler

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// orderOf returns what follows from the last decision; nil: nothing may be written. Whether an order writes anything is
// for the applier to find out, which knows what other clients did meanwhile.
func (r *Reconciler) orderOf(s *state, current []*discoveryv1.EndpointSlice) *applier.Order {
	view, decision := &s.basis.view, s.decision
	o := &applier.Order{Service: view.Reference(), Current: current}
	switch {
	case view.Settings.Paused:
		return nil
	case view.Active() && decision.Write:
		o.Desired, o.Adjust = r.desiredOf(view, decision), view.State == targets.ProbesOnly
		o.ReasonFor = func(address netip.Addr) string { return why(decision.Endpoints, address) }
	case view.State == targets.Leaving: // the owned slices are deleted
		o.Desired, o.Withdraw = view.Desired(), true
		if target, successor := view.Target, view.Successor; successor != "" {
			o.Condition = func(existing []*discoveryv1.EndpointSlice) bool { return target.IsReplaced(successor, existing) }
		}
	default:
		return nil
	}
	return o
}

// pending is the newest decision about a target until it is written.
type pending struct {
	mu           sync.Mutex
	order        *applier.Order // nil: there is nothing to write
	leadingSince time.Time      // the term in which it was given
	causes       causes         // the oldest of each kind that no write has followed
	notBefore    time.Time      // when the next write may start
}

// put replaces the order, and reports whether there is one now: nil, or one in no term, is none.
func (p *pending) put(o *applier.Order, leadingSince time.Time, found causes) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o == nil || leadingSince.IsZero() {
		p.order, p.causes = nil, causes{}
		return false
	}
	p.order, p.leadingSince, p.causes = o, leadingSince, p.causes.with(found)
	return true
}

// take removes the order and returns it with its causes; nil: there is none of this term. If it has to wait, take leaves
// it and returns how long.
func (p *pending) take(leadingSince, now time.Time) (o *applier.Order, of causes, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.order == nil {
		return nil, causes{}, 0
	}
	if wait = p.notBefore.Sub(now); wait > 0 {
		return nil, causes{}, wait
	}
	if p.leadingSince.Equal(leadingSince) { // else this term begins with a decision
		o, of = p.order, p.causes
	}
	p.order, p.causes, p.notBefore = nil, causes{}, time.Time{}
	return o, of, 0
}

// postpone keeps the causes of an order that was not carried out for the next one, which waits until notBefore.
func (p *pending) postpone(of causes, notBefore time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.causes, p.notBefore = p.causes.with(of), notBefore
}

// Write carries out the newest order of a target. It must not be called twice at a time for the same key.
func (r *Reconciler) Write(ctx context.Context, key targets.Key, now time.Time) {
	r.mu.Lock()
	s := r.states[key]
	r.mu.Unlock()
	if s == nil {
		return
	}
	order, of, wait := s.pending.take(r.Lease.LeadingSince(), now)
	if wait > 0 {
		r.writes.AddAfter(key, wait)
	}
	if order == nil {
		return
	}
	if !slices.Equal(s.applier.Observed(order.Current, ""), order.Current) { // decided while an earlier order was carried out
		s.pending.postpone(of, time.Time{})
		r.decisions.Add(key)
		return
	}
	r.stepDown.writeStarts()
	plan, err := s.applier.Apply(ctx, *order)
	r.stepDown.writeEnds()
	if err != nil {
		r.handleFailure(s, of, err)
		return
	}
	changed, failedBefore := !plan.Empty(), r.backoff.NumRequeues(key) > 0
	r.backoff.Forget(key)
	if changed {
		r.propagation.observe(of, stageWritten, time.Now())
	}
	if changed || failedBefore { // else nothing is new
		// Waiting for the watch event instead would save a decision. But two of 47,000 simulated runs (seeds 1962 and
		// 15597) then changed a write back without news, and the CPU of a change stayed the same.
		r.decisions.Add(key)
	}
}

// handleFailure queues another decision about the target, and delays its next write if the error requires that.
func (r *Reconciler) handleFailure(s *state, of causes, err error) {
	var later *applier.RetryLaterError
	var stale *applier.StaleError
	var notBefore time.Time
	switch {
	case errors.As(err, &later) && later.Repair: // a change by this writer does not wait
		s.pending.postpone(of, notBefore)
		r.decisions.AddAfter(s.key, time.Until(later.At))
		return
	case errors.As(err, &later):
		notBefore = later.At
	case errors.As(err, &stale):
		r.Logger.Info("slice changed, deciding again", "service", s.key.String(), "slice", stale.Slice, "error", stale.Err)
	case errors.Is(err, applier.ErrNotLeader), errors.Is(err, context.Canceled):
	default:
		notBefore = time.Now().Add(r.backoff.When(s.key))
		r.Logger.Warn("slice write failed, retrying", "service", s.key.String(), "error", err, "at", notBefore)
	}
	s.pending.postpone(of, notBefore)
	r.decisions.Add(s.key)
}

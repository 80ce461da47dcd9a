package reconciler

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
	"github.com/slicefeed/slicefeed/services/writer/warnings"
)

// publish makes a decision known: as Events, as metrics and on the board. It releases the Lease if the probes are why.
// It returns when to decide again although nothing changes.
func (r *Reconciler) publish(
	key targets.Key,
	s *state,
	view targets.Resolution,
	snapshots []subscriber.Snapshot,
	input verdict.Input,
	now time.Time,
) (wake time.Time) {
	switch {
	case view.ReadOnly:
		r.health.Forget(key)
		r.publishTarget(key, s, view, snapshots, input)
	case view.Active() || view.Rejection != nil || view.OptedOut && view.Paused: // else its slices go, or have gone
		r.health.Update(key, view, input, s.decision, view.Active() && r.backoff.NumRequeues(key) > 0, now)
		r.publishTarget(key, s, view, snapshots, input)
	default:
		r.health.Forget(key)
		r.Board.Remove(key.Namespace, key.TargetName())
	}
	if r.startup.done(key) {
		r.Board.MarkSynced()
	}
	wake = r.Reporter.SetActive(view.ServiceRef, events.Current{
		Warnings: warnings.Of(view, s.decision, snapshots), Managed: view.Active() && view.Rejection == nil, Leading: s.term.number != 0,
	}, now)
	released, later := r.stepDown.update(key, s.decision, r.Lease, now)
	if released {
		r.Logger.Warn("no probe passes; stepping down so another writer can take over")
	}
	return earliest(wake, later)
}

// publishTarget puts a target on the board that this writer manages, or whose slices it leaves as they are.
func (r *Reconciler) publishTarget(
	key targets.Key,
	s *state,
	view targets.Resolution,
	snapshots []subscriber.Snapshot,
	input verdict.Input,
) {
	if len(key.Name) > validation.DNS1123LabelMaxLength { // a ServiceImport that is rejected for it; the API has no room for it
		return
	}
	t := endpoints.Target{
		Namespace:    key.Namespace,
		Service:      key.TargetName(),
		Owner:        view.Target.Owner,
		State:        endpoints.Managed,
		Leading:      s.term.number != 0 && r.DryRun == nil,
		Ports:        view.Target.Ports,
		Slices:       view.Slices,
		ManagedBy:    view.Target.ManagedBy,
		ServiceType:  view.Target.Type,
		ServicePorts: view.Target.ServicePorts,
		Input:        input,
		Decision:     s.decision,
	}
	if view.Active() { // else there are no streams, which would look like sources that are disconnected
		t.Sources = snapshots
	}
	switch {
	case view.ReadOnly:
		t.State = endpoints.ReadOnly
	case view.Rejection != nil:
		t.State, t.Reason, t.Message = endpoints.Rejected, view.Rejection.Reason, view.Rejection.Message
		t.FollowsProbes = view.ProbesOnly && !view.Paused
	case view.Paused:
		t.State = endpoints.Paused
	}
	r.Board.Put(t)
}

// logDecision logs each address that the decision changes in the slices, and each that a guard holds.
// Both lists are sorted by address.
func (r *Reconciler) logDecision(key targets.Key, current []verdict.CurrentEndpoint, decided []verdict.Endpoint) {
	for i := range decided {
		e := &decided[i]
		n, listed := slices.BinarySearchFunc(
			current,
			e.Address,
			func(h verdict.CurrentEndpoint, a netip.Addr) int { return h.Address.Compare(a) },
		)
		if e.Verdict != verdict.Hold && e.Listed == listed && (!listed || current[n].Conditions == e.Conditions) {
			continue
		}
		tracepoint.Log(r.Logger, tracepoint.Decision, slog.String("service", key.String()), slog.String("source", e.Source),
			slog.String("address", e.Address.String()), slog.String("verdict", e.Verdict.String()),
			slog.String("rule", string(e.Rule)), slog.String("reason", e.Reason))
	}
}

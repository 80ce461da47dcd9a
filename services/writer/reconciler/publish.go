package reconciler

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	problem "github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// publish makes a decision known: as Events, and on the board for reports and metrics. It releases the Lease if the probes are why.
// It returns when to decide again although nothing changes.
func (r *Reconciler) publish(s *state, now time.Time) (wake time.Time) {
	key, view, t := s.key, &s.basis.view, r.target(s)
	for _, a := range s.applier.Admitted() {
		for _, change := range report.CompareSlices(a.Sent, a.Stored, nil) {
			t.Admitted = append(t.Admitted, change.Field+" of "+a.Sent.Name)
		}
	}
	t.OutOfSync = t.CountOutOfSync()
	s.health = s.health.With(report.OfService(*view, &t, view.Active() && r.backoff.NumRequeues(key) > 0), now)
	t.Health = s.health
	switch {
	case view.State == targets.Gone || view.State == targets.Leaving && !view.Settings.Paused: // its slices go
		s.health = endpoints.Health{}
		r.Endpoints.Remove(key.Namespace, key.TargetName())
	case len(key.Name) <= validation.DNS1123LabelMaxLength: // else a ServiceImport, rejected for it: the API has no room for it
		r.Endpoints.Put(t)
	}
	if r.startup.done(key) {
		r.Endpoints.MarkSynced()
	}
	wake = r.Reporter.SetActive(view.Reference(), events.Current{
		Problems: t.Problems, Managed: view.State == targets.Managed, Leading: !s.leadingSince.IsZero(),
	}, now)
	released, later := r.stepDown.update(key, s.decision, r.Lease, now)
	if released {
		r.Logger.Warn("no probe passes; stepping down so another writer can take over")
	}
	return verdict.Earliest(wake, later)
}

// target returns what is known of a target that this writer manages, or whose slices it leaves as they are.
func (r *Reconciler) target(s *state) endpoints.Target {
	view := &s.basis.view
	t := endpoints.Target{
		Namespace:    s.key.Namespace,
		Service:      s.key.TargetName(),
		Owner:        view.Owner,
		State:        endpoints.Managed,
		Leading:      !s.leadingSince.IsZero() && r.DryRun == nil,
		Ports:        view.Ports,
		Slices:       view.Slices,
		ManagedBy:    view.ManagedBy,
		ServiceType:  view.Type,
		ServicePorts: view.ServicePorts,
		Input:        s.basis.input,
		Decision:     s.decision,
	}
	if view.Active() { // else there are no streams, which would look like sources that are disconnected
		t.Sources = s.basis.snapshots
	}
	switch {
	case view.State == targets.ReadOnly:
		t.State = endpoints.ReadOnly
	case view.Rejection != nil:
		t.State, t.Reason, t.Message = endpoints.Rejected, view.Rejection.Reason, view.Rejection.Message
	case view.Settings.Paused:
		t.State, t.Reason, t.Message = endpoints.Paused, "Paused", "Paused by annotation: nothing is written."
	}
	t.Message = problem.WithAdvice(t.Reason, t.Message)
	return t
}

// logDecision logs each address that the decision changes in the slices, and each that a guard holds.
// Both lists are sorted by address.
func (r *Reconciler) logDecision(s *state) {
	current := s.basis.input.Current
	for i := range s.decision.Endpoints {
		e := &s.decision.Endpoints[i]
		n, listed := slices.BinarySearchFunc(
			current,
			e.Address,
			func(h verdict.CurrentEndpoint, a netip.Addr) int { return h.Address.Compare(a) },
		)
		if e.Verdict != verdict.Hold && e.Listed == listed && (!listed || current[n].Conditions == e.Conditions) {
			continue
		}
		tracepoint.Log(r.Logger, tracepoint.Decision, slog.String("service", s.key.String()), slog.String("source", e.Source),
			slog.String("address", e.Address.String()), slog.String("verdict", e.Verdict.String()),
			slog.String("rule", string(e.Rule)), slog.String("reason", e.Reason.String()))
	}
}

// preview returns a decision that is not written.
func (r *Reconciler) preview(s *state) report.Preview {
	p := report.Preview{Key: s.key, View: s.basis.view, Decision: s.decision}
	if !p.Managed() {
		return p
	}
	p.Desired = r.desiredOf(&s.basis.view, s.decision)
	for _, request := range s.probed { // as the decision has it: a probe may have passed since
		if status, _ := s.basis.input.Probe(request.Key.Address, request.Key.Port); status.Health == probe.Pending {
			p.PendingProbes++
		}
	}
	for _, snapshot := range s.basis.snapshots {
		if !snapshot.SyncedInStream {
			p.Unsynced = fmt.Errorf("source %s did not sync (%s)", snapshot.FeedName(), snapshot.NotSyncedReason())
		}
	}
	return p
}

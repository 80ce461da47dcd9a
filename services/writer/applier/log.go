package applier

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// logPlan logs a plan that is going to be written.
func (a *Applier) logPlan(service corev1.ObjectReference, plan planner.Plan) {
	if plan.Empty() || !tracepoint.Enabled(a.log) {
		return
	}
	tracepoint.Log(a.log, tracepoint.Plan, slog.String("service", service.Namespace+"/"+service.Name),
		slog.Int("creates", len(plan.Create)), slog.Int("updates", len(plan.Update)), slog.Int("deletes", len(plan.Delete)))
}

// logWrite logs how a write ended.
func (a *Applier) logWrite(verb verb, slice *discoveryv1.EndpointSlice, order *Order, err error) {
	if !tracepoint.Enabled(a.log) {
		return
	}
	attrs := []slog.Attr{
		slog.String("service", order.Service.Namespace+"/"+order.Service.Name), slog.String("slice", slice.Name),
		slog.String("verb", string(verb)), slog.String("result", result(verb, err)), slog.Int("endpoints", len(slice.Endpoints)),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	tracepoint.Log(a.log, tracepoint.Write, attrs...)
}

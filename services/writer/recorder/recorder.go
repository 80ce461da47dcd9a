// Package recorder records what appliers do: as metrics, as Events on Services, and for reports. It
// guarantees the labels of the metrics from the start, so that a rate sees the first one. It does not decide when
// something is reported again: the applier and the reporter do.
package recorder

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/display"
	problem "github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/report"
)

// FieldManager identifies the writer in managedFields.
const FieldManager = "slicefeed"

// Recorder records what all Appliers of a process do.
type Recorder struct {
	reporter *events.Reporter
	kept     *report.Writes

	writes   *prometheus.CounterVec
	duration prometheus.Histogram
	repairs  prometheus.Counter
}

// New registers the metrics. Without kept no write is kept for reports.
func New(registerer prometheus.Registerer, reporter *events.Reporter, kept *report.Writes) *Recorder {
	auto := promauto.With(registerer)
	r := &Recorder{
		reporter: reporter,
		kept:     kept,
		writes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_writer_slice_writes_total",
			Help: "Number of requests that change EndpointSlices, by verb and result: ok, conflict, throttled, rejected, terminating (the namespace is being deleted), or unknown (no response, or an inconclusive one).",
		}, []string{"verb", "result"}),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "slicefeed_writer_slice_write_duration_seconds",
			Help:    "Time from a request that changes EndpointSlices to its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		repairs: auto.NewCounter(prometheus.CounterOpts{
			Name: "slicefeed_writer_repairs_total",
			Help: "Number of writes that repair owned slices after another client modified, deleted or added them.",
		}),
	}
	for _, verb := range []applier.Verb{applier.Create, applier.Update, applier.Delete} {
		for _, result := range []applier.Result{
			applier.ResultOK, applier.ResultConflict, applier.ResultThrottled, applier.ResultRejected, applier.ResultTerminating, applier.ResultUnknown,
		} {
			r.writes.WithLabelValues(string(verb), string(result))
		}
	}
	return r
}

// Hooks returns what the Appliers call.
func (r *Recorder) Hooks() applier.Hooks {
	return applier.Hooks{
		Planned:       func(corev1.ObjectReference, planner.Plan) { tracepoint.Mark(tracepoint.Plan) },
		Wrote:         r.recordWrite,
		Repaired:      func(_ corev1.ObjectReference, slices int) { r.repairs.Add(float64(slices)) },
		RepairDelayed: r.reportRepairDelay,
		Rejected:      r.reportRejection,
		InSync: func(service corev1.ObjectReference, rejectedAt time.Time) {
			r.reporter.ReportRecovery(service, writeRejected("The API server rejected a write."), rejectedAt)
		},
	}
}

func (r *Recorder) recordWrite(w applier.Write) {
	tracepoint.Mark(tracepoint.Write)
	r.writes.WithLabelValues(string(w.Verb), string(w.Result)).Inc()
	r.duration.Observe(w.Took.Seconds())
	if w.First && w.Result == applier.ResultOK {
		r.reporter.ReportCreation(w.Service, w.Slice, display.Count(len(w.New.Endpoints), "endpoint", "endpoints"))
	}
	if r.kept == nil {
		return
	}
	write := report.Write{
		WriteReport: report.NewWrite(w.Slice, string(w.Verb), string(w.Result), w.Old, w.New, w.ReasonFor),
		At:          time.Now(), Namespace: w.Service.Namespace, Service: targets.TargetName(w.Service.Kind, w.Service.Name),
	}
	if w.Err != nil && w.Result != applier.ResultOK {
		write.Message = w.Err.Error()
	}
	r.kept.Add(write)
}

// writeRejected is a problem of a Service that ends once there is nothing left to write.
func writeRejected(format string, args ...any) *problem.Problem {
	return problem.NewProblem(problem.Error, "WriteRejected", "", format, args...)
}

func (r *Recorder) reportRejection(service corev1.ObjectReference, w applier.Write) bool {
	p := writeRejected("API server rejected %s of EndpointSlice %s", w.Verb, w.Slice)
	p.Message += fmt.Sprintf(": %v", w.Err) // however long: nothing else names the policy or the quota
	return r.reporter.Report(service, p)
}

func (r *Recorder) reportRepairDelay(service corev1.ObjectReference, d applier.RepairDelay) {
	r.reporter.Report(service, problem.NewProblem(
		problem.Warning,
		"RepairsBackedOff",
		"",
		"EndpointSlice %s was changed by %s over %d times a minute; next repair at %s.",
		d.Slice,
		d.Editor,
		d.Budget,
		d.At.Format(time.TimeOnly),
	))
}

package report

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// recorder records what all Appliers of a process do: as metrics, as Events on Services, and for reports. It does not decide
// when something is reported again: the applier and the reporter do.
type recorder struct {
	reporter *events.Reporter
	kept     *Writes

	writes   *prometheus.CounterVec
	duration prometheus.Histogram
	repairs  prometheus.Counter
}

// NewHooks registers the metrics of what Appliers do, and returns what they call. Without kept no write is kept for reports.
func NewHooks(registerer prometheus.Registerer, reporter *events.Reporter, kept *Writes) applier.Hooks {
	return newRecorder(registerer, reporter, kept).hooks()
}

// newRecorder registers the metrics with all their labels, so that a rate sees the first one.
func newRecorder(registerer prometheus.Registerer, reporter *events.Reporter, kept *Writes) *recorder {
	auto := promauto.With(registerer)
	r := &recorder{
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

func (r *recorder) hooks() applier.Hooks {
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

func (r *recorder) recordWrite(w applier.Write) {
	tracepoint.Mark(tracepoint.Write)
	r.writes.WithLabelValues(string(w.Verb), string(w.Result)).Inc()
	r.duration.Observe(w.Took.Seconds())
	if w.First && w.Result == applier.ResultOK {
		r.reporter.ReportCreation(w.Service, w.Slice, display.Count(len(w.New.Endpoints), "endpoint", "endpoints"))
	}
	if r.kept == nil {
		return
	}
	write := Write{
		WriteReport: NewWrite(w.Slice, string(w.Verb), string(w.Result), w.Old, w.New, w.ReasonFor),
		At:          time.Now(), Namespace: w.Service.Namespace, Service: targets.TargetName(w.Service.Kind, w.Service.Name),
	}
	if w.Err != nil && w.Result != applier.ResultOK {
		write.Message = w.Err.Error()
	}
	r.kept.Add(write)
}

// writeRejected is a problem of a Service that ends once there is nothing left to write.
func writeRejected(format string, args ...any) *report.Problem {
	return report.NewProblem(report.Error, "WriteRejected", "", format, args...)
}

func (r *recorder) reportRejection(service corev1.ObjectReference, w applier.Write) bool {
	p := writeRejected("API server rejected %s of EndpointSlice %s", w.Verb, w.Slice)
	p.Message += fmt.Sprintf(": %v", w.Err) // however long: nothing else names the policy or the quota
	return r.reporter.Report(service, p)
}

func (r *recorder) reportRepairDelay(service corev1.ObjectReference, d applier.RepairDelay) {
	r.reporter.Report(service, report.NewProblem(
		report.Warning,
		"RepairsBackedOff",
		"",
		"EndpointSlice %s was changed by %s over %d times a minute; next repair at %s.",
		d.Slice,
		d.Editor,
		d.Budget,
		d.At.Format(time.TimeOnly),
	))
}

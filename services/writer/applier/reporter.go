package applier

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/history"
)

const (
	reporterQueue = 1024             // hundreds of Services may have something to tell at once
	maxNote       = 1024             // the API server refuses more
	seriesSpan    = 10 * time.Minute // a warning that comes again within it joins the Event before
)

// Warning is something that a person should know about a Service.
type Warning struct {
	Reason string // CamelCase: a guard's name, a refusal's reason
	About  string // which of the Service's sources; empty: the Service as a whole
	Action string // CamelCase verb: what we do about it; empty: Reconcile
	Note   string // one sentence that says what to do
}

// ReporterConfig is what a Reporter needs.
type ReporterConfig struct {
	Client   kubernetes.Interface // nil: only the log is told, as in a dry run
	Instance string               // which of our processes speaks
	Logger   *slog.Logger
	History  *history.Log // nil: nothing is remembered
}

// Reporter tells Events on Services through events.k8s.io/v1. It never delays who tells: a
// full queue drops, and the log has it all the same. client-go's own recorder would do, but
// leaves goroutines behind that nobody waits for.
type Reporter struct {
	cfg   ReporterConfig
	queue chan entry
	mu    sync.Mutex
	// told are the warnings in force, by Service; recent the Events of late.
	told   map[types.UID]map[episode]struct{}
	recent map[eventKey]*eventsv1.Event
}

// episode is a warning, however its words change.
type episode struct{ reason, about string }

type eventKey struct {
	service types.UID
	episode episode
}

// entry is an Event that waits to be sent.
type entry struct {
	event *eventsv1.Event
	key   eventKey
}

// NewReporter makes a Reporter; Run sends.
func NewReporter(cfg ReporterConfig) *Reporter {
	return &Reporter{
		cfg:    cfg,
		queue:  make(chan entry, reporterQueue),
		told:   map[types.UID]map[episode]struct{}{},
		recent: map[eventKey]*eventsv1.Event{},
	}
}

// Now says which warnings are in force for a Service at this moment: each is told once
// when it begins, and again only after it was over.
func (r *Reporter) Now(service corev1.ObjectReference, warnings []Warning) {
	r.mu.Lock()
	before := r.told[service.UID]
	now := make(map[episode]struct{}, len(warnings))
	var begun []Warning
	for _, w := range warnings {
		e := episode{w.Reason, w.About}
		_, told := before[e]
		if _, twice := now[e]; !told && !twice {
			begun = append(begun, w)
		}
		now[e] = struct{}{}
	}
	if len(now) > 0 {
		r.told[service.UID] = now
	} else {
		delete(r.told, service.UID)
	}
	r.mu.Unlock()
	for _, w := range begun {
		r.Tell(service, w)
	}
}

// End takes in which warnings are in force for a Service while another replica leads and reports
// them: those that are not have ended, and are reported when they begin again. None begins here.
func (r *Reporter) End(service corev1.ObjectReference, warnings []Warning) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reported := r.told[service.UID]
	for e := range reported {
		if !slices.ContainsFunc(warnings, func(w Warning) bool { return e == episode{w.Reason, w.About} }) {
			delete(reported, e)
		}
	}
	if len(reported) == 0 {
		delete(r.told, service.UID)
	}
}

// Tell tells one warning now.
func (r *Reporter) Tell(service corev1.ObjectReference, w Warning) {
	r.cfg.Logger.Warn("event recorded", "namespace", service.Namespace, "service", service.Name, "reason", w.Reason, "note", w.Note)
	r.cfg.History.AddEvent(history.Event{At: time.Now(), Namespace: service.Namespace, Service: service.Name, Reason: w.Reason, Note: display.Sanitize(w.Note)})
	if r.cfg.Client == nil || service.UID == "" {
		return
	}
	action := w.Action
	if action == "" {
		action = "Reconcile"
	}
	note := w.Note
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-1], "")
	}
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: service.Namespace, Name: fmt.Sprintf("%s.%x", service.Name, now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: "slicefeed.dev/writer",
		ReportingInstance:   r.cfg.Instance,
		Action:              action,
		Reason:              w.Reason,
		Regarding:           service,
		Note:                note,
		Type:                corev1.EventTypeWarning,
	}
	select {
	case r.queue <- entry{event, eventKey{service.UID, episode{w.Reason, w.About}}}:
	default:
		r.cfg.Logger.Warn("event dropped, queue is full", "reason", w.Reason)
	}
}

// Run sends until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.queue:
			r.sendNext(ctx, e)
		}
	}
}

func (r *Reporter) sendNext(ctx context.Context, e entry) {
	err := r.send(ctx, e.event, e.key)
	switch {
	case err == nil, ctx.Err() != nil:
	case namespaceEnds(err):
		r.cfg.Logger.Debug("event not written, namespace is being deleted", "reason", e.event.Reason, "error", err)
	default:
		r.cfg.Logger.Warn("event not written", "reason", e.event.Reason, "error", err)
	}
}

// send creates the Event, or lets it join the one before of the same reason.
func (r *Reporter) send(ctx context.Context, event *eventsv1.Event, k eventKey) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	events := r.cfg.Client.EventsV1().Events(event.Namespace)
	if before := r.recent[k]; before != nil {
		series := &eventsv1.EventSeries{Count: 2, LastObservedTime: event.EventTime}
		if before.Series != nil {
			series.Count = before.Series.Count + 1
		}
		if event.EventTime.Sub(lastSeen(before)) < seriesSpan {
			patch, err := json.Marshal(map[string]any{"series": series, "note": event.Note})
			if err != nil {
				return err
			}
			if after, err := events.Patch(ctx, before.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
				r.recent[k] = after
				return nil
			} // it may have expired: make a new one
		}
	}
	for other, old := range r.recent {
		if event.EventTime.Sub(lastSeen(old)) >= seriesSpan {
			delete(r.recent, other)
		}
	}
	after, err := events.Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Event %s for Service %s: %w", event.Reason, event.Regarding.Name, err)
	}
	r.recent[k] = after
	return nil
}

func lastSeen(event *eventsv1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return event.EventTime.Time
}

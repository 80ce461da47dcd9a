// Package events records Kubernetes Events on Services and ServiceImports: warnings, and that they are over.
//
// It guarantees that no caller waits for the API server, that a condition which lasts is reported
// once, that its end is reported at most once and only if its begin was, and that memory and the rate of requests
// are limited: a warning that returns within ten minutes updates its Event. It does not decide what deserves a warning.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

const (
	maxQueue        = 1024             // hundreds of Services may have something to report at the same time
	maxNote         = 1024             // the API server rejects more
	seriesWindow    = 10 * time.Minute // a warning that returns within it updates the previous Event
	transientPeriod = 5 * time.Second
	calmPeriod      = 10 * time.Second // a warning that returns within it has not ended
	requestTimeout  = 5 * time.Second
)

// Warning is something that a person should know about a Service.
type Warning struct {
	Reason string // CamelCase: a guard, or why a Service or a write is rejected
	Source string // of the Service's sources; empty: the Service as a whole
	Action string // CamelCase verb: what the writer does about it; empty: Reconcile
	Note   string // what happened, the consequence, what to do
	// Transient: it is only reported once it has lasted 5 s. Each start and each reconnection begins with a
	// source that is not synced for a moment.
	Transient bool
	// ByNote: another note is about another mistake, and is reported too. A person may correct one and make the next in a
	// single edit. The notes of guards have numbers that change by themselves.
	ByNote bool

	// Recovery is reported when the warning has ended; zero: its end is not reported.
	Recovery Recovery
}

// Current is what holds for a Service now.
type Current struct {
	Warnings []Warning
	Managed  bool // its endpoints are decided on: a warning that is not in force any more has ended
	Leading  bool // this replica reports; a standby only learns what has ended
}

// Config has what a Reporter needs.
type Config struct {
	Client   kubernetes.Interface // nil: warnings are only logged, as in a dry run
	Instance string               // identity of this process
	Logger   *slog.Logger
	History  *history.Log // nil: nothing is recorded for status pages
}

// Reporter reports warnings and recoveries as Events of events.k8s.io/v1, to the log and to the history. client-go's
// tools/events is not used: it merges warnings that only differ in their source, keeps the first note of a
// series, sends a repetition only minutes later, and does not limit the length of a note.
type Reporter struct {
	cfg   Config
	queue chan queuedEvent

	mu     sync.Mutex
	active map[types.UID]map[warningKey]activeWarning // by Service
	ended  map[types.UID]endedWarnings                // by Service

	recent map[eventKey]*eventsv1.Event // of the goroutine in Run
}

// warningKey identifies a warning while its note changes.
type warningKey struct{ reason, source string }

type activeWarning struct {
	since    time.Time
	reported bool
	note     string // as reported
	recovery Recovery
}

type eventKey struct {
	service types.UID
	warning warningKey
}

type queuedEvent struct {
	event *eventsv1.Event
	key   eventKey
}

// NewReporter returns a Reporter whose Run sends the Events.
func NewReporter(cfg Config) *Reporter {
	return &Reporter{
		cfg:    cfg,
		queue:  make(chan queuedEvent, maxQueue),
		active: map[types.UID]map[warningKey]activeWarning{},
		ended:  map[types.UID]endedWarnings{},
		recent: map[eventKey]*eventsv1.Event{},
	}
}

// SetActive sets the warnings that are in force for a Service now. Each is reported once when it begins, and
// again only after it has ended, or if it is ByNote, when its note changes. Its recovery is reported once it has been
// over for 10 s while the Service is managed,
// so that a warning that comes and goes has one. A standby reports nothing, but learns which warnings have ended:
// another replica reports them. SetActive returns when to call it again although nothing changes; zero: never.
func (r *Reporter) SetActive(service corev1.ObjectReference, current Current, now time.Time) (wake time.Time) {
	var due []Warning
	r.mu.Lock()
	before := r.active[service.UID]
	active := make(map[warningKey]activeWarning, len(current.Warnings))
	for _, w := range current.Warnings {
		key := warningKey{w.Reason, w.Source}
		if _, twice := active[key]; twice {
			continue
		}
		state, existed := before[key]
		if !existed {
			state.since = now
		}
		state.recovery = w.Recovery
		reportAt := state.since
		if w.Transient {
			reportAt = reportAt.Add(transientPeriod)
		}
		switch {
		case reportAt.After(now):
			wake = earliest(wake, reportAt)
		case current.Leading && (!state.reported || w.ByNote && state.note != w.Note):
			state.reported, state.note = true, w.Note
			due = append(due, w)
		}
		active[key] = state
	}
	if len(active) > 0 {
		r.active[service.UID] = active
	} else {
		delete(r.active, service.UID)
	}
	recovered, calmAt := r.setEnded(service.UID, before, active, current, now)
	r.mu.Unlock()
	for _, w := range due {
		r.Report(service, w)
	}
	for _, e := range recovered {
		r.reportRecovery(service, e)
	}
	return earliest(wake, calmAt)
}

// Report reports a warning now.
func (r *Reporter) Report(service corev1.ObjectReference, w Warning) {
	r.cfg.Logger.Warn(
		"event recorded",
		"namespace",
		service.Namespace,
		"service",
		planner.TargetName(service.Kind, service.Name),
		"reason",
		w.Reason,
		"note",
		w.Note,
	)
	r.record(service, r.newEvent(service, corev1.EventTypeWarning, w.Reason, cmp.Or(w.Action, "Reconcile"), w.Note), w.Source, w.Note)
}

// record adds an Event to the history, and to the queue of those to send.
func (r *Reporter) record(service corev1.ObjectReference, event *eventsv1.Event, source, note string) {
	r.cfg.History.AddEvent(
		history.Event{
			At:        time.Now(),
			Namespace: service.Namespace,
			Service:   planner.TargetName(service.Kind, service.Name),
			Reason:    event.Reason,
			Note:      display.Sanitize(note),
		},
	)
	if r.cfg.Client == nil || service.UID == "" {
		return
	}
	select {
	case r.queue <- queuedEvent{event, eventKey{service.UID, warningKey{event.Reason, source}}}:
	default:
		r.cfg.Logger.Warn("event dropped, queue is full", "reason", event.Reason)
	}
}

func (r *Reporter) newEvent(service corev1.ObjectReference, kind, reason, action, note string) *eventsv1.Event {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-1], "")
	}
	now := time.Now()
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: service.Namespace, Name: fmt.Sprintf("%s.%x", service.Name, now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: "slicefeed.dev/writer",
		ReportingInstance:   r.cfg.Instance,
		Action:              action,
		Reason:              reason,
		Regarding:           service,
		Note:                note,
		Type:                kind,
	}
}

// Run sends Events until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-r.queue:
			r.sendEvent(ctx, next)
		}
	}
}

func (r *Reporter) sendEvent(ctx context.Context, next queuedEvent) {
	err := r.writeEvent(ctx, next.event, next.key)
	switch {
	case err == nil, ctx.Err() != nil:
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		r.cfg.Logger.Debug("event not written, namespace is being deleted", "reason", next.event.Reason, "error", err)
	default:
		r.cfg.Logger.Warn("event not written", "reason", next.event.Reason, "error", err)
	}
}

// writeEvent creates the Event, or adds it to the series of the previous one with its key.
func (r *Reporter) writeEvent(ctx context.Context, event *eventsv1.Event, key eventKey) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := r.cfg.Client.EventsV1().Events(event.Namespace)
	if previous := r.recent[key]; previous != nil && event.EventTime.Sub(lastObserved(previous)) < seriesWindow {
		series := &eventsv1.EventSeries{Count: 2, LastObservedTime: event.EventTime}
		if previous.Series != nil {
			series.Count = previous.Series.Count + 1
		}
		patch, err := json.Marshal(map[string]any{"series": series, "note": event.Note})
		if err != nil {
			return err
		}
		if patched, err := client.Patch(ctx, previous.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
			r.recent[key] = patched
			return nil
		} // it may have expired: create another one
	}
	for other, old := range r.recent {
		if event.EventTime.Sub(lastObserved(old)) >= seriesWindow {
			delete(r.recent, other)
		}
	}
	created, err := client.Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Event %s for Service %s: %w", event.Reason, event.Regarding.Name, err)
	}
	r.recent[key] = created
	return nil
}

func lastObserved(event *eventsv1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return event.EventTime.Time
}

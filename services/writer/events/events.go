// Package events records Kubernetes Events on Services and ServiceImports: problems, and that they are over.
//
// It guarantees that no caller waits for the API server, that a problem which lasts is reported
// once, and again if that could not be sent, that its end is reported at most once and only if its begin was, and that memory and the rate of requests
// are limited: a problem that returns within ten minutes updates its Event. It does not decide what a problem is:
// package report does.
package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

const (
	maxQueue        = 1024             // hundreds of Services may have something to report at the same time
	maxNote         = 1024             // the API server rejects more
	seriesWindow    = 10 * time.Minute // a warning that returns within it updates the previous Event
	transientPeriod = 5 * time.Second
	calmPeriod      = 10 * time.Second // a warning that returns within it has not ended
	maxAtOnce       = 20               // problems of a Service; then one each calmPeriod: its owner decides how many there are
	requestTimeout  = 5 * time.Second
)

// kind is how the problems of a reason become Events.
type kind struct {
	action string // CamelCase verb: what the writer does about it; empty: no Event
	over   string // the reason of the Event when it is over; empty: there is none
	// transient: it is only reported once it has lasted 5 s. Each start and each reconnection begins with a
	// source that is not synced for a moment.
	transient bool
	// byMessage: another message is about another mistake, and is reported too. A person may correct one and make the
	// next in a single edit. The messages of guards have numbers that change by themselves.
	byMessage bool
}

// kinds are those of all reasons, except why a Service is rejected and why its annotations do not apply. That a guard
// holds nothing any more has several causes: a source that is not empty any more, or an empty one that is confirmed.
// The reason of its end names none.
var kinds = map[string]kind{
	"AddressNotAllowed":        {action: "Hold", over: "AllowlistGuardOver"},
	"SourceNotSynced":          {action: "Hold", over: "InitialSyncGuardOver", transient: true},
	"AllProbesFailing":         {action: "Hold", over: "PanicGuardOver"},
	"SourceEmpty":              {action: "Hold", over: "EmptyGuardOver"},
	"SourceNotTrusted":         {action: "Hold", over: "TrustGuardOver", transient: true},
	"SourceExpired":            {action: "Remove", over: "ExpiryOver"},
	"FailoverActive":           {action: "FailOver", over: "FailoverOver"},
	"LastEndpointsKept":        {action: "Hold", over: "FloorGuardOver"},
	"ShrinkLimited":            {action: "Hold", over: "ShrinkGuardOver"},
	"Paused":                   {action: "Ignore", over: "Resumed"},
	"ForeignSlices":            {action: "Ignore"},
	"OtherClass":               {action: "Ignore"},
	"PublishNotReadyAddresses": {action: "WriteAnyway"},
	"TrafficDistribution":      {action: "WriteAnyway"},
	"SourcePortMismatch":       {action: "WriteAnyway"},
	"LabelRemoved":             {action: "KeepForAMinute"},
	"ClassChanged":             {action: "KeepForAMinute"},
	"WriteRejected":            {action: "Retry", over: "WritesInSync"},
	"RepairsBackedOff":         {action: "Repair"},
	"ChangedByAdmission":       {action: "Ignore"},
	"OutOfSync":                {}, // WriteRejected says more
	"NoReadyEndpoints":         {action: "Wait", over: "EndpointsReady", transient: true},
	"NoNodeSelected":           {action: "Wait", transient: true},
}

func kindOf(p *report.Problem) kind {
	if k, known := kinds[p.GetReason()]; known {
		return k
	}
	if p.GetLevel() == report.Error {
		return kind{action: "Reject", over: "ServiceManaged", byMessage: true}
	}
	return kind{action: "KeepSettings", over: "AnnotationsValid", byMessage: true}
}

// Current is what holds for a Service now.
type Current struct {
	Problems []*report.Problem
	Managed  bool // its endpoints are decided on: a problem that is not in force any more has ended
	Leading  bool // this replica reports; a standby only learns what has ended
}

// Config has what a Reporter needs.
type Config struct {
	Client   kubernetes.Interface // nil: warnings are only logged, as in a dry run
	Instance string               // identity of this process
	Logger   *slog.Logger
}

// Reporter reports problems and recoveries as Events of events.k8s.io/v1, and to the log. client-go's
// tools/events is not used: it merges Events that only differ in their source, keeps the first note of a
// series, sends a repetition only minutes later, and does not limit the length of a note.
type Reporter struct {
	cfg   Config
	queue chan queuedEvent

	mu       sync.Mutex
	services map[types.UID]*service

	recent map[eventKey]*eventsv1.Event // of the goroutine in Run
}

// service is what is known of a Service until it is no target any more.
type service struct {
	active map[warningKey]activeWarning
	ended  map[warningKey]endedWarning // reported warnings that are over, by the reason of their recovery, until that is reported
	limit  *rate.Limiter               // of problems reported
}

// warningKey identifies a problem while its message changes.
type warningKey struct{ reason, object, message string } // the message only of a kind that is reported by it

func keyOf(p *report.Problem, k kind) warningKey {
	key := warningKey{reason: p.GetReason(), object: p.GetObject()}
	if k.byMessage {
		key.message = p.GetMessage()
	}
	return key
}

type activeWarning struct {
	since    time.Time
	reported bool
	over     string // the reason of its end
	message  string
}

type endedWarning struct {
	message string    // of the last problem
	since   time.Time // begin of the first one
	over    time.Time // since when none is in force and the Service is managed; zero: not yet
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
		cfg: cfg, queue: make(chan queuedEvent, maxQueue), services: map[types.UID]*service{}, recent: map[eventKey]*eventsv1.Event{},
	}
}

// SetActive sets the problems of a Service now. Each is reported once when it begins, and again only after it has ended.
// Its end is reported once it has been over for 10 s while the Service is managed, so that a problem that comes and goes
// has one. A standby reports nothing, but learns which problems have ended: another replica reports them. SetActive
// returns when to call it again although nothing changes; zero: never.
func (r *Reporter) SetActive(of corev1.ObjectReference, current Current, now time.Time) (wake time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.services[of.UID]
	if s == nil {
		s = &service{ended: map[warningKey]endedWarning{}, limit: rate.NewLimiter(rate.Every(calmPeriod), maxAtOnce)}
		r.services[of.UID] = s
	}
	before := s.active
	s.active = make(map[warningKey]activeWarning, len(current.Problems))
	for _, p := range current.Problems {
		k := kindOf(p)
		key := keyOf(p, k)
		if _, twice := s.active[key]; twice || k.action == "" {
			continue
		}
		state, existed := before[key]
		if !existed {
			state.since = now
		}
		state.over, state.message = k.over, p.GetMessage()
		reportAt := state.since
		if k.transient {
			reportAt = reportAt.Add(transientPeriod)
		}
		switch {
		case reportAt.After(now):
			wake = verdict.Earliest(wake, reportAt)
		case !current.Leading || state.reported:
		case !s.limit.AllowN(now, 1):
			wake = verdict.Earliest(wake, now.Add(calmPeriod))
		default:
			if state.reported = r.Report(of, p); !state.reported {
				wake = verdict.Earliest(wake, now.Add(transientPeriod))
			}
		}
		s.active[key] = state
	}
	s.end(before)
	switch {
	case !current.Leading, !current.Managed && len(s.active) == 0: // the leader reports it; it is no target any more
		clear(s.ended)
	case current.Managed:
		wake = verdict.Earliest(wake, r.reportRecoveries(of, s, now))
	}
	if len(s.active)+len(s.ended) == 0 && !current.Managed {
		delete(r.services, of.UID)
	}
	return wake
}

// end notes which reported warnings are over. Those with one recovery are one, since the first began.
func (s *service) end(before map[warningKey]activeWarning) {
	for key, state := range before {
		if _, goesOn := s.active[key]; goesOn || !state.reported || state.over == "" {
			continue
		}
		key = warningKey{reason: state.over, object: key.object}
		e := endedWarning{message: state.message, since: state.since}
		if earlier, known := s.ended[key]; known && earlier.since.Before(e.since) {
			e.since = earlier.since
		}
		s.ended[key] = e
	}
}

// reportRecoveries reports the recoveries that are due, and returns when the next one is. One with a warning in force is
// not.
func (r *Reporter) reportRecoveries(of corev1.ObjectReference, s *service, now time.Time) (wake time.Time) {
	inForce := map[warningKey]bool{}
	for key, state := range s.active {
		inForce[warningKey{reason: state.over, object: key.object}] = true
	}
	byName := func(a, b warningKey) int { return strings.Compare(a.reason+" "+a.object, b.reason+" "+b.object) }
	for _, key := range slices.SortedFunc(maps.Keys(s.ended), byName) {
		e, due := s.ended[key], now.Add(calmPeriod)
		switch {
		case inForce[key]:
			e.over, due = time.Time{}, time.Time{}
		case e.over.IsZero():
			e.over = now
		case e.over.Add(calmPeriod).After(now):
			due = e.over.Add(calmPeriod)
		case r.reportRecovery(of, key, e):
			delete(s.ended, key)
			continue
		}
		s.ended[key], wake = e, verdict.Earliest(wake, due)
	}
	return wake
}

// Report reports a problem now. False: too many are waiting to be sent.
func (r *Reporter) Report(service corev1.ObjectReference, p *report.Problem) bool {
	k := kindOf(p)
	return r.record(service, corev1.EventTypeWarning, keyOf(p, k), k.action, report.WithAdvice(p.GetReason(), p.GetMessage()))
}

// ReportCreation reports that a Service has its first slice.
func (r *Reporter) ReportCreation(service corev1.ObjectReference, slice, endpoints string) {
	note := fmt.Sprintf("EndpointSlice %s has %s.", slice, endpoints)
	r.record(service, corev1.EventTypeNormal, warningKey{reason: "SliceCreated"}, "Create", note)
}

// ReportRecovery reports now that a problem has ended that began at since and was reported.
func (r *Reporter) ReportRecovery(service corev1.ObjectReference, p *report.Problem, since time.Time) {
	key := warningKey{reason: kindOf(p).over}
	r.reportRecovery(service, key, endedWarning{message: p.GetMessage(), since: since, over: time.Now()})
}

func (r *Reporter) reportRecovery(service corev1.ObjectReference, key warningKey, e endedWarning) bool {
	lasted := "less than a second"
	if d := e.over.Sub(e.since); d >= time.Second {
		lasted = duration.HumanDuration(d)
	}
	note := fmt.Sprintf("Over after %s: %s.", lasted, strings.TrimSuffix(e.message, "."))
	return r.record(service, corev1.EventTypeNormal, key, "Recover", note)
}

// record logs an Event, and adds it to the queue of those to send. False: too many are waiting.
func (r *Reporter) record(service corev1.ObjectReference, kind string, key warningKey, action, note string) bool {
	event := r.newEvent(service, kind, key.reason, action, note)
	if r.cfg.Client != nil && service.UID != "" {
		select {
		case r.queue <- queuedEvent{event, eventKey{service.UID, key}}:
		default:
			r.cfg.Logger.Warn("event dropped, queue is full", "reason", event.Reason)
			return false
		}
	}
	log := r.cfg.Logger.Warn
	if kind == corev1.EventTypeNormal {
		log = r.cfg.Logger.Info
	}
	log("event recorded", "namespace", service.Namespace,
		"service", targets.TargetName(service.Kind, service.Name), "reason", event.Reason, "note", event.Note)
	return true
}

func (r *Reporter) newEvent(service corev1.ObjectReference, kind, reason, action, note string) *eventsv1.Event {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-1], "")
	}
	now := time.Now()
	suffix := fmt.Sprintf(".%x", now.UnixNano())
	name := strings.TrimRight(service.Name[:min(len(service.Name), validation.DNS1123SubdomainMaxLength-len(suffix))], "-.")
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: service.Namespace, Name: name + suffix},
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
		var status apierrors.APIStatus
		if errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err) {
			return // it would be rejected again
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if s := r.services[next.key.service]; s != nil {
			if state, lasts := s.active[next.key.warning]; lasts {
				state.reported = false // the next decision reports it again; there is one when the Lease was lost meanwhile
				s.active[next.key.warning] = state
			}
		}
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

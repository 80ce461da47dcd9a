package events

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// endedWarnings are the reported warnings of a Service that are over and whose recovery is not reported. The key has the
// recovery's reason.
type endedWarnings map[warningKey]endedWarning

type endedWarning struct {
	reason, object string
	message        string    // of the last problem
	since          time.Time // begin of the first one
	over           time.Time // since when none is in force and the Service is managed; zero: not yet
}

// setEnded notes which reported warnings have ended, and reports the recoveries that are due. It returns when the next one
// is.
func (r *Reporter) setEnded(
	service corev1.ObjectReference,
	before, active map[warningKey]activeWarning,
	current Current,
	now time.Time,
) (wake time.Time) {
	ended := r.ended[service.UID]
	if ended == nil {
		ended = endedWarnings{}
	}
	for key, state := range before {
		if _, goesOn := active[key]; !goesOn && state.reported && state.over != "" {
			ended.add(key.object, state)
		}
	}
	switch {
	case !current.Leading, !current.Managed && len(active) == 0: // the leader reports it; it is no target any more
		clear(ended)
	case current.Managed:
		var due []endedWarning
		due, wake = ended.takeDue(active, now)
		for _, e := range due {
			if !r.reportRecovery(service, e) {
				ended[warningKey{reason: e.reason, object: e.object}], wake = e, verdict.Earliest(wake, now.Add(calmPeriod))
			}
		}
	}
	if len(ended) > 0 {
		r.ended[service.UID] = ended
	} else {
		delete(r.ended, service.UID)
	}
	return wake
}

func (all endedWarnings) add(object string, state activeWarning) {
	key := warningKey{reason: state.over, object: object}
	e := endedWarning{reason: key.reason, object: object, message: state.message, since: state.since}
	if earlier, known := all[key]; known && earlier.since.Before(e.since) {
		e.since = earlier.since
	}
	all[key] = e
}

// takeDue removes and returns the recoveries that are due. One with a warning in force is not.
func (all endedWarnings) takeDue(active map[warningKey]activeWarning, now time.Time) (due []endedWarning, wake time.Time) {
	inForce := map[warningKey]bool{}
	for key, state := range active {
		inForce[warningKey{reason: state.over, object: key.object}] = true
	}
	for key, e := range all {
		switch at := e.over.Add(calmPeriod); {
		case inForce[key]:
			e.over = time.Time{}
		case e.over.IsZero():
			e.over, wake = now, verdict.Earliest(wake, now.Add(calmPeriod))
		case at.After(now):
			wake = verdict.Earliest(wake, at)
		default:
			delete(all, key)
			due = append(due, e)
			continue
		}
		all[key] = e
	}
	slices.SortFunc(due, func(a, b endedWarning) int { return strings.Compare(a.reason+" "+a.object, b.reason+" "+b.object) })
	return due, wake
}

// ReportRecovery reports now that a problem has ended that began at since and was reported.
func (r *Reporter) ReportRecovery(service corev1.ObjectReference, p *report.Problem, since time.Time) {
	r.reportRecovery(service, endedWarning{reason: kindOf(p).over, message: p.GetMessage(), since: since, over: time.Now()})
}

func (r *Reporter) reportRecovery(service corev1.ObjectReference, e endedWarning) bool {
	lasted := "less than a second"
	if d := e.over.Sub(e.since); d >= time.Second {
		lasted = duration.HumanDuration(d)
	}
	text := fmt.Sprintf("Over after %s: %s.", lasted, strings.TrimSuffix(e.message, "."))
	return r.record(r.cfg.Logger.Info, service, r.newEvent(service, corev1.EventTypeNormal, e.reason, "Recover", text),
		warningKey{reason: e.reason, object: e.object})
}

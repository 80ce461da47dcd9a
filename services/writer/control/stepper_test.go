package control

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// only is the one Service that there is.
type only struct {
	services

	view targets.Resolution
}

func (o *only) Get(targets.Key) targets.Resolution { return o.view }

// alternate is a Lease that is taken and lost as the test says.
type alternate struct {
	elected

	term int
}

func (a *alternate) Leading() bool { return a.term != 0 }

func (a *alternate) Term() int { return a.term }

func TestAStepperWritesOneAfterTheOtherAndTriesAgainWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := targets.Key{Namespace: "web", Name: "shop"}
		log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
		lead := &alternate{}
		followed := &only{view: targets.Resolution{
			Synced: true, Relevant: true, Target: targets.Target{Key: key, UID: "uid", Settings: targets.Settings{Probe: prober.Spec{Mode: prober.Off}}},
			ServiceRef: corev1.ObjectReference{Namespace: "web", Name: "shop", UID: "uid"},
		}}
		reporter, written := events.NewReporter(events.Config{Logger: log}), applier.NewMetrics(registry)
		s := NewStepper(Config{
			Targets: followed, Prober: &asked{}, Lease: lead, Reporter: reporter, Logger: log, Registerer: registry,
			Applier: func() *applier.Applier {
				return applier.New(applier.Config{Leading: lead.Leading, Reporter: reporter, Logger: log, Metrics: written})
			},
		})
		step := func() func(context.Context) error { write, _ := s.Step(key, time.Now()); return write }
		if step() != nil {
			t.Error("a standby writes")
		}
		lead.term = 1
		if step() == nil {
			t.Error("a leader writes nothing")
		}
		if step() != nil {
			t.Error("two writes are under way")
		}
		if write, _ := s.Wrote(key, time.Now(), nil); write == nil {
			t.Error("what came meanwhile is not written")
		}
		write, wake := s.Wrote(key, time.Now(), errors.New("down"))
		if write != nil || time.Until(wake) != time.Second {
			t.Errorf("after a write that failed: the next one at %s", wake)
		}
		time.Sleep(time.Until(wake))
		if step() == nil {
			t.Error("a write that failed is not tried again")
		}
		followed.view.Relevant = false
		if write, _ := s.Wrote(key, time.Now(), nil); write != nil || step() != nil {
			t.Error("a Service that is none of ours is written")
		}
	})
}

// Found by a simulated world: a writer that decided on nothing while the Lease was another's took what that one
// had written for edits of its own slices.
func TestATermThatEndedUnseenIsOverAllTheSame(t *testing.T) {
	lead := &alternate{term: 1}
	followed := &only{view: targets.Resolution{
		Synced: true, Relevant: true, Target: targets.Target{Key: targets.Key{Namespace: "web", Name: "shop"}, UID: "uid", Settings: targets.Settings{Probe: prober.Spec{Mode: prober.Off}}},
	}}
	s := NewStepper(Config{
		Targets: followed, Prober: &asked{}, Lease: lead, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Reporter: events.NewReporter(events.Config{Logger: slog.New(slog.DiscardHandler)}),
		Applier:  func() *applier.Applier { return applier.New(applier.Config{}) },
	})
	first, later := time.Now(), time.Now().Add(time.Minute)
	since := func(at time.Time) time.Time {
		s.Step(followed.view.Target.Key, at)
		one := s.controls.running[followed.view.Target.String()]
		return one.term.since
	}
	if got := since(first); !got.Equal(first) {
		t.Fatalf("leads since %s", got)
	}
	if got := since(later); !got.Equal(first) {
		t.Errorf("the same term begins again at %s", got)
	}
	lead.term = 2
	if got := since(later); !got.Equal(later) {
		t.Errorf("the second term is taken for the first one: it leads since %s", got)
	}
	lead.term = 0
	if got := since(later); !got.IsZero() {
		t.Errorf("a standby leads since %s", got)
	}
}

// listener is told of decisions.
type listener struct{ heards, stirs int }

func (l *listener) onDecision(targets.Key, verdict.Decision) { l.heards++ }
func (l *listener) wakeUp()                                  { l.stirs++ }

func TestPublishesDecisionAfterItsWriteMayHaveBegun(t *testing.T) {
	for _, ours := range []bool{true, false} {
		followed := &only{view: targets.Resolution{
			Synced: true, Relevant: ours, Target: targets.Target{Key: targets.Key{Namespace: "web", Name: "shop"}, UID: "uid", Settings: targets.Settings{Probe: prober.Spec{Mode: prober.Off}}},
		}}
		shared := newStages(Config{
			Targets: followed, Prober: &asked{}, Lease: &alternate{term: 1}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			Reporter: events.NewReporter(events.Config{Logger: slog.New(slog.DiscardHandler)}),
			Applier:  func() *applier.Applier { return applier.New(applier.Config{}) },
		})
		to := &listener{}
		one := shared.control(followed.view.Target.Key, to)
		if one.step(time.Now()); *to != (listener{}) || one.decided.Load() {
			t.Errorf("ours: %t: somebody was told before the write could begin: %+v", ours, *to)
		}
		if one.tell(); *to != (listener{heards: 1, stirs: 1}) || !one.decided.Load() {
			t.Errorf("ours: %t: nobody was told: %+v", ours, *to)
		}
		if one.tell(); to.heards != 1 {
			t.Errorf("ours: %t: one decision was told twice", ours)
		}
	}
}

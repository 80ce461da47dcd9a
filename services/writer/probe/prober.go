// Package probe probes backends and keeps a status for each: passing, failing or pending.
//
// It guarantees, at the default interval and timeout (p99), that a backend that refuses connections is failing within
// 2.5 s, and one that does not respond within 4.5 s. No backend starts as failing, and one failed probe changes
// nothing. A probe reads and waits within limits, its result never has bytes that the backend sent, and a failure of
// the writer is not taken for one of the backend. What a status means for an endpoint is for package verdict to decide.
package probe

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// maxInFlight limits sockets and goroutines. One source has at most 384 probes in flight (shares.go). At the
// default timing that is enough for 750 backends that do not respond, each with a probe in flight for one
// second of two, and for more than ten thousand that do.
const maxInFlight = 512

// Prober runs the probes. Run starts them by the schedule; each probe in flight has its own goroutine.
type Prober struct {
	log       *slog.Logger
	metrics   *metrics
	attempt   func(context.Context, Key) (Result, string)
	wakeCh    chan struct{} // the schedule has changed
	changedCh chan struct{}
	endedCh   chan endedAttempt // has room for all in flight

	mu       sync.Mutex
	schedule *Schedule
}

// NewProber returns a Prober. It probes nothing until it runs.
func NewProber(log *slog.Logger, registerer prometheus.Registerer) *Prober {
	return &Prober{
		log:       log,
		metrics:   newMetrics(registerer),
		attempt:   attempt,
		wakeCh:    make(chan struct{}, 1),
		changedCh: make(chan struct{}, 1),
		endedCh:   make(chan endedAttempt, maxInFlight),
		schedule:  NewSchedule(maxInFlight),
	}
}

// Set replaces the requests of a target, as Schedule.SetTarget does.
func (p *Prober) Set(target string, requests []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule.SetTarget(target, requests, time.Now())
	p.metrics.setState(p.schedule)
	signal(p.wakeCh)
}

// Statuses returns the current status of each request. It takes the lock once: with a lock for each endpoint, the
// decisions about a few large Services kept all others waiting.
func (p *Prober) Statuses(requests []Request) []Status {
	all := make([]Status, len(requests))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range requests {
		all[i] = p.schedule.Status(requests[i].Key)
	}
	return all
}

// Changed is signaled after the status of a key has changed; TakeChanged returns the targets. It has one reader.
func (p *Prober) Changed() <-chan struct{} { return p.changedCh }

// TakeChanged returns the targets with a status that changed since the last call.
func (p *Prober) TakeChanged() (targets map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets, p.schedule.changedTargets = p.schedule.changedTargets, map[string]struct{}{}
	return targets
}

// Run probes until ctx is done, and returns after the last probe has ended.
func (p *Prober) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if wake, due := p.startDueProbes(ctx, &probes); due {
			timer.Reset(time.Until(wake))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.wakeCh:
		case ended := <-p.endedCh:
			p.finishAttempts(ctx, ended)
		}
	}
}

// startDueProbes starts the probes that are due, and returns when the next one is.
func (p *Prober) startDueProbes(ctx context.Context, probes *sync.WaitGroup) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if keys := p.schedule.Expire(time.Now()); len(keys) > 0 {
		p.log.WarnContext(ctx, "probe status expired without a conclusive probe; check the writer's open files and sockets",
			"backends", len(keys), "first_backend", keys[0].HostPort(), "reason", p.schedule.Status(keys[0]).Detail)
		signal(p.changedCh)
	}
	for {
		attempt, due := p.schedule.Start(time.Now(), rand.Float64())
		if !due {
			break
		}
		probes.Go(func() { p.runAttempt(ctx, attempt) })
	}
	p.metrics.setState(p.schedule)
	return p.schedule.Wake()
}

// endedAttempt is an attempt with its result.
type endedAttempt struct {
	Attempt

	result Result
	detail string
	at     time.Time
}

func (p *Prober) runAttempt(ctx context.Context, attempt Attempt) {
	startedAt := time.Now()
	result, detail := p.attempt(ctx, attempt.Key)
	ended := endedAttempt{attempt, result, detail, time.Now()}
	p.metrics.observeProbe(attempt.Key.Spec.Mode, result, ended.at.Sub(startedAt))
	if result == Inconclusive {
		// Only Debug: it may happen to each of thousands of probes. The metric counts them.
		p.log.DebugContext(ctx, "probe could not be sent", "reason", detail)
	}
	p.endedCh <- ended
}

// finishAttempts applies results, as many as there are, under one lock: hundreds of goroutines that wait for it would keep
// the decisions waiting.
func (p *Prober) finishAttempts(ctx context.Context, next endedAttempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		old := p.schedule.Status(next.Key)
		if p.schedule.Finish(next.Attempt, next.result, next.detail, next.at) {
			status := p.schedule.Status(next.Key)
			p.log.InfoContext(ctx, "probe status changed", "source", next.queue.share.Source, "service", next.queue.share.Target,
				"address", next.Key.Address.String(), "port", next.Key.Port,
				"mode", next.Key.Spec.Mode.String(), "old", old.Health.String(), "new", status.Health.String(), "detail", status.Detail)
			signal(p.changedCh)
		}
		select {
		case next = <-p.endedCh:
		default:
			return
		}
	}
}

// signal sends to ch unless a signal is already waiting in it.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

type metrics struct {
	probes    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	endpoints *prometheus.GaugeVec
	inFlight  prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	auto := promauto.With(registerer)
	return &metrics{
		probes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_writer_probes_total",
			Help: "Number of probes, by mode and result. An inconclusive one says nothing about the backend: the writer could not probe it.",
		}, []string{"mode", "result"}),
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slicefeed_writer_probe_duration_seconds",
			Help:    "Time from the start of a probe to its result.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"mode"}),
		endpoints: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slicefeed_writer_probed_endpoints",
			Help: "Number of probed backends (address, port and spec; one that Services share counts once), by probe status.",
		}, []string{"health"}),
		inFlight: auto.NewGauge(prometheus.GaugeOpts{
			Name: "slicefeed_writer_probes_in_flight",
			Help: "Number of probes in progress.",
		}),
	}
}

func (m *metrics) observeProbe(mode Mode, result Result, took time.Duration) {
	m.probes.WithLabelValues(mode.String(), result.String()).Inc()
	m.duration.WithLabelValues(mode.String()).Observe(took.Seconds())
}

func (m *metrics) setState(s *Schedule) {
	for health, n := range s.healthCounts {
		m.endpoints.WithLabelValues(Health(health).String()).Set(float64(n))
	}
	m.inFlight.Set(float64(s.inFlight))
}

// Package prober probes backends and keeps a status for each: passing, failing or pending. It
// guarantees, at the default interval and timeout (p99), that a backend that refuses connections is
// failing within 2.5 s, and one that does not respond within 4.5 s. No backend starts as failing, and
// one failed probe changes nothing. It does not decide what a status means for an endpoint; package
// verdict does.
package prober

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxInFlight limits sockets and goroutines. One source has at most 384 probes in flight (shares.go). At the
// default timing that is enough for 750 backends that do not respond, each with a probe in flight for one
// second of two, and for more than ten thousand that do.
const maxInFlight = 512

// Config configures a Prober.
type Config struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Prober runs the probes. Run starts them by the schedule; each probe in flight has its own goroutine.
type Prober struct {
	log       *slog.Logger
	metrics   *metrics
	runProbe  func(context.Context, Key) (Result, string)
	wakeCh    chan struct{} // the schedule has changed
	changedCh chan struct{}

	mu           sync.Mutex
	schedule     *Schedule
	keysByTarget map[string]map[Key]string // with the source of each key
	targetsByKey map[Key]map[string]struct{}
	dirtyTargets map[string]struct{} // targets with a status that changed since TakeChanged
}

// New returns a Prober. It probes nothing until it runs.
func New(c Config) *Prober {
	return &Prober{
		log:          c.Log,
		metrics:      newMetrics(c.Registerer),
		runProbe:     newProbeClient().probe,
		wakeCh:       make(chan struct{}, 1),
		changedCh:    make(chan struct{}, 1),
		schedule:     NewSchedule(maxInFlight),
		keysByTarget: map[string]map[Key]string{},
		targetsByKey: map[Key]map[string]struct{}{},
		dirtyTargets: map[string]struct{}{},
	}
}

// Request is a key to probe for a target, and the source of the endpoint.
type Request struct {
	Key    Key
	Source string
}

// RequestsFor returns requests for endpoints of one source.
func RequestsFor(source string, keys ...Key) []Request {
	requests := make([]Request, len(keys))
	for i, key := range keys {
		requests[i] = Request{key, source}
	}
	return requests
}

// Set replaces the requests of a target; without requests the target is removed. Keys that stay, or
// that another target has, keep their status and schedule. Keys of mode Off are ignored.
func (p *Prober) Set(target string, requests []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	old := p.keysByTarget[target]
	requested := make(map[Key]string, len(requests))
	for _, request := range requests {
		if request.Key.Spec.Mode != Off {
			requested[request.Key.canonical()] = request.Source
		}
	}
	if len(requested) == 0 {
		delete(p.keysByTarget, target)
		delete(p.dirtyTargets, target)
	} else {
		p.keysByTarget[target] = requested
	}
	for key, source := range requested {
		if oldSource, existed := old[key]; existed && oldSource == source {
			continue
		}
		if p.targetsByKey[key] == nil {
			p.targetsByKey[key] = map[string]struct{}{}
			p.schedule.Add(key, Share{source, target}, now)
		}
		p.targetsByKey[key][target] = struct{}{}
		p.assignShare(key)
	}
	for key := range old {
		if _, ok := requested[key]; ok {
			continue
		}
		delete(p.targetsByKey[key], target)
		if len(p.targetsByKey[key]) == 0 {
			delete(p.targetsByKey, key)
			p.schedule.Remove(key)
			continue
		}
		p.assignShare(key)
	}
	p.metrics.setState(p.schedule)
	signal(p.wakeCh)
}

// assignShare assigns a key to the share of the target that has the fewest keys, among all that have this
// one. So a small Service does not wait for a large one with the same endpoint.
func (p *Prober) assignShare(key Key) {
	best := ""
	for target := range p.targetsByKey[key] {
		if best == "" || cmp.Or(cmp.Compare(len(p.keysByTarget[target]), len(p.keysByTarget[best])), cmp.Compare(target, best)) < 0 {
			best = target
		}
	}
	p.schedule.Assign(key, Share{p.keysByTarget[best][key], best})
}

// Status returns the current status of a key.
func (p *Prober) Status(key Key) Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.Status(key.canonical())
}

// Changed is signaled after the status of a key has changed; TakeChanged returns the targets. It has one reader.
func (p *Prober) Changed() <-chan struct{} { return p.changedCh }

// TakeChanged returns the targets with a status that changed since the last call, sorted.
func (p *Prober) TakeChanged() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets := make([]string, 0, len(p.dirtyTargets))
	for target := range p.dirtyTargets {
		targets = append(targets, target)
	}
	clear(p.dirtyTargets)
	slices.Sort(targets)
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
		}
	}
}

// startDueProbes starts the probes that are due, and returns when the next one is.
func (p *Prober) startDueProbes(ctx context.Context, probes *sync.WaitGroup) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireStatuses(ctx, time.Now())
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

// expireStatuses sets the keys to pending that could not be probed.
func (p *Prober) expireStatuses(ctx context.Context, now time.Time) {
	keys := p.schedule.Expire(now)
	if len(keys) == 0 {
		return
	}
	p.log.WarnContext(ctx, "probe status expired without a conclusive probe; check the writer's open files and sockets", "backends", len(keys),
		"first_backend", keys[0].hostPort(), "reason", p.schedule.Status(keys[0]).Detail)
	for _, key := range keys {
		p.markDirty(key)
	}
}

// markDirty records that the status of a key changed.
func (p *Prober) markDirty(key Key) {
	for target := range p.targetsByKey[key] {
		p.dirtyTargets[target] = struct{}{}
	}
	signal(p.changedCh)
}

func (p *Prober) runAttempt(ctx context.Context, attempt Attempt) {
	startedAt := time.Now()
	result, detail := p.runProbe(ctx, attempt.Key)
	endedAt := time.Now()
	p.metrics.observeProbe(attempt.Key.Spec.Mode, result, endedAt.Sub(startedAt))
	if result == Inconclusive {
		// Only Debug: it may happen to each of thousands of probes. The metric counts them.
		p.log.DebugContext(ctx, "probe could not be sent", "reason", detail)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.schedule.Status(attempt.Key)
	if p.schedule.Finish(attempt, result, detail, endedAt) {
		status := p.schedule.Status(attempt.Key)
		p.log.InfoContext(ctx, "probe status changed", "address", attempt.Key.Address.String(), "port", attempt.Key.Port,
			"mode", attempt.Key.Spec.Mode.String(), "old", old.Health.String(), "new", status.Health.String(), "detail", status.Detail)
		p.markDirty(attempt.Key)
	}
	signal(p.wakeCh)
}

// signal sends to ch unless a signal is already waiting in it.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

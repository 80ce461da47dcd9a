// Package prober asks backends whether they answer, and keeps a word on each: passing,
// failing or not judged yet. It promises to notice a backend that refuses within 2.5 s and
// one that is silent within 4.5 s (p99, at the default interval and timeout), that nothing
// starts as dead and that no lone hiccup counts. What the words mean for an endpoint
// is not decided here.
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

// maxInFlight bounds sockets and goroutines. One source takes 384 of them at most: at the default timing
// enough for 750 silent backends at full pace (half a probe a second each, a second long), and for more than
// ten thousand that answer.
const maxInFlight = 512

// Config is what a Prober needs.
type Config struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Prober runs the probes. One goroutine keeps the schedule; each probe in flight has one.
type Prober struct {
	log       *slog.Logger
	metrics   *metrics
	runProbe  func(context.Context, Key) (Result, string)
	wakeCh    chan struct{} // the schedule has changed: look at it again
	changedCh chan struct{}

	mu           sync.Mutex
	schedule     *Schedule
	keysByTarget map[string]map[Key]string // by target, with the source of each
	targetsByKey map[Key]map[string]struct{}
	dirtyTargets map[string]struct{} // targets with a word that changed since Take
}

// New makes a Prober; nothing is probed until it runs.
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

// Request is a key that a target wants probed, and the source that the endpoint belongs to.
type Request struct {
	Key    Key
	Source string
}

// RequestsFor are requests for endpoints of one source.
func RequestsFor(source string, keys ...Key) []Request {
	requests := make([]Request, len(keys))
	for i, key := range keys {
		requests[i] = Request{key, source}
	}
	return requests
}

// Set replaces what is probed for a target; without requests it is forgotten. What stays, and
// what another target has already, keeps its word and its pace. Keys of mode Off are ignored.
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

// assignShare charges the probes of a key to the one of its targets that has the fewest keys: a small Service does not wait for a
// large one that it shares an endpoint with.
func (p *Prober) assignShare(key Key) {
	best := ""
	for target := range p.targetsByKey[key] {
		if best == "" || cmp.Or(cmp.Compare(len(p.keysByTarget[target]), len(p.keysByTarget[best])), cmp.Compare(target, best)) < 0 {
			best = target
		}
	}
	p.schedule.Assign(key, Share{p.keysByTarget[best][key], best})
}

// Status returns the present word on a key.
func (p *Prober) Status(key Key) Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.Status(key.canonical())
}

// Changed is signalled after the word on any key of any target has changed; then Take
// says whose. One reader.
func (p *Prober) Changed() <-chan struct{} { return p.changedCh }

// Take returns the targets with a word that changed since it was last called, sorted.
func (p *Prober) Take() []string {
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

// Run probes until ctx is done, and returns when the last probe has ended.
func (p *Prober) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if wake, due := p.startDue(ctx, &probes); due {
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

// startDue starts what is due and returns when to come back.
func (p *Prober) startDue(ctx context.Context, probes *sync.WaitGroup) (time.Time, bool) {
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

// expireStatuses makes pending what cannot be probed.
func (p *Prober) expireStatuses(ctx context.Context, now time.Time) {
	keys := p.schedule.Expire(now)
	if len(keys) == 0 {
		return
	}
	p.log.WarnContext(ctx, "probe statuses expired, no probe came to a conclusion", "backends", len(keys),
		"first", keys[0].hostPort(), "reason", p.schedule.Status(keys[0]).Detail)
	for _, key := range keys {
		p.markDirty(key)
	}
}

// markDirty says that the word on a key changed.
func (p *Prober) markDirty(key Key) {
	for target := range p.targetsByKey[key] {
		p.dirtyTargets[target] = struct{}{}
	}
	signal(p.changedCh)
}

func (p *Prober) runAttempt(ctx context.Context, attempt Attempt) {
	began := time.Now()
	result, detail := p.runProbe(ctx, attempt.Key)
	endedAt := time.Now()
	p.metrics.observeProbe(attempt.Key.Spec.Mode, result, endedAt.Sub(began))
	if result == Inconclusive {
		// Not louder: it may be each of thousands of probes. The metric says how many.
		p.log.DebugContext(ctx, "a probe could not be sent", "reason", detail)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.schedule.Status(attempt.Key)
	if p.schedule.Finish(attempt, result, detail, endedAt) {
		status := p.schedule.Status(attempt.Key)
		p.log.InfoContext(ctx, "the word on a backend changed", "address", attempt.Key.Address.String(), "port", attempt.Key.Port,
			"mode", attempt.Key.Spec.Mode.String(), "was", old.Health.String(), "is", status.Health.String(), "detail", status.Detail)
		p.markDirty(attempt.Key)
	}
	signal(p.wakeCh)
}

// signal makes ch say "look again", unless it already does.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

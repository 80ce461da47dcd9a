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
	log     *slog.Logger
	metrics *metrics
	ask     func(context.Context, Key) (Outcome, string)
	kick    chan struct{} // the schedule has changed: look at it again
	changed chan struct{}

	mu       sync.Mutex
	schedule *Schedule
	keys     map[string]map[Key]string // by target, with the source of each
	targets  map[Key]map[string]struct{}
	dirty    map[string]struct{} // targets with a word that changed since Take
}

// New makes a Prober; nothing is probed until it runs.
func New(c Config) *Prober {
	return &Prober{
		log:      c.Log,
		metrics:  newMetrics(c.Registerer),
		ask:      newAsker().ask,
		kick:     make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		schedule: NewSchedule(maxInFlight),
		keys:     map[string]map[Key]string{},
		targets:  map[Key]map[string]struct{}{},
		dirty:    map[string]struct{}{},
	}
}

// Request is a key that a target wants probed, and the source that the endpoint belongs to.
type Request struct {
	Key    Key
	Source string
}

// From are requests for endpoints of one source.
func From(source string, keys ...Key) []Request {
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
	old := p.keys[target]
	wanted := make(map[Key]string, len(requests))
	for _, request := range requests {
		if request.Key.Spec.Mode != Off {
			wanted[request.Key.canonical()] = request.Source
		}
	}
	if len(wanted) == 0 {
		delete(p.keys, target)
		delete(p.dirty, target)
	} else {
		p.keys[target] = wanted
	}
	for key, source := range wanted {
		if before, had := old[key]; had && before == source {
			continue
		}
		if p.targets[key] == nil {
			p.targets[key] = map[string]struct{}{}
			p.schedule.Add(key, Share{source, target}, now)
		}
		p.targets[key][target] = struct{}{}
		p.assign(key)
	}
	for key := range old {
		if _, wants := wanted[key]; wants {
			continue
		}
		delete(p.targets[key], target)
		if len(p.targets[key]) == 0 {
			delete(p.targets, key)
			p.schedule.Remove(key)
			continue
		}
		p.assign(key)
	}
	p.metrics.state(p.schedule)
	signal(p.kick)
}

// assign charges the probes of a key to the one of its targets that has the fewest keys: a small Service does not wait for a
// large one that it shares an endpoint with.
func (p *Prober) assign(key Key) {
	best := ""
	for target := range p.targets[key] {
		if best == "" || cmp.Or(cmp.Compare(len(p.keys[target]), len(p.keys[best])), cmp.Compare(target, best)) < 0 {
			best = target
		}
	}
	p.schedule.Assign(key, Share{p.keys[best][key], best})
}

// Word returns the present word on a key.
func (p *Prober) Word(key Key) Word {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.Word(key.canonical())
}

// Changed is signalled after the word on any key of any target has changed; then Take
// says whose. One reader.
func (p *Prober) Changed() <-chan struct{} { return p.changed }

// Take returns the targets with a word that changed since it was last called, sorted.
func (p *Prober) Take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets := make([]string, 0, len(p.dirty))
	for target := range p.dirty {
		targets = append(targets, target)
	}
	clear(p.dirty)
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
		if wake, due := p.start(ctx, &probes); due {
			timer.Reset(time.Until(wake))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.kick:
		}
	}
}

// start starts what is due and returns when to come back.
func (p *Prober) start(ctx context.Context, probes *sync.WaitGroup) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(ctx, time.Now())
	for {
		attempt, due := p.schedule.Start(time.Now(), rand.Float64())
		if !due {
			break
		}
		probes.Go(func() { p.probe(ctx, attempt) })
	}
	p.metrics.state(p.schedule)
	return p.schedule.Wake()
}

// expire makes pending what cannot be probed.
func (p *Prober) expire(ctx context.Context, now time.Time) {
	keys := p.schedule.Expire(now)
	if len(keys) == 0 {
		return
	}
	p.log.WarnContext(ctx, "probe statuses expired, no probe came to a conclusion", "backends", len(keys),
		"first", keys[0].hostPort(), "reason", p.schedule.Word(keys[0]).Detail)
	for _, key := range keys {
		p.markDirty(key)
	}
}

// markDirty says that the word on a key changed.
func (p *Prober) markDirty(key Key) {
	for target := range p.targets[key] {
		p.dirty[target] = struct{}{}
	}
	signal(p.changed)
}

func (p *Prober) probe(ctx context.Context, attempt Attempt) {
	began := time.Now()
	outcome, detail := p.ask(ctx, attempt.Key)
	ended := time.Now()
	p.metrics.finished(attempt.Key.Spec.Mode, outcome, ended.Sub(began))
	if outcome == Void {
		// Not louder: it may be each of thousands of probes. The metric says how many.
		p.log.DebugContext(ctx, "a probe could not be sent", "reason", detail)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.schedule.Word(attempt.Key)
	if p.schedule.Finish(attempt, outcome, detail, ended) {
		after := p.schedule.Word(attempt.Key)
		p.log.InfoContext(ctx, "the word on a backend changed", "address", attempt.Key.Address.String(), "port", attempt.Key.Port,
			"mode", attempt.Key.Spec.Mode.String(), "was", before.Health.String(), "is", after.Health.String(), "detail", after.Detail)
		p.markDirty(attempt.Key)
	}
	signal(p.kick)
}

// signal makes ch say "look again", unless it already does.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Package prober asks backends whether they answer, and keeps a word on each: passing,
// failing or not judged yet. It promises to notice a backend that refuses within 2.5 s and
// one that is silent within 4.5 s (p99, at the default interval and timeout), that nothing
// starts as dead and that no lone hiccup counts. What the words mean for an endpoint
// is not decided here.
package prober

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxInFlight bounds sockets and goroutines. At the default timing it lets 900 silent
// backends be probed at full pace (half a probe a second each, a second long), and more than
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
	keys     map[string]map[Key]struct{} // by target
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
		keys:     map[string]map[Key]struct{}{},
		targets:  map[Key]map[string]struct{}{},
		dirty:    map[string]struct{}{},
	}
}

// Set replaces what is probed for a target; without keys it is forgotten. What stays, and
// what another target has already, keeps its word and its pace. Keys of mode Off are ignored.
func (p *Prober) Set(target string, keys []Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	old := p.keys[target]
	wanted := make(map[Key]struct{}, len(keys))
	for _, key := range keys {
		if key.Spec.Mode == Off {
			continue
		}
		key = key.canonical()
		wanted[key] = struct{}{}
		if _, had := old[key]; had {
			continue
		}
		if p.targets[key] == nil {
			p.targets[key] = map[string]struct{}{}
			p.schedule.Add(key, now)
		}
		p.targets[key][target] = struct{}{}
	}
	for key := range old {
		if _, wants := wanted[key]; wants {
			continue
		}
		delete(p.targets[key], target)
		if len(p.targets[key]) == 0 {
			delete(p.targets, key)
			p.schedule.Remove(key)
		}
	}
	if len(wanted) == 0 {
		delete(p.keys, target)
		delete(p.dirty, target)
	} else {
		p.keys[target] = wanted
	}
	p.metrics.state(p.schedule)
	signal(p.kick)
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
		for target := range p.targets[attempt.Key] {
			p.dirty[target] = struct{}{}
		}
		signal(p.changed)
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

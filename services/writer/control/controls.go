package control

import (
	"context"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Controls has one control for each target that there is, tells each of what its decision
// rests upon, and gives the Lease up when the probes of all of them are blind.
type Controls struct {
	*stages

	running map[string]*control // by target
	over    chan *control       // those that have ended by themselves

	shown bool // the board shows every target that existed at the start
	woken chan struct{}
	mu    sync.Mutex
	sight map[targets.Key]verdict.Decision // what the probes of each target see

	stepDown stepDown
	term     term
	handing  sync.Mutex // by who waits for the writes under way
}

// New makes Controls that have decided on nothing yet.
func New(cfg Config) *Controls { return newControls(newStages(cfg)) }

func newControls(s *stages) *Controls {
	return &Controls{
		stages: s, running: map[string]*control{}, over: make(chan *control),
		woken: make(chan struct{}, 1), sight: map[targets.Key]verdict.Decision{},
	}
}

// Run runs the Controls until ctx is done, and waits for them.
func (c *Controls) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	said := make(chan string) // names of sources that have said something new
	for _, s := range c.sources {
		group.Go(func() { forwardChanges(ctx, s, said) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case name := <-said:
			for _, one := range c.running {
				if one.rests(name) {
					one.wakeUp()
				}
			}
		case <-c.targets.Changed():
			c.syncTargets(ctx, &group)
		case <-c.prober.Changed():
			for _, name := range c.prober.TakeChanged() {
				if one := c.running[name]; one != nil {
					one.wakeUp()
				}
			}
		case <-c.lease.Changed():
			for _, one := range c.running {
				one.wakeUp()
			}
		case one := <-c.over:
			delete(c.running, one.key.String())
			c.syncTarget(ctx, &group, one.key) // it may have become ours again meanwhile
		case <-c.woken:
		case <-timer.C:
		}
		c.markSyncedOnceDecided(ctx, &group)
		release, wake := c.maybeStepDown(time.Now())
		if release != nil {
			group.Go(release)
		}
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(wake))
		}
	}
}

// forwardChanges forwards that a source has changed.
func forwardChanges(ctx context.Context, s Source, said chan<- string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Changed():
		}
		select {
		case <-ctx.Done():
			return
		case said <- s.Name:
		}
	}
}

func (c *Controls) syncTargets(ctx context.Context, group *sync.WaitGroup) {
	for _, key := range c.targets.TakeChanged() {
		c.syncTarget(ctx, group, key)
	}
}

// syncTarget makes a target's control decide again, and starts it if there is none.
func (c *Controls) syncTarget(ctx context.Context, group *sync.WaitGroup, key targets.Key) {
	if one := c.running[key.String()]; one != nil {
		one.wakeUp()
		return
	}
	if !c.targets.Get(key).Relevant {
		return
	}
	one := c.control(key, c)
	c.running[key.String()] = one
	group.Go(func() {
		one.Run(ctx)
		select {
		case c.over <- one:
		case <-ctx.Done():
		}
	})
}

// onDecision records whether the probes of a target pass.
func (c *Controls) onDecision(key targets.Key, d verdict.Decision) {
	d = verdict.Decision{Panic: d.Panic, AnyPassing: d.AnyPassing, CannotProbe: d.CannotProbe, NonePassingSince: d.NonePassingSince}
	c.mu.Lock()
	before := c.sight[key]
	changed := before.Panic != d.Panic || before.CannotProbe != d.CannotProbe || before.AnyPassing != d.AnyPassing || !before.NonePassingSince.Equal(d.NonePassingSince)
	if d.Panic || d.AnyPassing || !d.NonePassingSince.IsZero() {
		c.sight[key] = d
	} else {
		delete(c.sight, key)
	}
	c.mu.Unlock()
	if changed {
		c.wakeUp()
	}
}

func (c *Controls) wakeUp() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// markSyncedOnceDecided marks the board as synced once there is a decision about every target of the start.
func (c *Controls) markSyncedOnceDecided(ctx context.Context, group *sync.WaitGroup) {
	if c.shown || c.targets.Synced() != nil {
		return
	}
	c.syncTargets(ctx, group) // all that the caches have had until now
	for _, one := range c.running {
		if !one.decided.Load() {
			return
		}
	}
	c.board.MarkSynced()
	c.shown = true
}

// maybeStepDown stops leading when that is due. It returns what remains to be done then, which waits for the
// writes in progress, and when to call it again although nothing changes.
func (c *Controls) maybeStepDown(now time.Time) (release func(), wake time.Time) {
	c.term.turns(c.lease.Term(), now)
	c.mu.Lock()
	all := make([]verdict.Decision, 0, len(c.sight))
	for _, d := range c.sight {
		all = append(all, d)
	}
	c.mu.Unlock()
	gives, wake := c.stepDown.due(all, c.term.since, now)
	if !gives {
		return nil, wake
	}
	c.stepDown.done(now)
	c.log.Warn("no probe passes; stepping down so another writer can take over")
	handOver := c.lease.Release()
	return func() {
		c.handing.Lock() // two that each had some places would wait for each other
		defer c.handing.Unlock()
		// No plan goes on by now: whoever writes asks before each request whether this writer leads.
		for range cap(c.turns) {
			c.turns <- struct{}{}
		}
		handOver()
		for range cap(c.turns) {
			<-c.turns
		}
	}, time.Time{}
}

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

	shown   bool // the board tells of all that there was at the start
	stirred chan struct{}
	mu      sync.Mutex
	sight   map[targets.Key]verdict.Decision // what the probes of each target see

	surrender surrender
	term      term
	handing   sync.Mutex // by who waits for the writes under way
}

// New makes Controls that have decided on nothing yet.
func New(cfg Config) *Controls { return newControls(newStages(cfg)) }

func newControls(s *stages) *Controls {
	return &Controls{
		stages: s, running: map[string]*control{}, over: make(chan *control),
		stirred: make(chan struct{}, 1), sight: map[targets.Key]verdict.Decision{},
	}
}

// Run runs the Controls until ctx is done, and waits for them.
func (c *Controls) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	said := make(chan string) // names of sources that have said something new
	for _, s := range c.sources {
		group.Go(func() { relay(ctx, s, said) })
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
					one.poke()
				}
			}
		case <-c.targets.Changed():
			c.attendAll(ctx, &group)
		case <-c.prober.Changed():
			for _, name := range c.prober.TakeChanged() {
				if one := c.running[name]; one != nil {
					one.poke()
				}
			}
		case <-c.lease.Changed():
			for _, one := range c.running {
				one.poke()
			}
		case one := <-c.over:
			delete(c.running, one.key.String())
			c.attend(ctx, &group, one.key) // it may have become ours again meanwhile
		case <-c.stirred:
		case <-timer.C:
		}
		c.mayShow(ctx, &group)
		release, wake := c.mayGiveUp(time.Now())
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

// relay passes on that a source has said something new.
func relay(ctx context.Context, s Source, said chan<- string) {
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

func (c *Controls) attendAll(ctx context.Context, group *sync.WaitGroup) {
	for _, key := range c.targets.TakeChanged() {
		c.attend(ctx, group, key)
	}
}

// attend has a target's control decide anew, and starts one where there is none.
func (c *Controls) attend(ctx context.Context, group *sync.WaitGroup, key targets.Key) {
	if one := c.running[key.String()]; one != nil {
		one.poke()
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

// heard notes what the probes of a target see.
func (c *Controls) heard(key targets.Key, d verdict.Decision) {
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
		c.stir()
	}
}

func (c *Controls) stir() {
	select {
	case c.stirred <- struct{}{}:
	default:
	}
}

// mayShow lets the board speak once there was a decision on all that was found at the start.
func (c *Controls) mayShow(ctx context.Context, group *sync.WaitGroup) {
	if c.shown || c.targets.Synced() != nil {
		return
	}
	c.attendAll(ctx, group) // all that the caches have had until now
	for _, one := range c.running {
		if !one.decided.Load() {
			return
		}
	}
	c.board.MarkSynced()
	c.shown = true
}

// mayGiveUp stops leading when that is due. It returns what then remains to be done, which waits for the
// writes that are under way, and when to ask again though nothing changes.
func (c *Controls) mayGiveUp(now time.Time) (release func(), wake time.Time) {
	c.term.turns(c.lease.Term(), now)
	c.mu.Lock()
	all := make([]verdict.Decision, 0, len(c.sight))
	for _, d := range c.sight {
		all = append(all, d)
	}
	c.mu.Unlock()
	gives, wake := c.surrender.due(all, c.term.since, now)
	if !gives {
		return nil, wake
	}
	c.surrender.done(now)
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

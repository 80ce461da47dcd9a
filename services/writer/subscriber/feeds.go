package subscriber

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Config configures Feeds. All fields except Random are required.
type Config struct {
	Source string // the inventory's name in the configuration
	// Dial returns a connection to the inventory without waiting for it. Each session has its own, or shares one that has
	// not failed, so that rule R14 alone decides when to connect again: the backoff of a long-lived gRPC channel grows
	// during an outage, and its resolver queries DNS at most twice a minute.
	Dial    func() (*grpc.ClientConn, error)
	Log     *slog.Logger
	Metrics *Metrics // shared by all sources of the process

	Random func() float64 // uniform in [0, 1); nil: math/rand/v2
}

// Feeds has the subscriptions to one inventory: to its one set of nodes, which is the Service "", or to Services that it
// exports. Its methods are safe for concurrent use.
type Feeds struct {
	cfg     Config
	running context.Context // of the clients; canceled when Run ends
	stop    context.CancelFunc
	ended   sync.WaitGroup
	changed chan struct{} // capacity 1
	shared  sharedLink

	mu      sync.Mutex
	clients map[string]*client  // by Service
	used    map[string]string   // the Service that a target uses, by the target's name
	dirty   map[string]struct{} // targets that use what has changed since TakeChanged
}

// New returns Feeds without any subscription.
func New(cfg Config) *Feeds {
	f := &Feeds{
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		shared:  sharedLink{connect: cfg.Dial},
		clients: map[string]*client{},
		used:    map[string]string{},
		dirty:   map[string]struct{}{},
	}
	f.running, f.stop = context.WithCancel(context.Background())
	return f
}

// Run waits until ctx is done, and then ends all subscriptions.
func (f *Feeds) Run(ctx context.Context) error {
	<-ctx.Done()
	f.mu.Lock() // no client starts any more
	f.stop()
	f.mu.Unlock()
	f.ended.Wait()
	return nil
}

// Use sets the Service that a target uses, as namespace/name; empty: the set of an inventory that exports none. It has a
// stream while a target uses it. Use returns what the inventory reports about it; TakeChanged returns the target when that
// changes.
func (f *Feeds) Use(target, service string) Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, uses := f.used[target]; !uses || old != service {
		if f.clients[service] == nil {
			f.start(service)
		}
		f.leave(target)
		f.used[target], f.clients[service].users[target] = service, struct{}{}
	}
	return f.clients[service].published
}

// Leave records that a target uses nothing of the inventory.
func (f *Feeds) Leave(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(target)
}

func (f *Feeds) leave(target string) {
	old, uses := f.used[target]
	if !uses {
		return
	}
	delete(f.used, target)
	delete(f.dirty, target)
	c := f.clients[old]
	delete(c.users, target)
	if len(c.users) == 0 { // a new client may follow the Service before this one has ended
		c.stop()
		delete(f.clients, old)
	}
}

// start subscribes to a Service.
func (f *Feeds) start(service string) {
	running, stop := context.WithCancel(f.running)
	c := newClient(f.cfg, service)
	if service != "" { // there may be many
		c.dial = f.shared.dial
	}
	c.stop, c.publish = stop, func(now time.Time) { f.publish(c, now) }
	f.clients[service] = c
	f.cfg.Metrics.setSnapshot(c.published)
	if f.running.Err() != nil {
		return
	}
	f.ended.Go(func() {
		c.run(running)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.clients[service] == nil {
			f.cfg.Metrics.forget(c.feed)
		}
	})
}

// publish publishes the snapshot of a client and its metrics, and signals a change. It ignores a client that is no longer
// used: another one may publish those of the same set.
func (f *Feeds) publish(c *client, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients[c.service] != c {
		return
	}
	old, snapshot := c.published, c.snapshot()
	changed := old.Differs(snapshot)
	snapshot.ChangedAt = old.ChangedAt
	if changed {
		snapshot.ChangedAt = now
	}
	c.published = snapshot
	f.cfg.Metrics.setSnapshot(snapshot)
	if !changed {
		return
	}
	c.logChanges(old, snapshot)
	maps.Copy(f.dirty, c.users)
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Changed receives a signal when TakeChanged may return some. One signal stands for any number of changes.
func (f *Feeds) Changed() <-chan struct{} { return f.changed }

// TakeChanged returns the targets that use a snapshot which has changed in more than ages and times since the last call.
func (f *Feeds) TakeChanged() (targets map[string]struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	targets, f.dirty = f.dirty, map[string]struct{}{}
	return targets
}

// Snapshots returns those of all Services in use.
func (f *Feeds) Snapshots() []Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Snapshot, 0, len(f.clients))
	for _, c := range f.clients {
		all = append(all, c.published)
	}
	return all
}

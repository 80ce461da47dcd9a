// Package servicefeeds subscribes to what targets use of an inventory: its set of nodes, or Services that it exports. It
// guarantees that a Service has one stream, however many targets use it, and that a change of one Service has no effect
// on targets of another. It does not decide what a target uses.
package servicefeeds

import (
	"context"
	"sync"

	"github.com/slicefeed/slicefeed/services/writer/nodeclient"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// Config is what Feeds needs. All fields are mandatory.
type Config struct {
	NewClient func(service string) *nodeclient.Client
	Forget    func(service string) // is called once the client of a Service has ended
}

// Feeds has the subscriptions to one inventory. Its methods are safe for concurrent use.
type Feeds struct {
	cfg     Config
	running context.Context // of the clients; canceled when Run ends
	stop    context.CancelFunc
	clients sync.WaitGroup
	changed chan struct{} // capacity 1

	mu    sync.Mutex
	feeds map[string]*feed    // by Service
	used  map[string]string   // the Service that a target uses, by the target's name
	dirty map[string]struct{} // Services that have changed since TakeChanged
}

// feed is the subscription to one Service.
type feed struct {
	*nodeclient.Client

	users int // targets
	stop  context.CancelFunc
}

// New returns Feeds without any subscription.
func New(cfg Config) *Feeds {
	f := &Feeds{
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		feeds:   map[string]*feed{},
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
	f.clients.Wait()
	return nil
}

// Use sets the Service that a target uses; empty: the set of an inventory that exports none. It has a stream while a
// target uses it.
func (f *Feeds) Use(target, service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, uses := f.used[target]; uses && old == service {
		return
	}
	if f.feeds[service] == nil {
		f.feeds[service] = f.start(service)
	}
	f.feeds[service].users++
	f.leave(target)
	f.used[target] = service
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
	if x := f.feeds[old]; x != nil {
		if x.users--; x.users == 0 {
			x.Retire() // a new client may follow the Service before this one has ended
			x.stop()
			delete(f.feeds, old)
			delete(f.dirty, old)
		}
	}
}

// start subscribes to a Service.
func (f *Feeds) start(service string) *feed {
	running, stop := context.WithCancel(f.running)
	x := &feed{Client: f.cfg.NewClient(service), stop: stop}
	if f.running.Err() != nil {
		return x
	}
	f.clients.Go(func() {
		for {
			select {
			case <-running.Done():
				return
			case <-x.Changed():
				f.markChanged(service, x)
			}
		}
	})
	f.clients.Go(func() {
		_ = x.Run(running) // nil: it ends when running does
		f.forget(service)
	})
	return x
}

// forget has the metrics of a Service forgotten, unless it is subscribed to again.
func (f *Feeds) forget(service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feeds[service] == nil {
		f.cfg.Forget(service)
	}
}

func (f *Feeds) markChanged(service string, x *feed) {
	f.mu.Lock()
	current := f.feeds[service] == x
	if current {
		f.dirty[service] = struct{}{}
	}
	f.mu.Unlock()
	if !current {
		return
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Changed receives a signal when TakeChanged may return some. One signal stands for any number of changes.
func (f *Feeds) Changed() <-chan struct{} { return f.changed }

// TakeChanged returns the Services whose snapshots have changed since the last call.
func (f *Feeds) TakeChanged() (services map[string]struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	services, f.dirty = f.dirty, map[string]struct{}{}
	return services
}

// Snapshot returns what the inventory reports about a Service that a target uses.
func (f *Feeds) Snapshot(service string) subscriber.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.feeds[service]; x != nil {
		return x.Snapshot()
	}
	return subscriber.Snapshot{}
}

// Snapshots returns those of all Services in use.
func (f *Feeds) Snapshots() []subscriber.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]subscriber.Snapshot, 0, len(f.feeds))
	for _, x := range f.feeds {
		all = append(all, x.Snapshot())
	}
	return all
}

package reconciler

import (
	"context"
	"runtime"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// maxWrites is how many Services are written at the same time. One change may concern hundreds. An API server serves
// some 245 requests of service accounts at a time by default, queues a few and rejects the rest. Far fewer than that
// keep it busy. But Services whose writes hang, as in a namespace with a webhook that does not respond, must not take
// all workers from the others.
const maxWrites = 64

type workQueue = workqueue.TypedDelayingInterface[targets.Key]

// Run reconciles until ctx is done, and returns after the last write has ended.
func Run(ctx context.Context, cfg Config) error {
	decisions, writes := workqueue.NewTypedDelayingQueue[targets.Key](), workqueue.NewTypedDelayingQueue[targets.Key]()
	New(cfg, decisions, writes).run(ctx, decisions, writes)
	return nil
}

func (r *Reconciler) run(ctx context.Context, decisions, writes workQueue) {
	var group sync.WaitGroup
	defer group.Wait()
	defer decisions.ShutDown()
	defer writes.ShutDown()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() { work(ctx, decisions, func(key targets.Key) { r.Decide(key, time.Now()) }) })
	}
	for range maxWrites {
		group.Go(func() { work(ctx, writes, func(key targets.Key) { r.Write(ctx, key, time.Now()) }) })
	}
	for _, source := range r.sources {
		group.Go(func() { onEach(ctx, source.Changed(), func() { r.decideNamed(source.TakeChanged()) }) })
	}
	group.Go(func() { onEach(ctx, r.Lease.Changed(), r.decideAll) })
	group.Go(func() { onEach(ctx, r.Prober.Changed(), func() { r.decideNamed(r.Prober.TakeChanged()) }) })
	group.Go(func() { onEach(ctx, r.Targets.Changed(), r.decideChanged) })
	<-ctx.Done()
}

// work processes keys until the queue is shut down. What is in the queue when ctx is done stays undone.
func work(ctx context.Context, queue workQueue, process func(targets.Key)) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			process(key)
		}
		queue.Done(key)
	}
}

// onEach calls f for each signal until ctx is done.
func onEach(ctx context.Context, signals <-chan struct{}, f func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			f()
		}
	}
}

// decideAll queues a decision about each target.
func (r *Reconciler) decideAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.states {
		r.decisions.Add(key)
	}
}

// decideNamed queues decisions about targets whose sources or probes have changed.
func (r *Reconciler) decideNamed(names map[string]struct{}) {
	for name := range names {
		r.decisions.Add(targets.ParseKey(name))
	}
}

// decideChanged queues a decision about each target that may have changed.
func (r *Reconciler) decideChanged() {
	synced := r.Targets.Synced() == nil // before they are taken: then all that existed at the start are among them
	changed := r.Targets.TakeChanged()
	r.startup.expect(changed, synced)
	for _, key := range changed {
		r.decisions.Add(key)
	}
	if r.startup.done() { // there may be none
		r.Endpoints.MarkSynced()
	}
}

// startup finds out when there was a decision about each target that existed at the start.
type startup struct {
	mu        sync.Mutex
	undecided map[targets.Key]struct{}
	complete  bool // there are no others
}

func (s *startup) expect(keys []targets.Key, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.complete {
		return
	}
	for _, key := range keys {
		s.undecided[key] = struct{}{}
	}
	s.complete = complete
}

// done records decisions, and reports whether none is missing.
func (s *startup) done(decided ...targets.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range decided {
		delete(s.undecided, key)
	}
	return s.complete && len(s.undecided) == 0
}

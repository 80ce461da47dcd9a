package applier

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseConfig is what a Lease needs. Durations that are zero are client-go's usual ones:
// 15 s, 10 s, 2 s.
type LeaseConfig struct {
	Client          kubernetes.Interface
	Namespace, Name string
	Identity        string // of this process; see Identity
	Duration        time.Duration
	RenewDeadline   time.Duration
	RetryPeriod     time.Duration
	Logger          *slog.Logger
	Registerer      prometheus.Registerer
}

// Lease decides which of several writers writes. The others stay warm.
type Lease struct {
	cfg     LeaseConfig
	elector *leaderelection.LeaderElector
	changed chan struct{}

	mu       sync.Mutex
	until    time.Time // the Lease is ours at least so long
	terms    int       // how often it has become ours
	ending   context.Context
	end      func() // of the present candidacy
	released bool   // by Release: it is not ours to write any more, and then left to others for a while
}

// Identity is the host's name, which in a Pod is the Pod's, and something random: a
// process that starts again under the same name is another one.
func Identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "writer"
	}
	return host + "_" + rand.Text()[:8]
}

// NewLease prepares to compete; Run does.
func NewLease(cfg LeaseConfig) (*Lease, error) {
	orDefault(&cfg.Duration, 15*time.Second)
	orDefault(&cfg.RenewDeadline, 10*time.Second)
	orDefault(&cfg.RetryPeriod, 2*time.Second)
	l := &Lease{cfg: cfg, changed: make(chan struct{}, 1)}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: cfg.Name,
		Lock: &watchedLock{lease: l, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
			Client:     cfg.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
		}},
		LeaseDuration:   cfg.Duration,
		RenewDeadline:   cfg.RenewDeadline,
		RetryPeriod:     cfg.RetryPeriod,
		ReleaseOnCancel: true, // the next one need not wait for it to expire
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() { l.renewed(time.Time{}) },
			OnNewLeader: func(identity string) {
				cfg.Logger.Info("leader observed", "lease", cfg.Name, "holder", identity, "self", identity == cfg.Identity)
				l.mark()
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set up leader election for Lease %s/%s: %w", cfg.Namespace, cfg.Name, err)
	}
	l.elector = elector
	cfg.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slicefeed_writer_leader",
		Help: "1 if this writer holds the Lease and writes; 0 if it is a standby.",
	}, func() float64 {
		if l.Leading() {
			return 1
		}
		return 0
	}))
	return l, nil
}

// Run competes until the context ends, and then gives the Lease up if it holds it. What
// writes must have ended before: the next holder may begin at once.
func (l *Lease) Run(ctx context.Context) error {
	l.mu.Lock()
	l.ending = ctx
	l.mu.Unlock()
	for ctx.Err() == nil {
		l.compete(ctx)
	}
	return nil
}

// compete is a candidate until the Lease is lost or given up, and in the latter case then
// leaves it to others for as long as it lasts.
func (l *Lease) compete(ctx context.Context) {
	candidacy, end := context.WithCancel(ctx)
	defer end()
	l.mu.Lock()
	l.end = end
	l.mu.Unlock()
	l.elector.Run(candidacy)
	if candidacy.Err() != nil {
		pause := time.NewTimer(l.cfg.Duration)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	l.released, l.end = false, nil
	l.mu.Unlock()
}

// Release has this writer stop leading, if it does: from then on it sends no write any more. The Lease is
// renewed all the same, so that nobody takes it, until handOver is called once no write is under way. After
// one whole duration of the Lease, in which any other candidate takes it, this one competes again.
func (l *Lease) Release() (handOver func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading() {
		return func() {}
	}
	l.released = true
	l.mark()
	return l.end // of this candidacy: if the Lease is lost meanwhile, the next one is not ended
}

// Leading reports whether the Lease is surely ours: by our own clock, counted from before
// the last renewal was sent, the time by which it must be renewed is not over. A standby
// takes it no earlier than that.
func (l *Lease) Leading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading()
}

func (l *Lease) leading() bool {
	return l.ending != nil && l.ending.Err() == nil && !l.released && time.Now().Before(l.until)
}

// Term is which of our terms this is, counted from 1; 0: we do not lead. It tells whoever has not looked for
// a while that the Lease was lost meanwhile, and perhaps another's, though it is ours again.
func (l *Lease) Term() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading() {
		return 0
	}
	return l.terms
}

// Confirm asks the API server whose the Lease is. Leading goes by our own clock, and meanwhile somebody may
// have deleted the Lease or taken it by hand: then it is ErrNotLeading, and Leading says so too.
func (l *Lease) Confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	lease, err := l.cfg.Client.CoordinationV1().Leases(l.cfg.Namespace).Get(ctx, l.cfg.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read the Lease: %w", err)
	case err != nil, lease.Spec.HolderIdentity == nil:
		l.lost("")
		return ErrNotLeading
	case *lease.Spec.HolderIdentity != l.cfg.Identity:
		l.lost(*lease.Spec.HolderIdentity)
		return ErrNotLeading
	}
	return nil
}

// lost notes that the Lease is another's, or no one's. While this writer still leads, no honest candidate takes it: so
// that is logged as a warning.
func (l *Lease) lost(holder string) {
	if l.Leading() {
		l.cfg.Logger.Warn("Lease taken by another writer before it expired", "lease", l.cfg.Name, "holder", holder)
	}
	l.renewed(time.Time{})
}

// Holder is who holds the Lease as far as we know; empty: not known.
func (l *Lease) Holder() string { return l.elector.GetLeader() }

// Changed has a value whenever Leading may have changed since it was last read. When the
// time to renew merely runs out, Leading says so first.
func (l *Lease) Changed() <-chan struct{} { return l.changed }

func (l *Lease) mark() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// renewed notes until when the Lease is ours; zero: it is not.
func (l *Lease) renewed(until time.Time) {
	l.mu.Lock()
	before := l.leading()
	l.until = until
	after := l.leading()
	if after && !before {
		l.terms++
	}
	l.mu.Unlock()
	if before != after {
		l.mark()
	}
}

// watchedLock notes when each renewal was sent. client-go knows only when it was answered,
// which may be much later. And it sees to it that nobody gives up what another has taken
// meanwhile: client-go reads the Lease anew for that, and does not look whose it is.
type watchedLock struct {
	resourcelock.Interface

	lease  *Lease
	others bool // it was another's, or nobody's, when it was last read
}

// Get reads the Lease. Whoever finds that it was taken, by hand too, leads no longer, however
// much time was left.
func (w *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := w.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	if w.others = record.HolderIdentity != w.lease.cfg.Identity; w.others {
		w.lease.lost(record.HolderIdentity)
	}
	bounded := boundRecord(*record, w.lease.cfg.Duration)
	return &bounded, raw, nil
}

// waitMargin is how much longer than its own Lease's duration a candidate waits for a holder whose Lease lasts longer.
const waitMargin = 5 * time.Second

// boundRecord limits what a Lease may demand of a candidate. Whoever may write the Lease may record a duration of
// 68 years, which the API server accepts and client-go waits for, and a number of terms that overflows when client-go
// adds one, so that the API server rejects each attempt to take the Lease. A second would be as bad: its holder leads
// for longer than that.
func boundRecord(record resourcelock.LeaderElectionRecord, own time.Duration) resourcelock.LeaderElectionRecord {
	record.LeaseDurationSeconds = min(record.LeaseDurationSeconds, int((own+waitMargin)/time.Second))
	if record.HolderIdentity != "" {
		record.LeaseDurationSeconds = max(record.LeaseDurationSeconds, int(own/time.Second))
	}
	if record.LeaderTransitions < 0 || record.LeaderTransitions >= math.MaxInt32 {
		record.LeaderTransitions = 0
	}
	return record
}

// Create takes a Lease that nobody had.
func (w *watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return w.note(record, func() error { return w.Interface.Create(ctx, record) })
}

// Update takes, renews or gives up the Lease.
func (w *watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return w.note(record, func() error { return w.Interface.Update(ctx, record) })
}

func (w *watchedLock) note(record resourcelock.LeaderElectionRecord, send func() error) error {
	ours := record.HolderIdentity == w.lease.cfg.Identity
	if !ours {
		w.lease.renewed(time.Time{})
		if w.others {
			return nil
		}
	}
	sent := time.Now()
	if err := send(); err != nil {
		return err
	}
	if ours {
		w.lease.renewed(sent.Add(w.lease.cfg.RenewDeadline))
	}
	return nil
}

func orDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Package election holds the Lease that decides which of several writers writes.
//
// It guarantees that a process leads only while no honest candidate can take the Lease: by the process's
// own clock, counted from before the last renewal was sent. It stops leading as soon as it
// finds another holder, however much time is left, and never releases a Lease that another one has
// taken. It does not stop writes that are in progress: callers check LeadingSince before each request, and end
// them before Run ends or a hand-over.
package election

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

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
)

// With these values a standby takes over at most 17 s after the leader's death: it sees a renewal up to
// one retry period late, waits until the Lease expires, and tries again up to one period later;
// client-go stretches each period by a factor of up to 2.2. With its usual values, 15 s and 2 s, that is
// nearly 24 s. A request that was sent just before the renew deadline times out 5 s later,
// which is when the Lease expires.
const (
	duration       = 12 * time.Second
	renewDeadline  = 7 * time.Second
	retryPeriod    = time.Second
	requestTimeout = 5 * time.Second
)

// Config has what a Lease needs.
type Config struct {
	Client          kubernetes.Interface
	Namespace, Name string
	Identity        string // of this process; see NewIdentity
	Logger          *slog.Logger
	Registerer      prometheus.Registerer
}

// Lease decides which of several writers writes. The others are warm standbys.
type Lease struct {
	cfg     Config
	elector *leaderelection.LeaderElector
	changed chan struct{}

	mu         sync.Mutex
	validUntil time.Time // this process holds the Lease at least until then
	expiry     *time.Timer
	since      time.Time // when it took it last
	runCtx     context.Context
	endTerm    func() // ends the current candidacy and releases the Lease
	released   bool   // by Release: this process neither leads nor competes for a while
}

// NewIdentity returns the host's name, which in a Pod is the Pod's, with a random suffix: a restarted
// process has another identity.
func NewIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "writer"
	}
	return host + "_" + rand.Text()[:8]
}

// NewLease returns a Lease that competes when Run is called.
func NewLease(cfg Config) (*Lease, error) {
	l := &Lease{cfg: cfg, changed: make(chan struct{}, 1)}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: cfg.Name,
		Lock: &observedLock{lease: l, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
			Client:     cfg.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
		}},
		LeaseDuration:   duration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true, // the next leader need not wait until it expires
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() { l.setValidUntil(time.Time{}) },
			OnNewLeader: func(identity string) {
				cfg.Logger.Info("leader observed", "lease", cfg.Name, "holder", identity, "self", identity == cfg.Identity)
				l.notifyChanged()
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
		if l.LeadingSince().IsZero() {
			return 0
		}
		return 1
	}))
	return l, nil
}

// Run competes until the context ends, and then releases the Lease if this process holds it. All writes must
// have ended before: the next leader may start immediately.
func (l *Lease) Run(ctx context.Context) error {
	l.mu.Lock()
	l.runCtx = ctx
	l.mu.Unlock()
	for ctx.Err() == nil {
		l.runCandidacy(ctx)
	}
	return nil
}

// runCandidacy competes until the Lease is lost or handed over. After a hand-over it leaves the Lease to
// other candidates for the Lease's duration.
func (l *Lease) runCandidacy(ctx context.Context) {
	candidacy, end := context.WithCancel(ctx)
	defer end()
	l.mu.Lock()
	l.endTerm = end
	l.mu.Unlock()
	l.elector.Run(candidacy)
	if candidacy.Err() != nil {
		pause := time.NewTimer(duration)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	l.released, l.endTerm = false, nil
	l.mu.Unlock()
}

// Release makes this process stop leading, if it does. The Lease is still renewed, so that no candidate takes
// it, until the caller calls handOver when no write is in progress. One Lease duration later, in which any other
// candidate takes the Lease, this process competes again.
func (l *Lease) Release() (handOver func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isLeading() {
		return func() {}
	}
	l.released = true
	l.notifyChanged()
	return l.endTerm // of this candidacy: if the Lease is lost before, the next candidacy goes on
}

// isLeading reports whether this process certainly holds the Lease: by its own clock, counted from before
// the last renewal was sent, the renew deadline has not passed. No standby takes the Lease before that.
func (l *Lease) isLeading() bool {
	return l.runCtx != nil && l.runCtx.Err() == nil && !l.released && time.Now().Before(l.validUntil)
}

// LeadingSince returns when this process took the Lease for its current term; zero: it does not lead. Another time
// shows that the Lease was lost, and perhaps held by another writer, even if it was taken again since.
func (l *Lease) LeadingSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isLeading() {
		return time.Time{}
	}
	return l.since
}

// Confirm reads the holder from the API server. This process trusts its clock, but somebody may have deleted the
// Lease or edited its holder: then Confirm returns applier.ErrNotLeader, and this process no longer leads.
func (l *Lease) Confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, err := l.cfg.Client.CoordinationV1().Leases(l.cfg.Namespace).Get(ctx, l.cfg.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read Lease %s/%s: %w", l.cfg.Namespace, l.cfg.Name, err)
	case err != nil, lease.Spec.HolderIdentity == nil:
		l.markTaken("")
		return applier.ErrNotLeader
	case *lease.Spec.HolderIdentity != l.cfg.Identity:
		l.markTaken(*lease.Spec.HolderIdentity)
		return applier.ErrNotLeader
	}
	return nil
}

// markTaken records that another process holds the Lease, or none. No honest candidate takes it from a process that
// leads, so that is logged as a warning.
func (l *Lease) markTaken(holder string) {
	if !l.LeadingSince().IsZero() {
		l.cfg.Logger.Warn("Lease taken by another writer before it expired", "lease", l.cfg.Name, "holder", holder)
	}
	l.setValidUntil(time.Time{})
}

// Holder returns the identity of the last holder that was observed, or "".
func (l *Lease) Holder() string { return l.elector.GetLeader() }

// Changed has a value whenever LeadingSince may have changed since it was last read.
func (l *Lease) Changed() <-chan struct{} { return l.changed }

func (l *Lease) notifyChanged() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// setValidUntil records until when this process holds the Lease; zero: it does not.
func (l *Lease) setValidUntil(until time.Time) {
	l.mu.Lock()
	before := l.isLeading()
	l.validUntil = until
	after := l.isLeading()
	if after && !before {
		l.since = time.Now()
	}
	if l.expiry != nil {
		l.expiry.Stop()
	}
	if after { // nothing else happens then if the API server is away
		l.expiry = time.AfterFunc(time.Until(until), l.notifyChanged)
	}
	l.mu.Unlock()
	if before != after {
		l.notifyChanged()
	}
}

// observedLock records when each renewal was sent; client-go only knows when it was answered, which may be
// much later. It also prevents that this process releases a Lease that another one has taken: client-go reads
// the Lease again to release it, and does not compare the holder.
type observedLock struct {
	resourcelock.Interface

	lease       *Lease
	heldByOther bool // or by none, when it was last read
}

// Get reads the Lease. If another process has taken it, this one stops leading, however much time is left.
func (o *observedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	if o.heldByOther = record.HolderIdentity != o.lease.cfg.Identity; o.heldByOther {
		o.lease.markTaken(record.HolderIdentity)
	}
	bounded := boundRecord(*record)
	return &bounded, raw, nil
}

// waitMargin is how much longer than its own duration a candidate waits for a Lease of a longer duration.
const waitMargin = 5 * time.Second

// boundRecord limits what a Lease can demand of a candidate. Whoever may update the Lease can record a duration of
// 68 years, which the API server accepts and client-go waits for, and a number of transitions that overflows when
// client-go increments it, so that the API server rejects each attempt to take the Lease. A duration of one second would
// be as bad: the holder leads for longer than that.
func boundRecord(record resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	record.LeaseDurationSeconds = min(record.LeaseDurationSeconds, int((duration+waitMargin)/time.Second))
	if record.HolderIdentity != "" {
		record.LeaseDurationSeconds = max(record.LeaseDurationSeconds, int(duration/time.Second))
	}
	if record.LeaderTransitions < 0 || record.LeaderTransitions >= math.MaxInt32 {
		record.LeaderTransitions = 0
	}
	return record
}

// Create takes a Lease that did not exist.
func (o *observedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return o.send(record, func() error { return o.Interface.Create(ctx, record) })
}

// Update takes, renews or releases the Lease.
func (o *observedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return o.send(record, func() error { return o.Interface.Update(ctx, record) })
}

func (o *observedLock) send(record resourcelock.LeaderElectionRecord, request func() error) error {
	takes := record.HolderIdentity == o.lease.cfg.Identity
	if !takes {
		o.lease.setValidUntil(time.Time{})
		if o.heldByOther {
			return nil
		}
	}
	sent := time.Now()
	if err := request(); err != nil {
		return err
	}
	if takes {
		o.lease.setValidUntil(sent.Add(renewDeadline))
	}
	return nil
}

package election

import (
	"context"
	"math"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

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

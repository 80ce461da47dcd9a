// Package plan shows what a writer would write, without writing.
//
// Both ways are a dry run of package reconciler, which decides as a leader does: the command plan shows the decision
// about each target once all inputs are there, and Changes what serve would write, whenever that changes. It guarantees
// that nothing is changed in a cluster. It does not decide.
package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	problem "github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// pollInterval is how often Run checks whether all sources are synced and all probes have a status.
const pollInterval = 100 * time.Millisecond

// Run decides about each target until all sources are synced, which the timeout limits, and then until no probe is
// pending, at most as long as a first status takes. It returns the report of what would be written, or nil; its error
// names the rejected targets, too. The inputs in the configuration must be running.
func Run(ctx context.Context, cfg reconciler.Config, b *report.Builder, timeout time.Duration) (problem.Report, error) {
	previews, err := decide(ctx, cfg, timeout)
	if err != nil {
		return nil, err
	}
	all, err := b.Plan(previews, time.Now())
	if err != nil {
		return nil, err
	}
	for i := range previews {
		if p := &previews[i]; p.View.Rejection != nil {
			err = errors.Join(
				err,
				fmt.Errorf("service %s is rejected, and nothing is added to its slices: %s", p.Key, p.View.Rejection.Message),
			)
		}
	}
	return all, err
}

func decide(ctx context.Context, cfg reconciler.Config, timeout time.Duration) (results []report.Preview, err error) {
	r := run{cfg: cfg, previews: map[targets.Key]report.Preview{}}
	cfg.DryRun = r.put
	var reconciling sync.WaitGroup
	defer reconciling.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reconciling.Go(func() { reconciler.Run(ctx, cfg) }) //nolint:errcheck // it only ends when ctx is done

	deadline, synced := time.Now().Add(timeout), false
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		now := time.Now()
		decided, err := r.results()
		if err == nil {
			results = decided
		}
		if err == nil && !synced { // from now on only probes are awaited
			synced, deadline = true, now
			for i := range results {
				deadline = now.Add(max(deadline.Sub(now), results[i].ProbeTimeout))
			}
		}
		switch pending := slices.ContainsFunc(results, func(p report.Preview) bool { return p.PendingProbes > 0 }); {
		case synced && (!pending || !now.Before(deadline)):
			return results, nil
		case !now.Before(deadline):
			return nil, fmt.Errorf("%w within %s; run slicefeed-writer preflight to find out why", err, timeout)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// maxFirstStatusTime is how long the first status of a backend takes at most: three probes that fail, each as
// late as possible.
func maxFirstStatusTime(spec probe.Spec) time.Duration {
	const failures = 3
	return min(failures*spec.Interval+spec.Timeout+time.Second, time.Minute)
}

type run struct {
	cfg reconciler.Config

	mu       sync.Mutex
	previews map[targets.Key]report.Preview
}

func (r *run) put(p report.Preview) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.previews[p.Key] = p
}

// results returns the last decision about every target. Its error says what is not synced yet.
func (r *run) results() (results []report.Preview, err error) {
	if err := r.cfg.Targets.Synced(); err != nil {
		return nil, err
	}
	if decided, _ := r.cfg.Board.SyncState(); !decided {
		return nil, errors.New("no decision about every Service")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(r.previews), targets.Key.Compare) {
		decided := r.previews[key]
		if decided.Unsynced != nil {
			return nil, decided.Unsynced
		}
		if decided.Managed() {
			decided.ProbeTimeout = maxFirstStatusTime(decided.View.Target.Settings.Probe)
		}
		results = append(results, decided)
	}
	return results, nil
}

// Changes prints what a dry run of serve would write for a target, whenever that changes.
type Changes struct {
	out io.Writer

	mu      sync.Mutex
	printed map[targets.Key]string
}

// NewChanges returns Changes that are printed to out.
func NewChanges(out io.Writer) *Changes { return &Changes{out: out, printed: map[targets.Key]string{}} }

// Print is the DryRun of a Reconciler.
func (c *Changes) Print(p report.Preview) {
	if p.Unsynced != nil || p.View.Rejection != nil { // nothing would be written
		return
	}
	text := p.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.printed[p.Key] != text {
		c.printed[p.Key] = text
		io.WriteString(c.out, text) //nolint:errcheck // the next change is printed all the same
	}
}

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

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Result is what would be done about one target.
type Result struct {
	reconciler.Preview

	Key          targets.Key
	ProbeTimeout time.Duration // for which first probe statuses were awaited
}

// pollInterval is how often Run checks whether all sources are synced and all probes have a status.
const pollInterval = 100 * time.Millisecond

// Run decides about each target until all sources are synced, which the timeout limits, and then until no probe is
// pending, at most as long as a first status takes. It returns the results by target. The inputs in the configuration
// must be running.
func Run(ctx context.Context, cfg reconciler.Config, timeout time.Duration) (results []Result, err error) {
	r := run{cfg: cfg, previews: map[targets.Key]reconciler.Preview{}}
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
		switch pending := slices.ContainsFunc(results, func(result Result) bool { return result.PendingProbes > 0 }); {
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
	previews map[targets.Key]reconciler.Preview
}

func (r *run) put(key targets.Key, p reconciler.Preview) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.previews[key] = p
}

// results returns the last decision about every target. Its error says what is not synced yet.
func (r *run) results() (results []Result, err error) {
	if err := r.cfg.Targets.Synced(); err != nil {
		return nil, err
	}
	if decided, _ := r.cfg.Board.SyncState(); !decided {
		return nil, errors.New("no decision about every Service")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(r.previews), targets.Key.Compare) {
		result := Result{Preview: r.previews[key], Key: key}
		if result.Unsynced != nil {
			return nil, result.Unsynced
		}
		if result.Managed() {
			result.ProbeTimeout = maxFirstStatusTime(result.View.Target.Settings.Probe)
		}
		results = append(results, result)
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
func (c *Changes) Print(key targets.Key, p reconciler.Preview) {
	if p.Unsynced != nil || p.View.Rejection != nil { // nothing would be written
		return
	}
	var text string
	if p.View.Relevant {
		service := describeService(&Result{Preview: p, Key: key})
		text = service.writes()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.printed[key] != text {
		c.printed[key] = text
		io.WriteString(c.out, text) //nolint:errcheck // the next change is printed all the same
	}
}

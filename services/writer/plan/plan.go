// Package plan shows what a writer would write, without writing.
//
// It has the command plan, which decides once about each target as a writer that takes over now would, and the
// store of a dry run, which prints what serve would write. It guarantees that nothing is changed in a cluster. It does
// not decide: package reconciler does.
package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// Timeouts limit how long Run waits.
type Timeouts struct {
	Sync   time.Duration                  // for the caches, and for the initial sync of the sources
	Probes func(probe.Spec) time.Duration // for the first status of a probe; nil: as long as that may take
}

// pollInterval is how often Run decides again while it waits for sources and probes.
const pollInterval = 100 * time.Millisecond

// Run decides about each target until all sources are synced and no probe is pending, or time is over, and returns
// the results by target. The stages in the configuration must be running; its Lease, Applier and Board are not used.
func Run(ctx context.Context, cfg reconciler.Config, timeouts Timeouts) (results []Result, err error) {
	if timeouts.Probes == nil {
		timeouts.Probes = maxFirstStatusTime
	}
	r := run{cfg: cfg, previewer: reconciler.New(cfg, nil, nil), timeouts: timeouts}
	deadline, synced := time.Now().Add(timeouts.Sync), false
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		now := time.Now()
		decided, err := r.decideAll(now)
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
			return nil, fmt.Errorf("%w within %s; run slicefeed-writer preflight to find out why", err, timeouts.Sync)
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
	cfg       reconciler.Config
	previewer *reconciler.Reconciler
	timeouts  Timeouts
	known     []targets.Key // sorted
}

// decideAll decides about every target. Its error says what is not synced yet.
func (r *run) decideAll(now time.Time) (results []Result, err error) {
	if err := r.cfg.Targets.Synced(); err != nil {
		return nil, err
	}
	r.known = append(r.known, r.cfg.Targets.TakeChanged()...)
	slices.SortFunc(r.known, func(a, b targets.Key) int { return strings.Compare(a.String(), b.String()) })
	r.known = slices.Compact(r.known)
	for _, key := range r.known {
		preview, err := r.previewer.Preview(key, now)
		if err != nil {
			return nil, err
		}
		result := Result{Preview: preview, Key: key}
		if preview.Managed() {
			result.ProbeTimeout = r.timeouts.Probes(preview.View.Target.Settings.Probe)
		}
		results = append(results, result)
	}
	return results, nil
}

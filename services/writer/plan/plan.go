// Package plan shows what a writer would write, without writing.
//
// It has the command plan, which decides once about each target as a writer that takes over now would, and the
// store of a dry run, which prints what serve would write. It guarantees that nothing is changed in a cluster. It does
// not decide: package control does.
package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/control"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Result is what would be done about one target.
type Result struct {
	control.Preview

	Key          targets.Key
	ProbeTimeout time.Duration // for which first probe statuses were awaited
}

// Timeouts limit how long Run waits.
type Timeouts struct {
	Sync   time.Duration                   // for the caches, and for the initial sync of the sources
	Probes func(prober.Spec) time.Duration // for the first status of a probe; nil: as long as that may take
}

// Run decides once about each target, and returns the results by target. The stages in the configuration must be
// running; its Lease, Applier and Board are not used.
func Run(ctx context.Context, cfg control.Config, timeouts Timeouts) ([]Result, error) {
	if timeouts.Probes == nil {
		timeouts.Probes = maxFirstStatusTime
	}
	r := &run{cfg: cfg, previewer: control.NewPreviewer(cfg), timeouts: timeouts, results: map[targets.Key]*Result{}}
	if err := r.decideWhenSynced(ctx); err != nil {
		return nil, err
	}
	var sorted []Result
	for _, key := range r.sortedKeys() {
		sorted = append(sorted, *r.results[key])
	}
	return sorted, nil
}

// maxFirstStatusTime is how long the first status of a backend takes at most: three probes that fail, each as
// late as possible.
func maxFirstStatusTime(spec prober.Spec) time.Duration {
	const failures = 3
	return min(failures*spec.Interval+spec.Timeout+time.Second, time.Minute)
}

type run struct {
	cfg       control.Config
	previewer *control.Previewer
	timeouts  Timeouts
	results   map[targets.Key]*Result
}

// decideWhenSynced decides again with each change until all sources are synced and no probe is pending, or time is over.
func (r *run) decideWhenSynced(ctx context.Context) error {
	changed := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	var forwarders sync.WaitGroup
	defer forwarders.Wait()
	defer stop()
	for _, source := range r.cfg.Sources {
		forwarders.Go(func() { forwardChanges(watching, source.Changed(), changed) })
	}
	timeout := time.NewTimer(r.timeouts.Sync)
	defer timeout.Stop()
	for synced := false; ; {
		err := r.decideAll(time.Now())
		if err == nil && !synced { // from now on only probes are awaited
			synced = true
			timeout.Reset(r.maxProbeTimeout())
		}
		if synced && !r.anyProbePending() {
			return nil
		}
		select {
		case <-r.cfg.Targets.Changed():
		case <-changed:
		case <-r.cfg.Prober.Changed():
			r.cfg.Prober.TakeChanged()
		case <-timeout.C:
			if synced {
				return nil
			}
			return fmt.Errorf("%w within %s; run slicefeed-writer preflight to find out why", err, r.timeouts.Sync)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func forwardChanges(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
		}
		select {
		case <-ctx.Done():
			return
		case to <- struct{}{}:
		}
	}
}

// decideAll decides about every target. Its error says what is not synced yet.
func (r *run) decideAll(now time.Time) error {
	if err := r.cfg.Targets.Synced(); err != nil {
		return err
	}
	for _, key := range r.cfg.Targets.TakeChanged() {
		if r.results[key] == nil {
			r.results[key] = &Result{Key: key}
		}
	}
	for _, key := range r.sortedKeys() {
		result := r.results[key]
		preview, err := r.previewer.Decide(key, now)
		if result.Preview = preview; err != nil {
			return err
		}
		if preview.Managed() {
			result.ProbeTimeout = r.timeouts.Probes(preview.View.Target.Settings.Probe)
		}
	}
	return nil
}

func (r *run) sortedKeys() []targets.Key {
	return slices.SortedFunc(maps.Keys(r.results), func(a, b targets.Key) int { return strings.Compare(a.String(), b.String()) })
}

func (r *run) anyProbePending() bool {
	for _, result := range r.results {
		if result.PendingProbes > 0 {
			return true
		}
	}
	return false
}

func (r *run) maxProbeTimeout() (longest time.Duration) {
	for _, result := range r.results {
		longest = max(longest, result.ProbeTimeout)
	}
	return longest
}

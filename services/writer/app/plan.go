package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	writerreport "github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

const (
	planTimeout  = time.Minute            // how long plan waits for the caches and for the initial sync of the sources
	pollInterval = 100 * time.Millisecond // how often it checks for them
)

// runPlan makes one decision about each target, as a writer that takes over now would, and prints
// what that writer would write.
func runPlan(ctx context.Context, inv command.Invocation[Config]) error {
	cfg := *inv.Config
	cfg.Store = "memory" // no Lease, no Events, and a client that sends no write
	log := slog.New(slog.NewTextHandler(inv.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w, err := buildWriter(&cfg, inv.Version, log)
	if err != nil {
		return settings.NewConfigError(err)
	}
	w.dryRun.out = io.Discard                                                                              // all at the end
	w.reconcilerConfig.Reporter = events.NewReporter(events.Config{Logger: slog.New(slog.DiscardHandler)}) // the plan has the warnings
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.startInputs(running, g)
	fmt.Fprintf(inv.Err, "waiting up to %s for caches and inventories…\n", planTimeout)
	r, err := w.dryRun.plan(running, w.reconcilerConfig, w.report, planTimeout)
	stop()
	if err = errors.Join(err, g.Wait()); r == nil {
		return err
	}
	return errors.Join(report.WriteAs(inv.Out, inv.Format, r), err)
}

// dryRun has what a writer would write for each target by its last decision, and prints that whenever it changes.
// Nothing of it is written.
type dryRun struct {
	out io.Writer

	mu       sync.Mutex
	previews map[targets.Key]writerreport.Preview
	printed  map[targets.Key]string
}

func newDryRun(out io.Writer) *dryRun {
	return &dryRun{out: out, previews: map[targets.Key]writerreport.Preview{}, printed: map[targets.Key]string{}}
}

// put takes the decisions of a Reconciler.
func (d *dryRun) put(p writerreport.Preview) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.previews[p.Key] = p
	if p.Unsynced != nil || p.View.Rejection != nil { // nothing would be written
		return
	}
	if text := p.Text(); d.printed[p.Key] != text {
		d.printed[p.Key] = text
		io.WriteString(d.out, text) //nolint:errcheck // the next change is printed all the same
	}
}

// plan decides about each target, and returns the report of what would be written, or nil; its error names the rejected
// targets, too. The inputs in the configuration must be running.
func (d *dryRun) plan(
	ctx context.Context, cfg reconciler.Config, b *writerreport.Builder, timeout time.Duration,
) (report.Report, error) {
	cfg.DryRun = d.put
	var reconciling sync.WaitGroup
	defer reconciling.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reconciling.Go(func() { reconciler.Run(ctx, cfg) }) //nolint:errcheck // it only ends when ctx is done
	previews, err := d.await(ctx, cfg, timeout)
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

// await returns the decisions once all sources are synced, which the timeout limits, and then no probe is pending, which
// takes as long as a first status at most.
func (d *dryRun) await(ctx context.Context, cfg reconciler.Config, timeout time.Duration) (all []writerreport.Preview, err error) {
	poll := func(timeout time.Duration, done func() bool) {
		_ = wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(context.Context) (bool, error) { return done(), nil })
	}
	poll(timeout, func() bool {
		all, err = d.synced(cfg)
		return err == nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w within %s; run slicefeed-writer preflight to find out why", err, timeout)
	}
	longest := time.Duration(0)
	for i := range all {
		longest = max(longest, all[i].ProbeTimeout)
	}
	poll(longest, func() bool {
		if now, err := d.synced(cfg); err == nil {
			all = now
		}
		return !slices.ContainsFunc(all, func(p writerreport.Preview) bool { return p.PendingProbes > 0 })
	})
	return all, context.Cause(ctx)
}

// synced returns the last decision about every target. Its error says what is not synced yet.
func (d *dryRun) synced(cfg reconciler.Config) (all []writerreport.Preview, err error) {
	if err := cfg.Targets.Synced(); err != nil {
		return nil, err
	}
	if decided, _ := cfg.Endpoints.SyncState(); !decided {
		return nil, errors.New("no decision about every Service")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(d.previews), targets.Key.Compare) {
		p := d.previews[key]
		if p.Unsynced != nil {
			return nil, p.Unsynced
		}
		if p.Managed() {
			p.ProbeTimeout = maxFirstStatusTime(p.View.Settings.Probe)
		}
		all = append(all, p)
	}
	return all, nil
}

// maxFirstStatusTime is how long the first status of a backend takes at most: three probes that fail, each as
// late as possible.
func maxFirstStatusTime(spec probe.Spec) time.Duration {
	const failures = 3
	return min(failures*spec.Interval+spec.Timeout+time.Second, time.Minute)
}

package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// ObservationTimeout is how long the command list waits for the first complete observation.
const ObservationTimeout = time.Minute

// Pipeline is the part of the inventory that observes the secured cluster and the cloud, and publishes
// to no client. The command list runs it alone.
type Pipeline struct {
	*Collector

	Set *feed.Set
}

// NewPipeline returns a pipeline that does not run yet.
func NewPipeline(cfg Config) *Pipeline { return &Pipeline{Collector: New(cfg), Set: cfg.Set} }

// Run follows the source and updates the set until ctx is done.
func (p *Pipeline) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.source.Run(ctx) })
	g.Go(func() error { return p.Collector.Run(ctx) })
	return g.Wait()
}

// Cloud returns the client of the cloud; nil if addresses come from elsewhere.
func (p *Pipeline) Cloud() Cloud { return p.cloud }

// checkPublishable returns why the nodes cannot be published as complete, or nil.
func checkPublishable(s source.Status) error {
	problem := "no complete observation yet"
	switch {
	case s.Publishable:
		return nil
	case s.Observation > 0 && max(s.Membership.Sync, s.Addresses.Sync) >= source.Unsynced:
		problem = "nodes cannot be published"
	case s.Observation > 0:
		problem = "a ready node has no address, which another listing must confirm"
	}
	return fmt.Errorf("%s: membership is %s, addresses are %s", problem, describePart(s.Membership), describePart(s.Addresses))
}

func describePart(p source.PartStatus) string {
	if p.Reason == "" {
		return p.Sync.String()
	}
	return fmt.Sprintf("%s (%s)", p.Sync, p.Reason)
}

// ObserveOnce runs the pipeline until its nodes can be published or the timeout, and reports
// what it waits for. It returns after the pipeline has stopped, so callers can read the roster.
// After a timeout, missing describes why not; err is an error of the pipeline itself.
func (p *Pipeline) ObserveOnce(ctx context.Context, timeout time.Duration, report func(string)) (missing, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runErr := make(chan error, 1)
	go func() { runErr <- p.Run(ctx) }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()

	report("reading the nodes…")
	reported := map[string]bool{}
	reportOnce := func(text string) {
		if !reported[text] {
			reported[text] = true
			report(text)
		}
	}
	for {
		status, changed := p.Set.Status()
		if missing = checkPublishable(status); missing == nil {
			break
		}
		if status.Observation > 0 {
			reportOnce("  " + display.Sanitize(missing.Error()))
		}
		if status.Membership.Sync == source.Synced && p.cloud != nil {
			reportOnce("listing the cloud…")
		}
		for _, part := range []source.PartStatus{status.Membership, status.Addresses} {
			if _, cause, ok := strings.Cut(part.Reason, ": "); ok { // "what failed: the error"
				reportOnce("  retrying: " + display.Sanitize(cause))
			}
		}
		select {
		case err := <-runErr:
			return nil, cmp.Or(err, ctx.Err(), errors.New("observation ended early"))
		case <-changed:
			continue
		case <-timer.C:
		}
		break
	}
	cancel()
	return missing, <-runErr
}

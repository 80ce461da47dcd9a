package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// ObservationTimeout is how long the command list waits for the first complete observation.
const ObservationTimeout = time.Minute

// checkPublishable returns why the nodes cannot be published as complete, or nil.
func checkPublishable(s roster.Status) error {
	problem := "no complete observation yet"
	switch {
	case s.Publishable:
		return nil
	case s.Observation > 0 && max(s.Membership.Sync, s.Addresses.Sync) >= roster.Unsynced:
		problem = "nodes cannot be published"
	case s.Observation > 0:
		problem = "a ready node has no address, which another listing must confirm"
	}
	return fmt.Errorf("%s: membership is %s, addresses are %s", problem, describePart(s.Membership), describePart(s.Addresses))
}

func describePart(p roster.PartStatus) string {
	if p.Reason == "" {
		return p.Sync.String()
	}
	return fmt.Sprintf("%s (%s)", p.Sync, p.Reason)
}

// ObserveOnce runs the collector until its nodes can be published or the timeout, and reports
// what it waits for. It returns after it has stopped, so callers can read the roster.
// After a timeout, missing describes why not; err is an error of the collector itself.
func (c *Collector) ObserveOnce(ctx context.Context, timeout time.Duration, report func(string)) (missing, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runErr := make(chan error, 1)
	go func() { runErr <- c.Run(ctx) }()
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
		status, changed := c.Set.Status()
		if missing = checkPublishable(status); missing == nil {
			break
		}
		if status.Observation > 0 {
			reportOnce("  " + display.Sanitize(missing.Error()))
		}
		if status.Membership.Sync == roster.Synced && c.cloud != nil {
			reportOnce("listing the cloud…")
		}
		for _, part := range []roster.PartStatus{status.Membership, status.Addresses} {
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

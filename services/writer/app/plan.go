package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/plan"
)

// planTimeout is how long plan waits for the caches and for the initial sync of the sources.
const planTimeout = time.Minute

// runPlan makes one decision about each target, as a writer that takes over now would, and prints
// what that writer would write.
func runPlan(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	cfg := *inv.Config
	cfg.Store = "memory" // no Lease, no Events, and a client that sends no write
	notices := plan.NewNotices(inv.Err)
	w, err := buildWriter(&cfg, version, notices.Logger())
	if err != nil {
		return settings.NewConfigError(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.startInputs(running, g)
	fmt.Fprintf(inv.Err, "waiting up to %s for caches and inventories…\n", planTimeout)
	results, err := plan.Run(running, w.reconcilerConfig, plan.Timeouts{Sync: planTimeout})
	stop()
	if err = errors.Join(notices.WithLastNotice(err), g.Wait()); err != nil {
		return err
	}
	return plan.Print(inv.Out, inv.Format, results)
}

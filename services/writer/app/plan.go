package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/plan"
)

// planTimeout is how long plan waits for the caches and for the initial sync of the sources.
const planTimeout = time.Minute

// runPlan makes one decision about each target, as a writer that takes over now would, and prints
// what that writer would write.
func runPlan(ctx context.Context, inv command.Invocation[config.Config]) error {
	cfg := *inv.Config
	cfg.Store = "memory" // no Lease, no Events, and a client that sends no write
	log := slog.New(slog.NewTextHandler(inv.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w, err := buildWriter(&cfg, inv.Version, log)
	if err != nil {
		return settings.NewConfigError(err)
	}
	w.reconcilerConfig.Reporter = events.NewReporter(events.Config{Logger: slog.New(slog.DiscardHandler)}) // the plan has the warnings
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.startInputs(running, g)
	fmt.Fprintf(inv.Err, "waiting up to %s for caches and inventories…\n", planTimeout)
	r, err := plan.Run(running, w.reconcilerConfig, w.report, planTimeout)
	stop()
	if err = errors.Join(err, g.Wait()); r == nil {
		return err
	}
	return errors.Join(report.WriteAs(inv.Out, inv.Format, r), err)
}

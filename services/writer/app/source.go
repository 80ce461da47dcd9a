package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/nodeclient"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// source is one inventory and the link to it.
type source struct {
	reconciler.Source

	client *nodeclient.Client
	link   *sources.Link
}

// openSources creates the links to all inventories. They connect when Run starts.
func openSources(cfg *config.Config, all []sources.Source, log *slog.Logger, registry prometheus.Registerer) ([]*source, error) {
	metrics := nodeclient.NewMetrics(registry)
	var opened []*source
	var problems []error
	for _, src := range all {
		inventory, err := src.OpenLink(cfg.TLSFiles(), log, registry)
		if err != nil {
			if cfg.SourcesFile != "" {
				err = fmt.Errorf("source %s: %w", src.Name, err)
			}
			problems = append(problems, err)
			continue
		}
		s := &source{Source: reconciler.Source{Name: src.Name, CIDRs: src.CIDRs, AllowsPort: src.AllowsPort}, link: inventory}
		s.client = nodeclient.New(nodeclient.Config{
			Source: src.Name, Log: log, Metrics: metrics, ConfirmObservations: cfg.EmptyThreshold,
			Dial: func() (nodeclient.Conn, error) { return inventory.Dial() },
		})
		s.Feed = s.client
		opened = append(opened, s)
	}
	return opened, errors.Join(problems...)
}

// Run receives the inventory's stream until ctx is done.
func (s *source) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error { return s.client.Run(ctx) })
	return g.Wait()
}

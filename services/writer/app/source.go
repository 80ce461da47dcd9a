package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// source is one inventory and the link to it.
type source struct {
	reconciler.Source

	link  *link.Client
	feeds *subscriber.Feeds
}

// openSources creates the links to all inventories. They connect when Run starts.
func openSources(cfg *Config, all []sources.Source, log *slog.Logger, registry prometheus.Registerer) ([]*source, error) {
	metrics := subscriber.NewMetrics(registry)
	var opened []*source
	var problems []error
	for _, src := range all {
		inventory, err := src.NewClient(cfg.TLSFiles(), log, registry)
		if err != nil {
			if cfg.SourcesFile != "" {
				err = fmt.Errorf("source %s: %w", src.Name, err)
			}
			problems = append(problems, err)
			continue
		}
		feeds := subscriber.New(subscriber.Config{Source: src.Name, Dial: inventory.Dial, Log: log, Metrics: metrics})
		s := &source{link: inventory, feeds: feeds}
		s.Source = reconciler.Source{Feeds: feeds, Name: src.Name, CIDRs: settings.ToPrefixes(src.CIDRs)}
		opened = append(opened, s)
	}
	return opened, errors.Join(problems...)
}

// Run receives the inventory's streams until ctx is done.
func (s *source) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error { return s.feeds.Run(ctx) })
	return g.Wait()
}

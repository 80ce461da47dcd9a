package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/control"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// source is one inventory and the link to it.
type source struct {
	control.Source

	subscriber *subscriber.Subscriber
	link       *sources.Link
}

// openSources creates the links to all inventories. They connect when Run starts.
func openSources(cfg *config.Config, all []sources.Source, log *slog.Logger, registry prometheus.Registerer) ([]*source, error) {
	metrics := subscriber.NewMetrics(registry)
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
		s := &source{Source: control.Source{Name: src.Name, CIDRs: src.CIDRs}, link: inventory}
		s.subscriber = subscriber.New(subscriber.Config{
			Source: src.Name, Log: log, Metrics: metrics, ConfirmObservations: cfg.EmptyThreshold,
			Dial: func() (subscriber.Conn, error) { return inventory.Dial() },
		})
		s.Feed = s.subscriber
		opened = append(opened, s)
	}
	return opened, errors.Join(problems...)
}

// Run receives the inventory's stream until ctx is done.
func (s *source) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error { return s.subscriber.Run(ctx) })
	return g.Wait()
}

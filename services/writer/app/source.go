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
	"github.com/slicefeed/slicefeed/services/writer/servicefeeds"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// source is one inventory and the link to it.
type source struct {
	reconciler.Source

	link     *sources.Link
	client   *nodeclient.Client  // of an inventory that publishes one set; else nil
	services *servicefeeds.Feeds // of one that exports Services; else nil
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
		client := nodeclient.Config{
			Source: src.Name, Log: log, Metrics: metrics,
			Dial: func() (nodeclient.Conn, error) { return inventory.Dial() },
		}
		if src.ExportsServices {
			shared := &sources.SharedLink{Connect: inventory.Dial}
			client.Dial = func() (nodeclient.Conn, error) { return shared.Dial() }
			s.services = servicefeeds.New(servicefeeds.Config{
				NewClient: func(service string) *nodeclient.Client {
					config := client
					config.Service = service
					return nodeclient.New(config)
				},
				Forget: func(service string) { metrics.Forget(src.Name, service) },
			})
			s.Services = s.services
		} else {
			s.client = nodeclient.New(client)
			s.Feed = s.client
		}
		opened = append(opened, s)
	}
	return opened, errors.Join(problems...)
}

// Run receives the inventory's streams until ctx is done.
func (s *source) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error {
		if s.services != nil {
			return s.services.Run(ctx)
		}
		return s.client.Run(ctx)
	})
	return g.Wait()
}

// snapshots returns what the inventory reports.
func (s *source) snapshots() []subscriber.Snapshot {
	if s.services != nil {
		return s.services.Snapshots()
	}
	return []subscriber.Snapshot{s.client.Snapshot()}
}

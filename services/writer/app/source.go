package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/control"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// defaultSourceName is the name of the only source when there is no SOURCES_FILE.
const defaultSourceName = "default"

// loadSources returns the configured sources, sorted by name.
func (c *Config) loadSources() ([]sources.Source, error) {
	defaults := sources.Source{
		Name: defaultSourceName, Address: c.Inventory, SAN: c.InventorySAN, CAFile: c.PeerCA,
		CIDRs: settings.ToPrefixes(c.Subnets), Ports: c.AllowedPorts,
	}
	if c.SourcesFile == "" {
		return []sources.Source{defaults}, nil
	}
	return sources.Read(c.SourcesFile, defaults)
}

// source is one inventory and the link to it.
type source struct {
	control.Source

	subscriber *subscriber.Subscriber
	link       *link.Client
	address    string
}

// openSources creates the links to all inventories. They connect when Run starts.
func openSources(cfg *Config, all []sources.Source, log *slog.Logger, registry prometheus.Registerer) ([]*source, error) {
	metrics := subscriber.NewMetrics(registry)
	var opened []*source
	var problems []error
	for _, src := range all {
		s, err := openSource(cfg, src, log, registry)
		if err != nil {
			if cfg.SourcesFile != "" {
				err = fmt.Errorf("source %s: %w", src.Name, err)
			}
			problems = append(problems, err)
			continue
		}
		s.subscriber = subscriber.New(subscriber.Config{
			Source: src.Name, Log: log, Metrics: metrics, ConfirmObservations: cfg.EmptyThreshold,
			Dial: func() (subscriber.Conn, error) { return s.dial() },
		})
		s.Feed = s.subscriber
		opened = append(opened, s)
	}
	return opened, errors.Join(problems...)
}

func openSource(cfg *Config, src sources.Source, log *slog.Logger, registry prometheus.Registerer) (*source, error) {
	files := cfg.tlsFiles()
	files.PeerCA = src.CAFile
	client, err := link.NewClient(link.Config{
		Component: "writer", Name: src.Name, Files: files, Logger: log, Registerer: registry,
	}, src.SAN)
	if err != nil {
		return nil, err
	}
	s := &source{Source: control.Source{Name: src.Name, CIDRs: src.CIDRs}, link: client, address: src.Address}
	conn, err := s.dial() // reports an invalid address before Run
	if err != nil {
		return nil, err
	}
	return s, conn.Close()
}

// dial creates a connection to the inventory, which connects with the first call.
func (s *source) dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(s.address, s.link.DialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("inventory address %q: want host:port: %w", s.address, err)
	}
	return conn, nil
}

// Run receives the inventory's stream until ctx is done.
func (s *source) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error { return s.subscriber.Run(ctx) })
	return g.Wait()
}

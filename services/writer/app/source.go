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

// defaultSource is what the one source is called that needs no SOURCES_FILE.
const defaultSource = "default"

// configured are the sources that the settings name, sorted by name.
func (c *Config) configured() ([]sources.Source, error) {
	defaults := sources.Source{
		Name: defaultSource, Address: c.Inventory, SAN: c.InventorySAN, CAFile: c.PeerCA,
		CIDRs: settings.Prefixes(c.Subnets), Ports: c.AllowedPorts,
	}
	if c.SourcesFile == "" {
		return []sources.Source{defaults}, nil
	}
	return sources.Read(c.SourcesFile, defaults)
}

// source is one inventory, and the link to it.
type source struct {
	control.Source

	subscriber *subscriber.Subscriber
	link       *link.Client
	address    string
}

// openSources makes the links to all inventories. Nobody is called yet.
func openSources(cfg *Config, all []sources.Source, log *slog.Logger, registry prometheus.Registerer) ([]*source, error) {
	metrics := subscriber.NewMetrics(registry)
	var opened []*source
	var problems []error
	for _, one := range all {
		s, err := openSource(cfg, one, log, registry)
		if err != nil {
			if cfg.SourcesFile != "" {
				err = fmt.Errorf("source %s: %w", one.Name, err)
			}
			problems = append(problems, err)
			continue
		}
		s.subscriber = subscriber.New(subscriber.Config{
			Source: one.Name, Log: log, Metrics: metrics, ConfirmObservations: cfg.EmptyThreshold,
			Dial: func() (subscriber.Conn, error) { return s.dial() },
		})
		s.Feed = s.subscriber
		opened = append(opened, s)
	}
	return opened, errors.Join(problems...)
}

func openSource(cfg *Config, one sources.Source, log *slog.Logger, registry prometheus.Registerer) (*source, error) {
	files := cfg.files()
	files.PeerCA = one.CAFile
	end, err := link.NewClient(link.Config{
		Half: "writer", Name: one.Name, Files: files, Logger: log, Registerer: registry,
	}, one.SAN)
	if err != nil {
		return nil, err
	}
	s := &source{Source: control.Source{Name: one.Name, CIDRs: one.CIDRs}, link: end, address: one.Address}
	conn, err := s.dial() // an address that is none is an error now
	if err != nil {
		return nil, err
	}
	return s, conn.Close()
}

// dial opens a connection to the inventory. It connects with the first call.
func (s *source) dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(s.address, s.link.DialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("address of the inventory %q: want host:port: %w", s.address, err)
	}
	return conn, nil
}

// Run follows the inventory until ctx is done.
func (s *source) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error { return s.subscriber.Run(ctx) })
	return g.Wait()
}

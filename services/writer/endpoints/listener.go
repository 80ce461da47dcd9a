package endpoints

import (
	"context"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/identity"
	"github.com/slicefeed/slicefeed/services/internal/link"
)

// ListenerConfig is what the listener of the service needs.
type ListenerConfig struct {
	Files      identity.Files // certificate and key of the listener, CAs of its clients
	Clients    string         // file with the client list
	Store      *Store
	Report     writerv1.WriterReportServiceServer // for operators
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Listener serves the service over mutual TLS, with gRPC health and reflection.
type Listener struct {
	link   *link.Server
	server *Server
}

// listenerLinkName is the link name of this listener in metrics and logs. The slash keeps it distinct
// from every source name.
const listenerLinkName = "listener/endpoints"

// NewListener reads the files. It reports all missing and invalid ones in one error.
func NewListener(cfg ListenerConfig) (*Listener, error) {
	end, err := link.NewServer(link.Config{
		Component: "writer", Name: listenerLinkName, Files: cfg.Files, Logger: cfg.Logger, Registerer: cfg.Registerer,
		SubscriberServices: []string{writerv1.WriterService_ServiceDesc.ServiceName},
	}, cfg.Clients)
	if err != nil {
		return nil, err
	}
	d := &Listener{link: end}
	d.server = NewServer(ServerConfig{
		Store: cfg.Store, Identify: link.Identify, Health: end.Health, Registerer: cfg.Registerer, Report: cfg.Report,
	})
	return d, nil
}

// Run serves until ctx is done.
func (d *Listener) Run(ctx context.Context, on net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.link.Run(ctx) })
	g.Go(func() error { return d.link.Serve(ctx, on, d.server) })
	return g.Wait()
}

package sources

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/slicefeed/slicefeed/services/internal/identity"
	"github.com/slicefeed/slicefeed/services/internal/link"
)

// Link is the link to the inventory of a source.
type Link struct {
	*link.Client

	address string
}

// OpenLink creates the link to an inventory. The writer's own files are those of all links. It connects
// with the first call, but reports an invalid address or file now.
func (s Source) OpenLink(own identity.Files, log *slog.Logger, registry prometheus.Registerer) (*Link, error) {
	own.PeerCA = s.CAFile
	client, err := link.NewClient(link.Config{Component: "writer", Name: s.Name, Files: own, Logger: log, Registerer: registry}, s.SAN)
	if err != nil {
		return nil, err
	}
	l := &Link{client, s.Address}
	conn, err := l.Dial()
	if err != nil {
		return nil, err
	}
	return l, conn.Close()
}

// Dial creates a connection to the inventory, which connects with the first call.
func (l *Link) Dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(l.address, l.DialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("inventory address %q: want host:port: %w", l.address, err)
	}
	return conn, nil
}

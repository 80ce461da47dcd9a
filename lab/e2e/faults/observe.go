package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// observe has an inventory look at its cluster once more, and waits for that. At rest it looks once a
// minute, and the writers' shrink guard wants a look for each further half that leaves: without one, what
// left in the last row could hold up what leaves in the next.
func (s *Scene) observe(ctx context.Context, inventory *pair.Half) error {
	metric := "slicefeed_inventory_observations_total"
	before, err := inventory.Metric(ctx, metric)
	if err != nil {
		return fmt.Errorf("ask for a look: %w", err)
	}
	if err := s.ask(ctx, inventory); err != nil {
		return fmt.Errorf("ask for a look: %w", err)
	}
	return s.waitMetric(ctx, inventory, metric, func(now float64) bool { return now > before })
}

// ask opens a stream as a subscriber does that holds something back, and closes it.
func (s *Scene) ask(ctx context.Context, inventory *pair.Half) error {
	leaf, err := tls.LoadX509KeyPair(s.Operator.CertFile, s.Operator.KeyFile)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(s.Operator.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	conn, err := grpc.NewClient(fmt.Sprintf("%s:%d", inventory.Address, pair.LinkPort), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{leaf}, RootCAs: roots, ServerName: "inventory.lab.example", MinVersion: tls.VersionTLS13,
		})))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it is done with
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, &inventoryv1.WatchNodesRequest{ObserveNow: true, ConfirmObservations: 3}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

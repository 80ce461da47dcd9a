package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// observe has an inventory make one more observation, and waits for it. At rest it makes one a minute, and
// the writers' shrink guard wants a newer observation for each further batch: without it, what left in the
// last row could hold what leaves in the next. An inventory grants a client 20 observations and then one in
// 30 seconds, so a request that was not granted is repeated.
func (s *Scene) observe(ctx context.Context, inventory *pair.Half) error {
	metric := "slicefeed_inventory_observations_total"
	before, err := inventory.Metric(ctx, metric)
	if err != nil {
		return fmt.Errorf("request an observation: %w", err)
	}
	for {
		if err := s.ask(ctx, inventory); err != nil {
			return fmt.Errorf("request an observation: %w", err)
		}
		attempt, cancel := context.WithTimeout(ctx, observeAgainAfter)
		err := s.waitMetric(attempt, inventory, metric, func(now float64) bool { return now > before })
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

const observeAgainAfter = 5 * time.Second

// ask requests one observation.
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
	_, err = inventoryv1.NewInventoryServiceClient(conn).RequestObservations(ctx, &inventoryv1.RequestObservationsRequest{Observations: 1}, grpc.WaitForReady(true))
	return err
}

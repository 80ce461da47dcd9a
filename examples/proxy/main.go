// Command proxy is a consumer that reads no EndpointSlices: a small TCP proxy that a writer programs by
// WatchEndpoints (docs/use/writer-api.md). Package endpointsync receives the endpoints, and Proxy passes connections on.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/slicefeed/slicefeed/examples/proxy/endpointsync"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:8000", "where connections come in")
	writer := flag.String("writer", "", "host:port of the writer's LISTEN_ADDRESS")
	name := flag.String("writer-name", "", "DNS name in the writer's certificate (default: the host of -writer)")
	cert := flag.String("cert", "", "PEM of a client certificate")
	key := flag.String("key", "", "PEM of its key")
	ca := flag.String("ca", "", "PEM of the CA of the writer's certificate")
	service := flag.String("service", "", "NAMESPACE/SERVICE")
	port := flag.String("port", "", "name of the Service's port, if it has one")
	flag.Parse()

	namespace, serviceName, ok := strings.Cut(*service, "/")
	if !ok {
		return fmt.Errorf("-service=%q: want NAMESPACE/SERVICE", *service)
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return fmt.Errorf("-cert and -key: %w", err)
	}
	roots := x509.NewCertPool()
	text, err := os.ReadFile(*ca)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return errors.Join(errors.New("-ca: no certificate in it"), err)
	}
	conn, err := grpc.NewClient(*writer, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: *name, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		return fmt.Errorf("-writer=%q: %w", *writer, err)
	}
	defer conn.Close() //nolint:errcheck // it is over
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	log.Info("listening", "address", on.Addr())
	p := &Proxy{Log: log}
	f := &endpointsync.Follower{
		Client:   writerv1.NewWriterServiceClient(conn),
		Services: []*writerv1.ServiceSelector{{Namespace: namespace, Service: serviceName}},
		Synced:   func(s *endpointsync.Set) { p.Program(s.Backends(namespace, serviceName, *port)) },
		Log:      log,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.Run(ctx) })
	g.Go(func() error { return p.Serve(ctx, on) })
	return g.Wait()
}

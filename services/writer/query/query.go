// Package query has the commands that query a running writer: which endpoints a Service has, and why an
// address is one of them or is not. It guarantees that it only reads, that untrusted text cannot
// control the terminal, and that its exit code states the result. It does not interpret anything: it
// prints what the writer returned.
package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/identity"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// Settings are the address of the writer and the identity of the caller.
type Settings struct {
	Writer    string          `flag:"writer-address"   required:"true" placeholder:"host:port"       help:"where the writer listens: its LISTEN_ADDRESS, as reachable from here"`
	WriterSAN certificate.SAN `flag:"writer-san"       required:"true" placeholder:"URI or DNS name" help:"SAN that the writer's certificate must have, exactly"`
	CertFile  string          `flag:"client-cert-file" required:"true" placeholder:"file"            help:"PEM of your certificate, with the EKU clientAuth; its SAN is in the writer's ALLOWED_CLIENTS_FILE"`
	KeyFile   string          `flag:"client-key-file"  required:"true" placeholder:"file"            help:"PEM of its private key"`
	WriterCA  string          `flag:"writer-ca-file"   required:"true" placeholder:"file"            help:"PEM of the CAs that sign the *writer's* certificate"`
}

// NewCommands returns the commands.
func NewCommands() []command.StandaloneCommand {
	return []command.StandaloneCommand{
		command.NewStandalone(command.Subcommand[Settings]{
			Use:     "endpoints NAMESPACE/SERVICE",
			Short:   "List the endpoints of a Service as seen by a running writer",
			Formats: true,
			Example: "slicefeed-writer endpoints web/shop\nslicefeed-writer endpoints web/shop -o json",
			Failure: "the writer does not respond or has not synced, or the Service is not its target",
			Run: func(ctx context.Context, call command.Invocation[Settings]) error {
				return runQuery(ctx, call, call.Config, queryTimeout, listEndpoints)
			},
		}),
		command.NewStandalone(command.Subcommand[Settings]{
			Use:     "explain NAMESPACE/SERVICE ADDRESS",
			Short:   "Explain why an address is or is not an endpoint, as seen by a running writer",
			Formats: true,
			Example: "slicefeed-writer explain web/shop 10.0.0.11",
			Failure: "the address is not listed as ready, or the writer does not respond",
			Run: func(ctx context.Context, call command.Invocation[Settings]) error {
				return runQuery(ctx, call, call.Config, queryTimeout, explainEndpoint)
			},
		}),
		command.NewStandalone(command.Subcommand[WaitSettings]{
			Use:     "wait NAMESPACE/SERVICE",
			Short:   "Wait until a running writer reports a Service as healthy",
			Example: "slicefeed-writer wait web/shop --timeout 2m",
			Failure: "the Service is not healthy when the time is over; the message says why",
			Run: func(ctx context.Context, call command.Invocation[WaitSettings]) error {
				return runQuery(ctx, call, &call.Config.Settings, call.Config.Timeout, waitHealthy)
			},
		}),
	}
}

// queryTimeout limits a whole query, and each of wait.
const queryTimeout = 15 * time.Second

// request is one query, and where its result is printed.
type request struct {
	service  *writerv1.ServiceSelector
	address  netip.Addr // only for explain
	writer   writerv1.WriterServiceClient
	operator writerv1.WriterOperatorServiceClient
	format   command.Format

	handshakeError func() *identity.HandshakeError // of the last handshake with the writer
	out, err       io.Writer
}

func runQuery[C any](
	ctx context.Context,
	call command.Invocation[C],
	s *Settings,
	timeout time.Duration,
	answer func(context.Context, request) error,
) error {
	q, err := parseArgs(call.Args)
	if err != nil {
		return err
	}
	client, conn, err := dialWriter(s)
	if err != nil {
		return settings.NewConfigError(err)
	}
	defer conn.Close() //nolint:errcheck // only fails if it is closed already
	q.writer, q.operator = writerv1.NewWriterServiceClient(conn), writerv1.NewWriterOperatorServiceClient(conn)
	q.format, q.out, q.err = call.Format, call.Out, call.Err
	q.handshakeError = client.HandshakeError
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := answer(ctx, q); err != nil {
		if failure, ok := status.FromError(err); ok {
			return fmt.Errorf("query writer at %s: %s", s.Writer, q.describeFailure(failure))
		}
		return err
	}
	return nil
}

// describeFailure returns the code and the text of a failed call, with advice if the handshake failed.
func (q *request) describeFailure(s *status.Status) string {
	text := s.Message()
	if handshake := q.handshakeError(); handshake != nil && s.Code() == codes.Unavailable {
		text = handshake.Error()
		if errors.Is(handshake, identity.ErrRejected) {
			text = handshake.Cause.Error() + "; the writer rejects CLIENT_CERT_FILE: its CLIENT_CA_FILE must contain the CA that signs it, and its ALLOWED_CLIENTS_FILE one of its SANs; the writer's log has the reason"
		}
	}
	return s.Code().String() + ": " + display.Sanitize(text)
}

// parseArgs parses NAMESPACE/SERVICE, where .serviceimport ends the name of a ServiceImport, and ADDRESS if there is one.
func parseArgs(args []string) (request, error) {
	var q request
	var problems []error
	namespace, service, ok := strings.Cut(args[0], "/")
	name := strings.TrimSuffix(service, planner.ImportSuffix)
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(name)) > 0 {
		problems = append(
			problems,
			fmt.Errorf("%q: want NAMESPACE/SERVICE, such as web/shop, or web/shop%s for a ServiceImport", args[0], planner.ImportSuffix),
		)
	}
	q.service = &writerv1.ServiceSelector{Namespace: namespace, Service: service}
	if len(args) > 1 {
		var err error
		if q.address, err = netip.ParseAddr(args[1]); err != nil || q.address.Zone() != "" {
			problems = append(problems, fmt.Errorf("%q: want the address of an endpoint, such as 10.0.0.11", args[1]))
		}
	}
	if len(problems) > 0 {
		return q, settings.NewConfigError(errors.Join(problems...))
	}
	return q, nil
}

func dialWriter(s *Settings) (*link.Client, *grpc.ClientConn, error) {
	client, err := link.NewClient(link.Config{
		Component: "writer", Name: "query", Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Files: identity.Files{Cert: s.CertFile, Key: s.KeyFile, PeerCA: s.WriterCA},
	}, s.WriterSAN)
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(s.Writer, client.DialOptions()...)
	if err != nil {
		return nil, nil, fmt.Errorf("WRITER_ADDRESS=%q: want host:port: %w", s.Writer, err)
	}
	return client, conn, nil
}

// Package bare is a gRPC server that does nothing but send, with the same TLS and options as
// the inventory's: what is left is what gRPC itself costs. It promises to encode a message once
// for all its streams and to send it from one loop; it refuses to know its callers, to beat,
// to resume and to bound what it is asked for.
package bare

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/durationpb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// config is where it listens, and its TLS.
type config struct{ address, admin, cert, key, ca string }

// Command returns the hidden subcommand of lab that is the server: a process of its own, so that
// what it costs can be told from what its clients cost.
func Command() *cobra.Command {
	var cfg config
	cmd := &cobra.Command{
		Use:    "bare-server",
		Short:  "Send what /send asks for to all streams, and nothing else",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), cfg) },
	}
	for flag, to := range map[string]*string{"address": &cfg.address, "admin": &cfg.admin, "cert": &cfg.cert, "key": &cfg.key, "ca": &cfg.ca} {
		cmd.Flags().StringVar(to, flag, "", "")
	}
	return cmd
}

func serve(ctx context.Context, cfg config) error {
	cert, err := tls.LoadX509KeyPair(cfg.cert, cfg.key)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(cfg.ca)
	if err != nil {
		return err
	}
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(pem)
	service := &server{streams: map[*caller]struct{}{}}
	s := grpc.NewServer(options(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: ca, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	})...)
	inventoryv1.RegisterInventoryServiceServer(s, service)
	listener, err := net.Listen("tcp", cfg.address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/send", func(w http.ResponseWriter, _ *http.Request) {
		if err := service.send(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	admin := &http.Server{Addr: cfg.admin, Handler: mux, ReadHeaderTimeout: time.Minute}
	var g errgroup.Group
	g.Go(func() error { return s.Serve(listener) })
	g.Go(func() error {
		if err := admin.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	<-ctx.Done()
	s.Stop()
	_ = admin.Close()
	return g.Wait()
}

// options are those that the inventory's server has (services/internal/link), but for its
// interceptors.
func options(cfg *tls.Config) []grpc.ServerOption {
	const small = 64 << 10
	return []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(cfg)),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: 30 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.MaxRecvMsgSize(small), grpc.MaxSendMsgSize(4 << 20), grpc.MaxHeaderListSize(16 << 10), grpc.MaxConcurrentStreams(8),
		grpc.StaticStreamWindowSize(small), grpc.StaticConnWindowSize(small),
		grpc.ReadBufferSize(4 << 10),
		grpc.WaitForHandlers(true),
	}
}

type server struct {
	inventoryv1.UnimplementedInventoryServiceServer

	mu      sync.Mutex
	streams map[*caller]struct{}
	sent    uint64
}

type caller struct {
	to grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]
}

// WatchNodes tells of the set of one node that was sent last, and then of what is sent.
func (s *server) WatchNodes(_ *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	c := &caller{to}
	if err := s.enter(c); err != nil {
		return err
	}
	<-to.Context().Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, c)
	return to.Context().Err()
}

func (s *server) enter(c *caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[c] = struct{}{}
	m := message(s.sent)
	m.Reset_ = true
	return c.to.Send(m)
}

// send sends the next state to all.
func (s *server) send() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	var prepared *grpc.PreparedMsg
	for c := range s.streams {
		if prepared == nil {
			prepared = &grpc.PreparedMsg{}
			if err := prepared.Encode(c.to, message(s.sent)); err != nil {
				return err
			}
		}
		if err := c.to.SendMsg(prepared); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// message is like one of the inventory's for one change, and valid: of a set of one node.
func message(state uint64) *inventoryv1.WatchNodesResponse {
	fingerprint := binary.BigEndian.AppendUint64([]byte("not zero"), state)
	part := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: durationpb.New(1234567891)}
	return &inventoryv1.WatchNodesResponse{
		Cursor: &inventoryv1.Cursor{Epoch: "0123456789abcdef0123456789abcdef.0123456789ab", Revision: 5000 + state},
		Upserts: []*inventoryv1.Node{{
			Name: "worker-000000", Addresses: []string{"10.1.0.0"}, State: inventoryv1.NodeState_NODE_STATE_READY,
			StateAge: durationpb.New(123456), Fingerprint: fingerprint,
		}},
		Synced: true,
		Count:  1,
		Digest: fingerprint,
		Status: &inventoryv1.SourceStatus{
			Membership:     part,
			Addresses:      part,
			Observation:    100 + state,
			ObservationAge: durationpb.New(987654321),
		},
	}
}

package load

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// descriptors is how many connections of a number our limit of open files leaves room for.
func descriptors(t *testing.T, want int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if room := int(limit.Cur) - subscribers - 1000; room < want {
		fmt.Fprintf(os.Stdout, "    the limit of %d open files leaves room for %d half-open connections, not %d\n", limit.Cur, room, want)
		return room
	}
	return want
}

func halfOpen(s *scene) {
	connections := descriptors(s.t, 10000)
	before := s.memory()
	ended := s.metrics().Sum("slicefeed_inventory_streams_ended_total")

	// As fast as one can dial from eight goroutines, each connection held to the end.
	held := make(chan net.Conn, connections)
	var left atomic.Int64
	left.Store(int64(connections))
	var dialling sync.WaitGroup
	for range 8 {
		dialling.Go(func() {
			for left.Add(-1) >= 0 {
				conn, err := net.DialTimeout("tcp", s.address(), 20*time.Second)
				if err != nil {
					s.t.Errorf("connection refused by the kernel: %v", err)
					return
				}
				io.WriteString(conn, "\x16\x03\x01\x02\x00\x01\x00") // the beginning of a client hello
				held <- conn
			}
		})
	}
	defer func() {
		dialling.Wait()
		close(held)
		for conn := range held {
			conn.Close()
		}
	}()
	newcomer := s.newcomer() // in the midst of the dialling,
	dialling.Wait()
	newcomer = max(newcomer, s.newcomer()) // and when all that may stay are held
	most := s.metrics().Sum("slicefeed_inventory_tls_handshakes_unfinished")
	grown := s.memory().Live - before.Live
	s.propagate(few)

	s.until("no handshake is left unfinished, though their peers hold on", 30*time.Second, func() bool {
		return s.metrics().Sum("slicefeed_inventory_tls_handshakes_unfinished") == 0
	})
	if got := s.metrics().Sum("slicefeed_inventory_streams_ended_total") - ended; got != 2 {
		s.t.Errorf("%v streams ended, want only those of the two newcomers", got)
	}
	s.atMost("seconds until a newcomer has the set", newcomer.Seconds(), 10)
	s.atMost("unfinished handshakes", most, 1024)
	s.atMost("memory grown by half-open handshakes, in MB", grown, 64)
}

// rubbish are the attempts of clients that send no gRPC.
func (s *scene) rubbish() []func() error {
	good := s.as(attacker)
	noise := make([]byte, 2000)
	rand.Read(noise)
	send := func(cfg *tls.Config, what string) func() error {
		return func() error {
			conn, err := net.DialTimeout("tcp", s.address(), 20*time.Second)
			if err != nil {
				return err
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			if cfg != nil {
				conn = tls.Client(conn, cfg)
			}
			io.WriteString(conn, what)
			for b := make([]byte, 4096); err == nil; { // until the inventory ends it
				_, err = conn.Read(b)
			}
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				return fmt.Errorf("it took %.20q… and held on", what)
			}
			return nil
		}
	}
	with := func(alter func(*tls.Config)) *tls.Config {
		cfg := good.Clone()
		alter(cfg)
		return cfg
	}
	const (
		preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" // and settings
		http1   = "GET / HTTP/1.1\r\nHost: inventory\r\n\r\n"
		headers = "\x00\x00\x00\x01\x00\x00\x00\x00\x01" // of stream 1, without an end
		more    = "\x00\x04\x00\x09\x00\x00\x00\x00\x01" // a continuation of 1 KB: a header
		field   = "\x00\x01x\x7f\xfb\x06"                // x, and a value of 1018 bytes
	)
	endless := preface + headers + strings.Repeat(more+field+strings.Repeat("y", 1024-len(field)), 200)
	return []func() error{
		send(nil, string(noise)), send(nil, http1), send(nil, "\x16\x03\x01\xff\xff"+string(noise)),
		send(with(func(c *tls.Config) { c.NextProtos = []string{"other"} }), ""),
		send(with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }), ""),
		send(with(func(c *tls.Config) { c.Certificates = nil }), ""),
		send(good, http1), send(good, string(noise)), send(good, preface+string(noise)), send(good, endless),
		func() error { // a request that is too large
			conn, err := grpc.NewClient("passthrough:"+s.address(), grpc.WithTransportCredentials(credentials.NewTLS(good)))
			if err != nil {
				return err
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
			defer cancel()
			_, err = inventoryv1.NewInventoryServiceClient(conn).
				ListNodes(ctx, &inventoryv1.ListNodesRequest{Names: []string{strings.Repeat("x", 1<<20)}})
			if code := status.Code(err); code != codes.ResourceExhausted && code != codes.Unavailable {
				return fmt.Errorf("a request of 1 MB gets %w", err)
			}
			return nil
		},
	}
}

func abuse(s *scene) {
	calm := median(s.propagate(few))
	before := s.memory()
	ended := s.metrics().Sum("slicefeed_inventory_streams_ended_total")
	var conns []*grpc.ClientConn
	creds := credentials.NewTLS(s.as(attacker))
	for range 10 {
		conn, err := grpc.NewClient("passthrough:"+s.address(), grpc.WithTransportCredentials(creds))
		if err != nil {
			s.t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	began := time.Now()
	var attack sync.WaitGroup
	var answered, refused atomic.Int64
	for i := range 50 {
		attack.Go(func() {
			client := inventoryv1.NewInventoryServiceClient(conns[i%len(conns)])
			for ctx.Err() == nil {
				_, err := client.ListNodes(ctx, &inventoryv1.ListNodesRequest{})
				switch status.Code(err) {
				case codes.OK:
					answered.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				case codes.Canceled:
				default:
					s.t.Errorf("ListNodes in a flood gets %v", err)
					return
				}
			}
		})
	}
	attack.Go(func() {
		all := s.rubbish()
		for i := 0; ctx.Err() == nil; i++ {
			if err := all[i%len(all)](); err != nil && ctx.Err() == nil {
				s.t.Errorf("rubbish number %d: %v", i%len(all), err)
			}
		}
	})
	took := s.propagate(few)
	newcomer := s.newcomer()
	for began.Add(5 * time.Second).After(time.Now()) {
		took = append(took, s.propagate(1)...)
	}
	seconds := time.Since(began).Seconds()
	cancel()
	attack.Wait()
	after := s.memory()

	if got := s.metrics().Sum("slicefeed_inventory_streams_ended_total") - ended; got != 1 {
		s.t.Errorf("%v streams ended, want only the newcomer's", got)
	}
	if refused.Load() == 0 {
		s.t.Error("nothing of the flood was refused")
	}
	s.atMost("answers to the flood", float64(answered.Load()), 32+10*(seconds+2))
	s.atMost("seconds until a newcomer has the set", newcomer.Seconds(), 10)
	s.atMost("median beside the flood over the median without", median(took).Seconds()/calm.Seconds(), 10) // 2 on a machine of its own
	s.atMost("memory grown by the flood, in MB", after.Live-before.Live, 64)
}

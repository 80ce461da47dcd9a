package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// Fingerprint is that of a node, or a digest of a set.
type Fingerprint [16]byte

// Subscriber speaks the contract, written from its comments: it stages, checks count and
// digest, resumes by cursor.
type Subscriber struct {
	number   int
	nodes    int // at most
	address  string
	tls      *tls.Config
	onSynced func(*Subscriber) // called after each synced state

	set    []Fingerprint // by the node's number; zero: it has none
	count  int
	digest Fingerprint
	cursor *inventoryv1.Cursor

	reset  bool
	staged []change

	read   atomic.Int64 // bytes that came in this life, after the TLS handshake
	synced int          // states in this life
	first  int64        // bytes until the first of them
}

type change struct {
	node int
	to   Fingerprint
}

// live connects and follows until ctx ends. Any other end of the stream is an error: nothing
// ends the streams of an honest subscriber here.
func (s *Subscriber) live(ctx context.Context, options ...grpc.DialOption) error {
	s.read.Store(0)
	s.synced = 0
	conn, err := grpc.NewClient("passthrough:"+s.address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(counting{credentials.NewTLS(s.tls), &s.read}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Minute}),
	}, options...)...)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it is over
	request := &inventoryv1.WatchNodesRequest{}
	if s.cursor != nil {
		request.Cursor, request.Digest = s.cursor, s.digest[:]
	}
	stream, err := inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, request, grpc.WaitForReady(true))
	for err == nil {
		var m *inventoryv1.WatchNodesResponse
		if m, err = stream.Recv(); err == nil {
			err = s.take(m)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("subscriber %d: %w", s.number, err)
}

// take applies a message (rules R1 to R4).
func (s *Subscriber) take(m *inventoryv1.WatchNodesResponse) error {
	if m.GetReset_() {
		s.reset, s.staged = true, s.staged[:0]
	}
	for _, name := range m.GetRemoved() {
		n, err := nodeNumber(name)
		if err != nil {
			return err
		}
		s.staged = append(s.staged, change{node: n})
	}
	for _, u := range m.GetUpserts() {
		n, err := nodeNumber(u.GetName())
		if err != nil {
			return err
		}
		s.staged = append(s.staged, change{n, Fingerprint(u.GetFingerprint())})
	}
	if !m.GetSynced() {
		return nil
	}
	if s.reset {
		s.set, s.count, s.digest = make([]Fingerprint, s.nodes), 0, Fingerprint{}
	}
	for _, c := range s.staged {
		for i := range s.digest {
			s.digest[i] ^= s.set[c.node][i] ^ c.to[i]
		}
		if s.set[c.node] != (Fingerprint{}) {
			s.count--
		}
		if s.set[c.node] = c.to; c.to != (Fingerprint{}) {
			s.count++
		}
	}
	s.reset, s.staged = false, nil
	if s.count != int(m.GetCount()) || s.digest != Fingerprint(m.GetDigest()) {
		return fmt.Errorf("count %d, digest %x; want %d, %x", s.count, s.digest, m.GetCount(), m.GetDigest())
	}
	s.cursor = m.GetCursor()
	if s.synced++; s.synced == 1 {
		s.first = s.read.Load()
	}
	s.onSynced(s)
	return nil
}

// counting counts the bytes that come after the handshake, as HTTP/2 has them.
type counting struct {
	credentials.TransportCredentials

	read *atomic.Int64
}

func (c counting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	return countedConn{conn, c.read}, info, err
}

func (c counting) Clone() credentials.TransportCredentials {
	return counting{c.TransportCredentials.Clone(), c.read}
}

type countedConn struct {
	net.Conn

	read *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

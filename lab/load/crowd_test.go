package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

type fingerprint [16]byte

// subscriber speaks the contract, written from its comments: it stages, checks count and
// digest, resumes by cursor.
type subscriber struct {
	number int
	tls    *tls.Config
	told   func(*subscriber) // after each synced state

	set    []fingerprint // by the node's number; zero: it has none
	count  int
	digest fingerprint
	cursor *inventoryv1.Cursor

	reset  bool
	staged []change

	read   atomic.Int64 // bytes that came in this life, after the TLS handshake
	synced int          // states in this life
	first  int64        // bytes until the first of them
}

type change struct {
	node int
	to   fingerprint
}

// live connects and follows until ctx ends. Any other end of the stream is an error: nobody
// ends the streams of an honest subscriber here.
func (s *subscriber) live(ctx context.Context, options ...grpc.DialOption) error {
	s.read.Store(0)
	s.synced = 0
	conn, err := grpc.NewClient("passthrough:"+address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(counting{credentials.NewTLS(s.tls), &s.read}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Minute}),
	}, options...)...)
	if err != nil {
		return err
	}
	defer conn.Close()
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
func (s *subscriber) take(m *inventoryv1.WatchNodesResponse) error {
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
		s.staged = append(s.staged, change{n, fingerprint(u.GetFingerprint())})
	}
	if !m.GetSynced() {
		return nil
	}
	if s.reset {
		s.set, s.count, s.digest = make([]fingerprint, nodes), 0, fingerprint{}
	}
	for _, c := range s.staged {
		for i := range s.digest {
			s.digest[i] ^= s.set[c.node][i] ^ c.to[i]
		}
		if s.set[c.node] != (fingerprint{}) {
			s.count--
		}
		if s.set[c.node] = c.to; c.to != (fingerprint{}) {
			s.count++
		}
	}
	s.reset, s.staged = false, nil
	if s.count != int(m.GetCount()) || s.digest != fingerprint(m.GetDigest()) {
		return fmt.Errorf("count %d, digest %x; the inventory says %d, %x", s.count, s.digest, m.GetCount(), m.GetDigest())
	}
	s.cursor = m.GetCursor()
	if s.synced++; s.synced == 1 {
		s.first = s.read.Load()
	}
	s.told(s)
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

// crowd is a thousand subscribers that come and go together.
type crowd struct {
	all  []*subscriber
	end  context.CancelFunc
	life *errgroup.Group
	over context.Context // done when any of them has failed

	mu      sync.Mutex
	waiting *arrival
	digest  fingerprint // that anyone was told last
}

// arrival is when each of them came to be as is wanted.
type arrival struct {
	want func(*subscriber) bool
	seen []bool
	at   []time.Time
	all  chan struct{}
}

func newCrowd(t *testing.T, i *inventory) *crowd {
	c := &crowd{}
	var names []*tls.Config
	for n := range clients {
		names = append(names, i.as(t, subscriberName(n)))
	}
	for n := range subscribers {
		c.all = append(c.all, &subscriber{number: n, tls: names[n%clients], told: c.told})
	}
	return c
}

func (c *crowd) told(s *subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.digest = s.digest
	w := c.waiting
	if w == nil || w.seen[s.number] || !w.want(s) {
		return
	}
	w.seen[s.number] = true
	if w.at = append(w.at, time.Now()); len(w.at) == len(c.all) {
		c.waiting = nil
		close(w.all)
	}
}

// expect is called before what brings it about. Want is asked after each synced state.
func (c *crowd) expect(want func(*subscriber) bool) *arrival {
	a := &arrival{want: want, seen: make([]bool, len(c.all)), all: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = a
	return a
}

// wait returns how long after a moment the first came to be so, half of them, and the last.
func (c *crowd) wait(t *testing.T, a *arrival, since time.Time, within time.Duration) spread {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.all:
	case <-c.over.Done():
		t.Fatalf("a subscriber was not left alone: %v", context.Cause(c.over))
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Fatalf("after %s only %d of %d subscribers are as wanted", within, len(a.at), len(c.all))
	}
	slices.SortFunc(a.at, time.Time.Compare)
	return spread{a.at[0].Sub(since), a.at[len(a.at)/2].Sub(since), a.at[len(a.at)-1].Sub(since)}
}

type spread struct{ first, half, last time.Duration }

// come starts all of them at once, and waits until each has a synced state.
func (c *crowd) come(t *testing.T) spread {
	t.Helper()
	first := c.expect(func(*subscriber) bool { return true })
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	c.life, c.over = errgroup.WithContext(ctx)
	began := time.Now()
	for _, s := range c.all {
		c.life.Go(func() error { return s.live(c.over) })
	}
	return c.wait(t, first, began, 3*time.Minute)
}

// leave ends all of them; they keep what they hold.
func (c *crowd) leave(t *testing.T) {
	t.Helper()
	if c.end == nil {
		return
	}
	c.end()
	c.end = nil
	if err := c.life.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func (c *crowd) present() fingerprint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.digest
}

// bytes are those that each of them got before it was in step, sorted.
func (c *crowd) bytes() []int64 {
	var all []int64
	for _, s := range c.all {
		all = append(all, s.first)
	}
	return slices.Sorted(slices.Values(all))
}

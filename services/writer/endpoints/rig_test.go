package endpoints

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// readyTarget returns a target of namespace web with n ready endpoints.
func readyTarget(service string, n int) Target {
	t := Target{
		Namespace: "web", Service: service, State: Managed, Leading: true,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
	}
	for i := range n {
		t.Decision.Endpoints = append(
			t.Decision.Endpoints,
			verdict.Endpoint{Address: testAddress(i), Conditions: ready, Listed: true, Source: "default"},
		)
	}
	return t
}

// testServer is the service in a synctest bubble.
type testServer struct {
	t      *testing.T
	store  *Store
	server *Server
	health *health.Server
	client writerv1.WriterServiceClient
}

func runTestServer(t *testing.T, test func(r *testServer)) {
	synctest.Test(t, func(t *testing.T) {
		r := &testServer{t: t, store: NewStore("instance"), health: health.NewServer()}
		r.server = NewServer(
			ServerConfig{
				Store:               r.store,
				Identify:            testkit.Identify,
				Health:              r.health,
				Registerer:          prometheus.NewRegistry(),
				MaxStreamsPerClient: 4,
				Report:              writerv1.UnimplementedWriterReportServiceServer{},
			},
		)
		testkit.Serve(t, r.server, func(dial func() *grpc.ClientConn) {
			r.client = writerv1.NewWriterServiceClient(dial())
			test(r)
		})
	})
}

// testClient is a strict client: it applies messages as the contract requires, and fails on violations
// of rule R13.
type testClient struct {
	t        rapid.TB
	stream   grpc.ServerStreamingClient[writerv1.WatchEndpointsResponse]
	cancel   context.CancelFunc
	set      map[string]*writerv1.Entry
	staged   map[string]*writerv1.Entry
	cursor   *writerv1.Cursor
	digest   []byte
	received int
}

func (r *testServer) watchEndpoints(req *writerv1.WatchEndpointsRequest, name string) *testClient {
	r.t.Helper()
	ctx, cancel := context.WithCancel(testkit.WithClientName(r.t.Context(), name))
	s, err := r.client.WatchEndpoints(ctx, req)
	if err != nil {
		r.t.Fatal(err)
	}
	return &testClient{t: r.t, stream: s, cancel: cancel, set: map[string]*writerv1.Entry{}}
}

// resume subscribes with the state of an earlier client.
func (r *testServer) resume(c *testClient, req *writerv1.WatchEndpointsRequest) *testClient {
	req.Cursor, req.Digest = c.cursor, c.digest
	next := r.watchEndpoints(req, "proxy")
	next.set, next.cursor, next.digest = c.set, c.cursor, c.digest
	return next
}

func (c *testClient) nextMessage() *writerv1.WatchEndpointsResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("message %d: %v", c.received, err)
	}
	c.receive(m)
	return m
}

// receive applies a message.
func (c *testClient) receive(m *writerv1.WatchEndpointsResponse) {
	c.t.Helper()
	c.received++
	if (c.received == 1) != (m.GetHeartbeatInterval() != nil) {
		c.t.Errorf("message %d states the heartbeat interval: %v", c.received, m.GetHeartbeatInterval())
	}
	if len(m.GetUpserts()) > 500 || len(m.GetRemoved()) > 500 || m.GetStatus() == nil {
		c.t.Fatalf("%d upserts, %d removed, status %v", len(m.GetUpserts()), len(m.GetRemoved()), m.GetStatus())
	}
	if m.GetReset_() {
		c.staged = map[string]*writerv1.Entry{}
	} else if c.staged == nil {
		c.staged = maps.Clone(c.set)
	}
	for _, key := range m.GetRemoved() {
		if c.staged[key] == nil {
			c.t.Fatalf("removal of %s, which is not there", key)
		}
		delete(c.staged, key)
	}
	for _, e := range m.GetUpserts() {
		if problem := findViolation(e); problem != "" || slices.Contains(m.GetRemoved(), e.GetKey()) {
			c.t.Fatalf("upsert %v: %s", e, problem)
		}
		c.staged[e.GetKey()] = e
	}
	if !m.GetSynced() {
		if m.GetCursor() != nil {
			c.t.Errorf("a cursor without synced")
		}
		return
	}
	var sum [16]byte
	for _, e := range c.staged {
		for i := range sum {
			sum[i] ^= e.GetFingerprint()[i]
		}
	}
	if !slices.Equal(sum[:], m.GetDigest()) || len(c.staged) != int(m.GetCount()) {
		c.t.Fatalf("%d entries and digest %x, the message has %d and %x", len(c.staged), sum, m.GetCount(), m.GetDigest())
	}
	if c.cursor.GetEpoch() == m.GetCursor().GetEpoch() && c.cursor.GetRevision() > m.GetCursor().GetRevision() {
		c.t.Fatalf("revision from %d to %d", c.cursor.GetRevision(), m.GetCursor().GetRevision())
	}
	c.set, c.staged, c.cursor, c.digest = c.staged, nil, m.GetCursor(), m.GetDigest()
}

// catchUp sends the client what it lacks of a feed, on a stream of its own.
func (c *testClient) catchUp(t rapid.TB, f *Feed, selection *stream.Selection) {
	from, err := stream.ResumePosition(c.cursor, c.digest)
	if err != nil {
		t.Fatal(err)
	}
	c.t, c.received = t, 0
	r := f.NewReader(from, selection, stream.HeartbeatInterval)
	_, messages := r.Next()
	for m := range messages {
		c.receive(m.Content)
	}
	r.Sent()
	if kind, _ := r.Next(); kind != stream.Heartbeat {
		t.Fatalf("it lacks something: %s", kind)
	}
}

// findViolation returns what rule R13 forbids about an entry.
func findViolation(e *writerv1.Entry) string {
	port := func(p *writerv1.Port) bool { return p.GetNumber() >= 1 && p.GetNumber() <= 65535 }
	backend := func(b *writerv1.Backend) bool {
		a, err := netip.ParseAddr(b.GetAddress())
		return err == nil && a.String() == b.GetAddress() && (b.GetServing() || !b.GetReady())
	}
	if e.GetKey() == "" || len(e.GetKey()) > 256 || e.GetNamespace() == "" || e.GetService() == "" || len(e.GetFingerprint()) != 16 {
		return "key, namespace, service or fingerprint"
	}
	switch kind := e.GetKind().(type) {
	case *writerv1.Entry_Target:
	case *writerv1.Entry_Endpoint:
		if !port(kind.Endpoint.GetPort()) || !backend(kind.Endpoint.GetBackend()) {
			return "endpoint"
		}
	case *writerv1.Entry_Group:
		seen := map[string]bool{}
		for _, b := range kind.Group.GetBackends() {
			if !backend(b) || seen[b.GetAddress()] {
				return "backend"
			}
			seen[b.GetAddress()] = true
		}
		if !port(kind.Group.GetPort()) {
			return "port"
		}
	default:
		return fmt.Sprintf("kind %T", kind)
	}
	return ""
}

func (c *testClient) untilSynced() (messages int) {
	c.t.Helper()
	for messages = 1; !c.nextMessage().GetSynced(); {
		messages++
	}
	return messages
}

func (c *testClient) entryKeys() []string { return slices.Sorted(maps.Keys(c.set)) }

func (c *testClient) waitForEnd() codes.Code {
	for {
		if _, err := c.stream.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

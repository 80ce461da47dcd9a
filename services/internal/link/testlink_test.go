package link

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLog is a log that tests can read while it is written.
type testLog struct {
	mu       sync.Mutex
	buf      bytes.Buffer
	nextLine chan struct{} // closed when the next line is written
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nextLine != nil {
		close(l.nextLine)
		l.nextLine = nil
	}
	return l.buf.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// waitFor waits until the log contains text: a peer may get its error before the server logs it.
func (l *testLog) waitFor(t *testing.T, text string) {
	t.Helper()
	ctx := testContext(t)
	for {
		l.mu.Lock()
		if l.nextLine == nil {
			l.nextLine = make(chan struct{})
		}
		all, nextLine := l.buf.String(), l.nextLine
		l.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-nextLine:
		case <-ctx.Done():
			t.Fatalf("log does not contain %q:\n%s", text, all)
		}
	}
}

// testLink is a server on a real port, and the CAs and files for its clients.
type testLink struct {
	serverCA, clientCA *testCA
	component, name    string // empty: those of the inventory
	files              Files
	listPath           string
	server             *Server
	onStop             func()        // called by the service's Stop; may be nil
	pendingLimit       int           // of unfinished handshakes; 0: the usual one
	reloadInterval     time.Duration // 0: the usual one
	address            string
	metrics            *prometheus.Registry
	clientMetrics      *prometheus.Registry // of the last client
	log                *testLog
	stop               func() error // stops the server and returns Serve's error
}

const sampleClients = `
clients:
- {san: ` + writerURI + `, role: subscriber, services: [shop/web]}
- {san: ` + operatorDNS + `, role: operator}
`

// newTestLink starts a server with a certificate of that spec.
func newTestLink(t *testing.T, spec certSpec) *testLink {
	t.Helper()
	r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA")}
	r.writeFiles(t, spec)
	r.start(t)
	return r
}

// resetOutputs starts a new log and a new metrics registry.
func (r *testLink) resetOutputs() { r.metrics, r.log = prometheus.NewRegistry(), &testLog{} }

// writeFiles writes the server's files, with a certificate of that spec.
func (r *testLink) writeFiles(t *testing.T, spec certSpec) {
	t.Helper()
	r.resetOutputs()
	r.listPath = filepath.Join(t.TempDir(), "clients.yaml")
	r.files = r.serverCA.writeFiles(t, spec, r.clientCA)
	writeFile(t, r.listPath, []byte(sampleClients))
}

// start serves until the test ends.
func (r *testLink) start(t *testing.T) {
	t.Helper()
	r.server = must(NewServer(r.config(cmp.Or(r.component, "inventory"), cmp.Or(r.name, "feed"), r.files), r.listPath))(t)
	listener := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	r.address = listener.Addr().String()
	r.server.gracePeriod = time.Minute
	if r.pendingLimit > 0 {
		r.server.handshaker.pending.limit = r.pendingLimit
	}
	r.server.id.interval = cmp.Or(r.reloadInterval, r.server.id.interval)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(ctx, listener, testService{r}) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// testService serves probeService and operatorService.
type testService struct{ link *testLink }

func (testService) Register(to grpc.ServiceRegistrar) {
	to.RegisterService(&probeService, struct{}{})
	to.RegisterService(&operatorService, struct{}{})
}

func (testService) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (s testService) Stop() {
	if s.link.onStop != nil {
		s.link.onStop()
	}
}

func (r *testLink) config(component, name string, f Files) Config {
	return Config{
		Component:          component,
		Name:               name,
		Files:              f,
		Logger:             slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer:         r.metrics,
		SubscriberServices: []string{probeService.ServiceName},
	}
}

// dial connects as a client with a certificate of that spec, which expects a server of that name.
func (r *testLink) dial(t *testing.T, spec certSpec, server SAN) *grpc.ClientConn {
	t.Helper()
	return r.dialWith(t, r.clientCA.writeFiles(t, spec, r.serverCA), server)
}

func (r *testLink) dialWith(t *testing.T, f Files, server SAN) *grpc.ClientConn {
	t.Helper()
	return r.dialClient(t, must(NewClient(r.clientConfig(f), r.address, server))(t))
}

func (r *testLink) dialClient(t *testing.T, client *Client) *grpc.ClientConn {
	t.Helper()
	conn := must(client.Dial())(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *testLink) clientConfig(f Files) Config {
	cfg := r.config("writer", "default", f)
	r.clientMetrics = prometheus.NewRegistry()
	cfg.Registerer = r.clientMetrics
	return cfg
}

func (r *testLink) connect(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := must(grpc.NewClient("passthrough:"+r.address, options...))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// checkHealth makes the simplest call that every listed client may make.
func checkHealth(t *testing.T, conn *grpc.ClientConn, options ...grpc.CallOption) error {
	t.Helper()
	_, err := healthpb.NewHealthClient(conn).Check(testContext(t), &healthpb.HealthCheckRequest{}, options...)
	return err
}

// probeService is a service that records how calls are authorized. Who returns the caller's name and
// role; Panic panics; Hang blocks until its context is done; Watch is a stream that sends one
// message and then blocks; Listen is a stream that only receives.
var probeService = grpc.ServiceDesc{
	ServiceName: "test.Probe", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unaryMethod("Who", func(ctx context.Context, _ *wrapperspb.StringValue) (string, error) {
			g, err := Identify(ctx)
			if err != nil {
				return "", err
			}
			return string(g.SAN) + " " + string(g.Role), nil
		}),
		unaryMethod("Panic", func(context.Context, *wrapperspb.StringValue) (string, error) { panic("on purpose") }),
		unaryMethod("Hang", func(ctx context.Context, _ *wrapperspb.StringValue) (string, error) {
			hangStarted <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		}),
	},
	Streams: []grpc.StreamDesc{{StreamName: "Listen", ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
				return err
			}
			messageReceived <- struct{}{}
		}
	}}, {StreamName: "Watch", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		if err := s.SendMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}}},
}

// operatorService is a service that subscribers may not call.
var operatorService = grpc.ServiceDesc{
	ServiceName: "test.Operator",
	HandlerType: (*any)(nil),
	Streams:     probeService.Streams,
	Methods: []grpc.MethodDesc{
		methodOf("test.Operator", "Who", func(context.Context, *wrapperspb.StringValue) (string, error) { return "", nil }),
	},
}

// Hang sends to hangStarted when it starts, Listen to messageReceived for each message.
var hangStarted, messageReceived = make(chan struct{}, 1), make(chan struct{}, 1)

func unaryMethod(name string, f func(context.Context, *wrapperspb.StringValue) (string, error)) grpc.MethodDesc {
	return methodOf("test.Probe", name, f)
}

func methodOf(service, name string, f func(context.Context, *wrapperspb.StringValue) (string, error)) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return intercept(
				ctx,
				in,
				&grpc.UnaryServerInfo{FullMethod: "/" + service + "/" + name},
				func(ctx context.Context, req any) (any, error) {
					out, err := f(ctx, req.(*wrapperspb.StringValue))
					if err != nil {
						return nil, err
					}
					return wrapperspb.String(out), nil
				},
			)
		},
	}
}

func callProbe(t *testing.T, conn *grpc.ClientConn, method, text string) (string, error) {
	t.Helper()
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(testContext(t), "/test.Probe/"+method, wrapperspb.String(text), out)
	return out.GetValue(), err
}

// openWatch opens a stream and waits for its first message.
func openWatch(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true}, "/test.Probe/Watch"))(t)
	if err := errors.Join(s.SendMsg(new(emptypb.Empty)), s.CloseSend(), s.RecvMsg(new(emptypb.Empty))); err != nil {
		t.Fatal(err)
	}
	return s
}

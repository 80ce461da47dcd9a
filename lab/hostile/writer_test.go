// Package hostile has peers that mean harm and have valid certificates: an inventory against the
// writer's real stages, and a subscriber against the real inventory. It promises that what they
// do follows from a seed, that what they made the other side hold was measured, and that a
// failure tells its seed. It refuses to judge by more than the documents promise: fences,
// guards, bounds, and that what was seen is said.
package hostile

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// fence is where the writer's one source may point.
var fence = netip.MustParsePrefix("10.0.1.0/24")

const (
	shrinkWindow = time.Minute
	maxResponse  = 4<<20 + 64<<10 // as the real link has it
)

// sight is a write of slices: which addresses are ready from then on.
type sight struct {
	at    time.Time
	all   []string
	ready map[string]bool
}

// writer is the writer's stages from the subscriber to the applier, with a consuming cluster
// that is a fake. There are no probes: with them off the least stands between a lie and the slices.
type writer struct {
	sub      *subscriber.Feeds
	registry *prometheus.Registry
	errors   atomic.Int64 // lines of the log at the level of an error
	lines    atomic.Int64 // that the programs would write, which limit those with one message about one object

	mu      sync.Mutex
	written map[string]int // lines in a minute
	slices  map[string]*discoveryv1.EndpointSlice
	version int
	seen    []sight
}

// Leading and the rest make of it a Lease that is held for good.
func (w *writer) Leading() bool { return true }

// LeadingSince is long ago.
func (w *writer) LeadingSince() time.Time { return time.Unix(0, 0) }

// Changed never tells of anything.
func (w *writer) Changed() <-chan struct{} { return nil }

// Release does nothing.
func (w *writer) Release() func() { return func() {} }

// dial connects to an inventory as the real link does.
func dial(listener *bufconn.Listener) func() (*grpc.ClientConn, error) {
	return func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///inventory",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	}
}

// work runs the writer against an inventory, in a bubble of its own time, while meanwhile lasts.
func work(t *testing.T, empty int, inventory func(*grpc.Server), meanwhile func(*writer)) {
	t.Helper()
	w := &writer{
		registry: prometheus.NewRegistry(),
		written:  map[string]int{},
		slices:   map[string]*discoveryv1.EndpointSlice{},
		version:  1_000_000,
	} // above what the fake cluster's lists have
	log := slog.New(counting{w})
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.WaitForHandlers(true))
	inventory(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	w.sub = subscriber.New(subscriber.Config{
		Source: "default", Dial: dial(listener), Log: log, Metrics: subscriber.NewMetrics(w.registry), Random: func() float64 { return 0 },
	})
	client := fake.NewClientset(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web",
			Name:      "shop",
			UID:       types.UID("shop"),
			Labels:    map[string]string{targets.LabelClass: "default"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.1.250", ClusterIPs: []string{"10.0.1.250"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		},
	})
	client.PrependReactor("*", "endpointslices", w.note)
	followed, err := targets.New(client, nil, targets.Config{
		Class:      "default",
		Writer:     "web",
		Namespaces: []string{"web"},
		Defaults:   targets.Settings{Probe: probe.Spec{Mode: probe.Off}, ListUnready: true},
		Sources:    []sources.Source{{Name: "default", Ports: []sources.PortRange{{First: 1, Last: 65535}}}},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	told := events.NewReporter(events.Config{Logger: log})
	hooks := report.NewHooks(w.registry, told, nil)
	config := reconciler.Config{
		Sources: []reconciler.Source{{Name: "default", Feeds: w.sub, CIDRs: []netip.Prefix{fence}}},
		Targets: followed, Prober: probe.NewProber(log, w.registry), Lease: w,
		Limits:    verdict.Limits{ShrinkWindow: shrinkWindow, EmptyThreshold: empty, MaxStaleness: 15 * time.Minute},
		Endpoints: endpoints.NewStore("life"), Reporter: told, Logger: log, Registerer: w.registry,
		Applier: func() *applier.Applier {
			return applier.New(applier.Config{Store: store{client}, Leading: w.Leading, Hooks: hooks, Logger: log})
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	running, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{w.sub.Run, followed.Run, func(ctx context.Context) error { return reconciler.Run(ctx, config) }} {
		running.Go(func() error { return run(ctx) })
	}
	meanwhile(w)
	stop()
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	server.Stop()
	<-served
	synctest.Wait()
}

// note sees each write before the fake cluster does, and gives it what an API server would.
func (w *writer) note(action kubetesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch a := action.(type) {
	case kubetesting.CreateAction: // an update is one, too
		slice := a.GetObject().(*discoveryv1.EndpointSlice)
		w.version++
		slice.ResourceVersion = strconv.Itoa(w.version)
		if slice.UID == "" {
			slice.UID = types.UID(fmt.Sprintf("slice-%d", w.version))
		}
		w.slices[slice.Name] = slice.DeepCopy()
	case kubetesting.DeleteAction:
		delete(w.slices, a.GetName())
	default:
		return false, nil, nil
	}
	one := sight{at: time.Now(), ready: map[string]bool{}}
	for _, slice := range w.slices {
		for _, e := range slice.Endpoints {
			one.all = append(one.all, e.Addresses...)
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				one.ready[e.Addresses[0]] = true
			}
		}
	}
	w.seen = append(w.seen, one)
	return false, nil, nil
}

func (w *writer) sights() []sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// breaches are those that the writer has counted, by kind.
func (w *writer) breaches(t *testing.T) map[string]int {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, f := range families {
		if f.GetName() != "slicefeed_writer_source_protocol_violations_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if n := int(m.GetCounter().GetValue()); l.GetName() == "kind" && n > 0 {
					all[l.GetValue()] = n
				}
			}
		}
	}
	return all
}

// counting counts the lines of a log.
type counting struct{ *writer }

// Enabled leaves out Debug lines, which are off by default.
func (c counting) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// WithAttrs is of no matter.
func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup is of no matter.
func (c counting) WithGroup(string) slog.Handler { return c }

// Handle counts, and leaves out what services/internal/command leaves out.
func (c counting) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprint(time.Now().Truncate(time.Minute), r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if slices.Contains([]string{"source", "namespace", "service", "slice"}, a.Key) {
			line += a.String()
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written[line]++; c.written[line] <= 20 {
		c.lines.Add(1)
	}
	if r.Level >= slog.LevelError && strings.Contains(r.Message, "protocol violation") {
		c.errors.Add(1)
	}
	return nil
}

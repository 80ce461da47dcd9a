package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// changingInventory sends the messages that a test puts in.
type changingInventory struct {
	inventoryv1.UnimplementedInventoryServiceServer

	messages chan *inventoryv1.WatchNodesResponse
}

func (i changingInventory) WatchNodes(
	_ *inventoryv1.WatchNodesRequest,
	stream grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse],
) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case m := <-i.messages:
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}

// logBuffer is a log that is read while others write to it.
type logBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

// take returns the lines since the last call, without their time. A repeated line counts once: a
// decision is repeated while its write is in progress.
func (b *logBuffer) take(t *testing.T) (lines []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := json.NewDecoder(&b.out); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		delete(line, "time")
		if !slices.ContainsFunc(lines, func(earlier map[string]any) bool { return maps.Equal(earlier, line) }) {
			lines = append(lines, line)
		}
	}
	b.out.Reset()
	return lines
}

func TestDebugLogFollowsChange(t *testing.T) {
	info := map[string]any{
		"level":     "INFO",
		"msg":       "slice written",
		"verb":      "update",
		"namespace": "web",
		"slice":     "shop-slicefeed",
		"endpoints": 2.0,
	}
	for level, want := range map[string][]map[string]any{
		"info": {info},
		"debug": {
			{"level": "DEBUG", "msg": "delta applied", "source": "default", "epoch": "e", "revision": 2.0, "observation": 2.0, "reset": false, "upserts": 1.0, "removed": 0.0, "members": 2.0},
			{"level": "DEBUG", "msg": "decision", "service": "web/shop", "source": "default", "address": "10.0.1.2", "verdict": "drain", "rule": "table", "reason": "source default: DRAINING, probe: off"},
			{"level": "DEBUG", "msg": "plan", "service": "web/shop", "creates": 0.0, "updates": 1.0, "deletes": 0.0},
			{"level": "DEBUG", "msg": "write", "service": "web/shop", "slice": "shop-slicefeed", "verb": "update", "result": "ok", "endpoints": 2.0},
			info,
		},
	} {
		t.Run(level, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &logBuffer{}
				inventory := changingInventory{messages: make(chan *inventoryv1.WatchNodesResponse)}
				startWriter(t, command.LogSettings{Level: level}, out, serveInventory(t, inventory))
				one := newNode("10.0.1.1", inventoryv1.NodeState_NODE_STATE_READY)
				two := newNode("10.0.1.2", inventoryv1.NodeState_NODE_STATE_READY)
				inventory.messages <- newReset(one, two)
				time.Sleep(time.Second) // the writer lists both
				out.take(t)

				two = newNode("10.0.1.2", inventoryv1.NodeState_NODE_STATE_DRAINING)
				m := newReset(one, two)
				m.Reset_, m.Upserts, m.Cursor.Revision, m.Status.Observation = false, []*inventoryv1.Node{two}, 2, 2
				inventory.messages <- m
				time.Sleep(time.Second)
				heartbeat := newReset(one, two)
				heartbeat.Reset_, heartbeat.Upserts, heartbeat.Cursor.Revision, heartbeat.Status.Observation = false, nil, 2, 2
				inventory.messages <- heartbeat // has no line
				time.Sleep(time.Second)
				if d := cmp.Diff(want, out.take(t)); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
			})
		})
	}
}

// fakeStore writes to a fake client, with a new resourceVersion for each write.
type fakeStore struct {
	client  *fake.Clientset
	version atomic.Int64
}

func (s *fakeStore) Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	slice = slice.DeepCopy()
	slice.UID, slice.ResourceVersion = "2", strconv.FormatInt(s.version.Add(1), 10)
	return s.client.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
}

func (s *fakeStore) Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	slice = slice.DeepCopy()
	slice.ResourceVersion = strconv.FormatInt(s.version.Add(1), 10)
	return s.client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
}

func (s *fakeStore) Delete(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	return s.client.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name, metav1.DeleteOptions{})
}

func (s *fakeStore) Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	return s.client.DiscoveryV1().EndpointSlices(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s *fakeStore) List(ctx context.Context, namespace string, with map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	all, _, err := applier.Kubernetes(s.client, targets.FieldManager).List(ctx, namespace, with)
	return all, strconv.FormatInt(s.version.Load(), 10), err
}

// startWriter runs a leading writer of the Service web/shop without probes, until the test ends.
func startWriter(t *testing.T, settings command.LogSettings, out *logBuffer, dial func() (*grpc.ClientConn, error)) {
	t.Helper()
	log, registry := settings.NewLogger(out), prometheus.NewRegistry()
	client := fake.NewClientset(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1", Labels: map[string]string{targets.LabelClass: "default"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	})
	watched, err := targets.New(client, nil, targets.Config{
		Class:      "default",
		Writer:     "web",
		Namespaces: []string{"web"},
		NamedTarget: targets.Target{
			Key:       targets.Key{Namespace: "web", Name: "shop"},
			ManagedBy: "slicefeed-default",
			FirstName: "shop-slicefeed",
		},
		Defaults: targets.Settings{Probe: probe.Spec{Mode: probe.Off}, ListUnready: true},
		Sources:  []sources.Source{{Name: targets.DefaultSource, Ports: []sources.PortRange{{First: 1, Last: 65535}}}},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	feeds := subscriber.New(subscriber.Config{
		Source: targets.DefaultSource, Dial: dial, Log: log, Metrics: subscriber.NewMetrics(registry),
	})
	reporter := events.NewReporter(events.Config{Logger: log})
	hooks := report.NewHooks(registry, reporter, nil)
	config := reconciler.Config{
		Sources: []reconciler.Source{
			{Feeds: feeds, Name: targets.DefaultSource, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}},
		},
		Targets:    watched,
		Prober:     probe.NewProber(log, registry),
		Lease:      dryRunLease{time.Now()},
		Endpoints:  endpoints.NewStore("epoch"),
		Reporter:   reporter,
		Logger:     log,
		Registerer: registry,
		Applier: func() *applier.Applier {
			return applier.New(
				applier.Config{Store: &fakeStore{client: client}, Leading: func() bool { return true }, Hooks: hooks, Logger: log},
			)
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{feeds.Run, watched.Run, func(ctx context.Context) error { return reconciler.Run(ctx, config) }} {
		g.Go(func() error { return run(ctx) })
	}
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// newNode returns a node of one address. Its fingerprint depends on its address and state.
func newNode(address string, state inventoryv1.NodeState) *inventoryv1.Node {
	sum := sha256.Sum256([]byte(address + state.String()))
	return &inventoryv1.Node{
		Name: "node-" + address, Addresses: []string{address}, State: state, StateAge: durationpb.New(0), Fingerprint: sum[:16],
	}
}

func digestOf(nodes ...*inventoryv1.Node) []byte {
	digest := make([]byte, 16)
	for _, n := range nodes {
		for i, b := range n.GetFingerprint() {
			digest[i] ^= b
		}
	}
	return digest
}

// newReset returns the first message of a stream, at revision 1, with a complete set.
func newReset(nodes ...*inventoryv1.Node) *inventoryv1.WatchNodesResponse {
	synced := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED}
	return &inventoryv1.WatchNodesResponse{
		Cursor: &inventoryv1.Cursor{Epoch: "e", Revision: 1}, Reset_: true, Upserts: nodes, Synced: true,
		Status: &inventoryv1.SourceStatus{Membership: synced, Addresses: synced, Observation: 1, ObservationAge: durationpb.New(0)},
		Count:  uint32(len(nodes)), Digest: digestOf(nodes...), HeartbeatInterval: durationpb.New(time.Minute),
	}
}

// serveInventory serves an inventory in memory until the test ends, and returns how to connect to it.
func serveInventory(t *testing.T, inventory inventoryv1.InventoryServiceServer) func() (*grpc.ClientConn, error) {
	t.Helper()
	pipe := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	inventoryv1.RegisterInventoryServiceServer(server, inventory)
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(pipe) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///inventory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	}
}

package skew

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/examples/proxy/endpointsync"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/endpointserver"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// consumer keeps a set of examples/proxy abreast of a writer.
type consumer struct {
	mu       sync.Mutex
	shop     []netip.AddrPort
	synced   int
	resets   int
	breaches []string
}

func consume(t *testing.T, conn grpc.ClientConnInterface, gather bool) *consumer {
	c := &consumer{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var set endpointsync.Set
		for ctx.Err() == nil {
			c.stream(ctx, writerv1.NewWriterServiceClient(conn), &set, gather)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

func (c *consumer) stream(ctx context.Context, client writerv1.WriterServiceClient, set *endpointsync.Set, gather bool) {
	req := &writerv1.WatchEndpointsRequest{GroupByPort: gather}
	set.Begin(req)
	stream, err := client.WatchEndpoints(ctx, req)
	for err == nil {
		var m *writerv1.WatchEndpointsResponse
		if m, err = stream.Recv(); err != nil {
			return
		}
		synced, breach := set.Apply(m)
		c.mu.Lock()
		if m.GetReset_() {
			c.resets++
		}
		if synced {
			c.synced++
			c.shop = set.Backends("web", "shop", "http")
		}
		if breach != nil {
			c.breaches = append(c.breaches, breach.Error())
			set.Forget()
			err = breach
		}
		c.mu.Unlock()
	}
}

func target(service string, addresses ...string) endpoints.Target {
	t := endpoints.Target{
		Namespace: "web", Service: service, State: endpoints.Managed, Leading: true,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080)), AppProtocol: new("http")}},
	}
	for _, a := range addresses {
		t.Decision.Endpoints = append(t.Decision.Endpoints, verdict.Endpoint{
			Address: netip.MustParseAddr(
				a,
			),
			Listed:     true,
			Source:     "default",
			Zone:       "zone-1",
			Conditions: verdict.Conditions{Ready: true, Serving: true},
		})
	}
	return t
}

func moved(field protoreflect.FullName, to protowire.Number) map[protoreflect.FullName]protowire.Number {
	return map[protoreflect.FullName]protowire.Number{field: to}
}

func targetStates(n protoreflect.EnumNumber) map[protoreflect.FullName]protoreflect.EnumNumber {
	return map[protoreflect.FullName]protoreflect.EnumNumber{"slicefeed.writer.v1.TargetState": n}
}

// writers are ways in which what a proxy asks and is told differs between versions.
var writers = []struct {
	name              string
	requests, answers Alter
	gather            bool
	empty             bool // the proxy knows nothing of what is told
}{
	{name: "both ends newer", requests: Alter{Unknown: true}, answers: Alter{Unknown: true}},
	{name: "a newer proxy", requests: Alter{Unknown: true}},
	{name: "a newer writer", answers: Alter{Unknown: true}},
	{name: "a state of targets that nobody knows", answers: Alter{Enums: targetStates(99)}},
	{name: "a negative one", answers: Alter{Enums: targetStates(-1)}},
	{name: "targets told as a kind of entry that nobody knows", answers: Alter{Moved: moved("slicefeed.writer.v1.Entry.target", 8)}},
	{
		name:    "endpoints told as a kind of entry that nobody knows",
		answers: Alter{Moved: moved("slicefeed.writer.v1.Entry.endpoint", 8)},
		empty:   true,
	},
	{
		name:    "gathered, as a kind of entry that nobody knows",
		answers: Alter{Moved: moved("slicefeed.writer.v1.Entry.group", 8)},
		gather:  true,
		empty:   true,
	},
	{name: "gathered, both ends newer", requests: Alter{Unknown: true}, answers: Alter{Unknown: true}, gather: true, empty: true},
	{name: "a writer that knows only what it must", answers: Alter{Without: []protoreflect.FullName{
		"slicefeed.writer.v1.WatchEndpointsResponse.heartbeat_interval", "slicefeed.writer.v1.WriterStatus.held",
		"slicefeed.writer.v1.WriterStatus.sources", "slicefeed.writer.v1.WriterStatus.reason", "slicefeed.writer.v1.Port.app_protocol",
		"slicefeed.writer.v1.Backend.source", "slicefeed.writer.v1.Backend.zone", "slicefeed.writer.v1.Target.ports",
	}}},
	{name: "a proxy that cannot ask to gather, and is told endpoints", requests: Alter{Without: []protoreflect.FullName{
		"slicefeed.writer.v1.WatchEndpointsRequest.group_by_port",
	}}, gather: true},
}

func TestWhatAProxyHoldsIsWhatTheWriterDecidedWhateverTheirVersions(t *testing.T) {
	for _, row := range writers {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := endpoints.NewStore("life")
				server := endpointserver.New(endpointserver.Config{
					Store: board, Health: health.NewServer(), Metrics: endpointserver.NewMetrics(prometheus.NewRegistry(), board),
					Identify: func(context.Context) (string, error) { return "proxy", nil },
				})
				conn := host(t, func(s registrar) { writerv1.RegisterWriterServiceServer(s, server) })
				between := NewBetween(conn)
				between.Alter(row.requests, row.answers)
				direct := consume(t, conn, false)
				through := consume(t, host(t, nil, between.Options()...), row.gather)
				same := func(when string, n int) {
					t.Helper()
					time.Sleep(5 * time.Second)
					synctest.Wait()
					direct.mu.Lock()
					want := slices.Clone(direct.shop)
					direct.mu.Unlock()
					if len(want) != n {
						t.Fatalf("%s: the writer tells %d addresses, want %d", when, len(want), n)
					}
					if row.empty {
						want = nil
					}
					through.mu.Lock()
					defer through.mu.Unlock()
					if diff := cmp.Diff(want, through.shop, cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("%s: through the in-between comes another set (-told +came):\n%.2000s", when, diff)
					}
					if len(through.breaches) > 0 {
						t.Fatalf("%s: breaches: %q", when, through.breaches)
					}
				}

				same("before the first decisions", 0)
				var many []string
				for i := range 510 { // more than fits into one message
					many = append(many, fmt.Sprintf("10.0.%d.%d", i/250, i%250+1))
				}
				board.Put(target("shop", many...))
				board.Put(target("other", "10.0.0.1", "10.0.0.2"))
				board.Put(target("nobody"))
				board.MarkSynced()
				same("the first set", 510)
				board.Put(target("shop", many[5:]...))
				paused := target("other")
				paused.State = endpoints.Paused
				board.Put(paused)
				same("changes", 505)
				board.Remove("web", "nobody")
				time.Sleep(time.Minute)
				same("a minute of heartbeats", 505)
				between.Break()
				time.Sleep(10 * time.Second)
				same("a new stream", 505)
				board.Put(target("shop", many[10:20]...))
				same("changes after it", 10)

				through.mu.Lock()
				defer through.mu.Unlock()
				if through.resets != 1 || through.synced < 5 {
					t.Errorf(
						"%d resets and %d synced states, want 1 and more: the new stream has to resume where the old one was",
						through.resets,
						through.synced,
					)
				}
				if between.Altered() == 0 {
					t.Error("no message was altered: this row tests nothing")
				}
				server.Stop()
			})
		})
	}
}

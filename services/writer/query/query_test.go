package query

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	discoveryv1 "k8s.io/api/discovery/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
	"github.com/slicefeed/slicefeed/services/internal/identity"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/endpointserver"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustParseAddr(text string) netip.Addr { return netip.MustParseAddr(text) }

// newTarget returns a target: one address is ready, one is not ready though reported as ready, one drains
// and is held, one is new.
func newTarget() endpoints.Target {
	now := time.Now()
	serving, draining := verdict.Conditions{Ready: true, Serving: true}, verdict.Conditions{Serving: true, Terminating: true}
	member := func(address, name string, state verdict.State) verdict.Member {
		return verdict.Member{Address: mustParseAddr(address), Name: name, State: state, Since: now.Add(-time.Hour)}
	}
	decided := func(address string, v verdict.Verdict, c verdict.Conditions, listed bool, rule verdict.Rule) verdict.Endpoint {
		return verdict.Endpoint{
			Address:    mustParseAddr(address),
			Source:     "blue",
			Verdict:    v,
			Conditions: c,
			Listed:     listed,
			Rule:       rule,
			Reason:     "source blue: …, probe: …",
		}
	}
	t := endpoints.Target{
		Namespace: "web", Service: "shop", State: endpoints.Managed, Leading: true,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}, {Name: new("admin"), Port: new(int32(30081))}},
		Input: verdict.Input{
			Limits: verdict.Limits{Probing: true},
			Sources: []verdict.Source{
				{
					Name:          "blue",
					EverSynced:    true,
					Connected:     true,
					Observation:   7,
					ObservationAt: now.Add(-2 * time.Second),
					Members: []verdict.Member{
						member("10.0.0.1", "worker-1", verdict.Ready), member("10.0.0.2", "worker-2", verdict.Ready),
						member("10.0.0.3", "worker-3", verdict.Draining), member("10.0.0.4", "worker-4", verdict.Ready),
					},
				},
				{Name: "green"},
			},
			Probes: []verdict.Probe{
				{Address: mustParseAddr("10.0.0.1"), Status: verdict.Passing, Since: now.Add(-time.Minute)},
				{
					Address:    mustParseAddr("10.0.0.2"),
					Status:     verdict.Failing,
					Since:      now.Add(-9 * time.Second),
					Detail:     "connection refused",
					LastPassed: now.Add(-11 * time.Second),
				},
				{Address: mustParseAddr("10.0.0.3"), Status: verdict.Passing, Since: now.Add(-time.Minute)},
				{Address: mustParseAddr("10.0.0.4")},
			},
			Current: []verdict.CurrentEndpoint{
				{Address: mustParseAddr("10.0.0.1"), Conditions: serving, Source: "blue"},
				{Address: mustParseAddr("10.0.0.2"), Conditions: serving, Source: "blue"},
				{Address: mustParseAddr("10.0.0.3"), Conditions: draining, Source: "blue"},
			},
		},
		Sources: []subscriber.Snapshot{
			{
				Source:         "blue",
				EverSynced:     true,
				SyncedInStream: true,
				Connected:      true,
				Membership:     subscriber.PartStatus{State: subscriber.Synced},
				Addresses:      subscriber.PartStatus{State: subscriber.Synced},
			},
			{Source: "green"},
		},
	}
	t.Decision = verdict.Decision{
		Write: true, Wake: now.Add(25 * time.Second),
		Endpoints: []verdict.Endpoint{
			decided(
				"10.0.0.1",
				verdict.Serve,
				serving,
				true,
				verdict.RuleTable,
			),
			decided("10.0.0.2", verdict.Unready, verdict.Conditions{}, true, verdict.RuleTable),
			decided(
				"10.0.0.3",
				verdict.Hold,
				draining,
				true,
				verdict.RuleShrink,
			),
			decided("10.0.0.4", verdict.Hold, verdict.Conditions{}, false, verdict.RuleTable),
		},
		Guards: []verdict.Guard{{Rule: verdict.RuleShrink, Source: "blue", Held: 1, Message: "One stays for now: \x1b[31mlook there."}},
	}
	return t
}

// runCommand runs a command against a store, and returns its output and error.
func runCommand(
	t *testing.T,
	put func(*endpoints.Store),
	operator bool,
	answer func(context.Context, request) error,
	args ...string,
) (text string, err error) {
	t.Helper()
	return runFormat(t, command.Table, put, operator, answer, args...)
}

// runFormat is runCommand with --output.
func runFormat(
	t *testing.T,
	format command.Format,
	put func(*endpoints.Store),
	operator bool,
	answer func(context.Context, request) error,
	args ...string,
) (text string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := endpoints.NewStore("instance")
		put(store)
		service := endpointserver.New(endpointserver.Config{
			Store: store, Health: health.NewServer(), Metrics: endpointserver.NewMetrics(prometheus.NewRegistry(), store),
			Identify: func(context.Context) (string, error) { return "me", nil },
		})
		lis := bufconn.Listen(1 << 16)
		srv := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(
			func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				if !operator && strings.Contains(info.FullMethod, writerv1.WriterOperatorService_ServiceDesc.ServiceName) {
					return nil, status.Error(codes.PermissionDenied, "the service requires role operator") // as package link does
				}
				return handler(ctx, req)
			}))
		service.Register(srv)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(lis) }()
		conn, errDial := grpc.NewClient("passthrough:///writer", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if errDial != nil {
			t.Fatal(errDial)
		}
		var q request
		if q, err = parseArgs(args); err == nil {
			var out bytes.Buffer
			q.writer, q.operator = writerv1.NewWriterServiceClient(conn), writerv1.NewWriterOperatorServiceClient(conn)
			q.format, q.out = format, &out
			q.handshakeError = func() *identity.HandshakeError { return nil }
			err = answer(t.Context(), q)
			text = out.String()
		}
		_ = conn.Close()
		service.Stop()
		srv.Stop()
		<-served
	})
	return text, err
}

func syncedStore(targets ...endpoints.Target) func(*endpoints.Store) {
	return func(b *endpoints.Store) {
		for _, t := range targets {
			b.Put(t)
		}
		b.MarkSynced()
	}
}

func TestListsEndpoints(t *testing.T) {
	for _, c := range []struct {
		name     string
		operator bool
		alter    func(*endpoints.Target)
		want     string
	}{
		{"to an operator", true, func(*endpoints.Target) {}, `
web/shop: managed, as seen by the leader
ports:         admin 30081/TCP, http 30080/TCP

ADDRESS   STATE      ZONE  SOURCE
10.0.0.1  ready            blue
10.0.0.2  not ready        blue
10.0.0.3  draining         blue

1 ready, 1 draining, 1 not ready

guard:         Guard shrink (source blue) holds 1 address: One stays for now: [31mlook there.
next decision: in 25s
source:        green: not synced since start
`},
		{"to a subscriber, of a standby", false, func(t *endpoints.Target) { t.Leading = false }, `
web/shop: managed, as seen by a standby
ports:         admin 30081/TCP, http 30080/TCP

ADDRESS   STATE      ZONE  SOURCE
10.0.0.1  ready            blue
10.0.0.2  not ready        blue
10.0.0.3  draining         blue

1 ready, 1 draining, 1 not ready

changes held by guards: 1; only clients with role operator see the guards
source:        green: not synced since start
`},
		{"rejected, and without slices", true, func(t *endpoints.Target) {
			*t = endpoints.Target{Namespace: "web", Service: "shop", State: endpoints.Rejected, Reason: "ServiceHasSelector", Message: "Remove it."}
		}, `
web/shop: rejected (ServiceHasSelector: Remove it.), as seen by a standby
ports:         none

ADDRESS  STATE  ZONE  SOURCE

0 ready, 0 draining, 0 not ready

next decision: with the next change
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := runCommand(t, func(b *endpoints.Store) {
				target := newTarget()
				c.alter(&target)
				b.Put(target)
				b.MarkSynced()
			}, c.operator, listEndpoints, "web/shop")
			if diff := cmp.Diff(c.want[1:], got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestExplainsEndpoint(t *testing.T) {
	for address, c := range map[string]struct {
		err  error
		want string
	}{
		"10.0.0.1": {nil, `
10.0.0.1 of web/shop, as seen by the leader

Service:       managed
ports:         admin 30081/TCP, http 30080/TCP
source:        blue: ready for 60m, as worker-1 (observation 7, received 2s ago)
source:        green: not synced since start
probe:         passing for 60s
decision:      serve, by rule table: source blue: …, probe: …
current:       ready
desired:       ready
next decision: in 25s

Listed as ready by source and probe.
`},
		"10.0.0.2": {errNotReady, `
10.0.0.2 of web/shop, as seen by the leader

Service:       managed
ports:         admin 30081/TCP, http 30080/TCP
source:        blue: ready for 60m, as worker-2 (observation 7, received 2s ago)
source:        green: not synced since start
probe:         failing for 9s: connection refused; last passed 11s ago
decision:      unready, by rule table: source blue: …, probe: …
current:       ready
desired:       not ready
next decision: in 25s

Listed as not ready by source and probe.
The probe fails: connection refused. Check the backend at this address and the network between
writer and backend.
`},
		"10.0.0.3": {errNotReady, `
10.0.0.3 of web/shop, as seen by the leader

Service:       managed
ports:         admin 30081/TCP, http 30080/TCP
source:        blue: draining for 60m, as worker-3 (observation 7, received 2s ago)
source:        green: not synced since start
probe:         passing for 60s
decision:      hold, by rule shrink: source blue: …, probe: …
current:       draining
desired:       draining
guard:         Guard shrink (source blue) holds 1 address: One stays for now: [31mlook there.
next decision: in 25s

Guard shrink holds a change: still listed as draining.
`},
		"10.0.0.9": {errNotReady, `
10.0.0.9 of web/shop, as seen by the leader

Service:       managed
ports:         admin 30081/TCP, http 30080/TCP
source:        blue: does not list it (observation 7, received 2s ago)
source:        green: not synced since start
probe:         this address is not probed
decision:      none for this address
current:       not listed
desired:       not listed
next decision: in 25s

No source and no slice lists this address.
Source green has not synced since this writer started, so it may list the address. Check the link to
its inventory.
`},
	} {
		t.Run(address, func(t *testing.T) {
			got, err := runCommand(t, func(b *endpoints.Store) { b.Put(newTarget()) }, true, explainEndpoint, "web/shop", address)
			if diff := cmp.Diff(c.want[1:], got); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

var update = flag.Bool("update", false, "write the examples into docs/reference/output.md")

func TestAnswersAsJSON(t *testing.T) {
	put := func(b *endpoints.Store) {
		target := newTarget()
		target.Ports = target.Ports[:1]
		b.Put(target)
		b.MarkSynced()
	}
	for _, c := range []struct {
		name     string
		operator bool
		answer   func(context.Context, request) error
		args     []string
		err      error
	}{
		{"endpoints", true, listEndpoints, []string{"web/shop"}, nil},
		{"writer-explain", true, explainEndpoint, []string{"web/shop", "10.0.0.2"}, errNotReady},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := runFormat(t, command.JSON, put, c.operator, c.answer, c.args...)
			if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if err := commandtest.CheckOutput("../../../docs/reference/output.md", c.name, got, *update); err != nil {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
	t.Run("a subscriber sees no details", func(t *testing.T) {
		got, err := runFormat(t, command.JSON, put, false, listEndpoints, "web/shop")
		if err != nil || !strings.HasSuffix(got, "  \"details\": null\n}\n") {
			t.Errorf("%v:\n%s", err, got)
		}
	})
}

func TestFailedRequestsGiveAdvice(t *testing.T) {
	for _, c := range []struct {
		name     string
		put      func(*endpoints.Store)
		operator bool
		answer   func(context.Context, request) error
		args     []string
		wantText string
		code     int
	}{
		{"a writer that has not decided yet", func(*endpoints.Store) {}, true, listEndpoints, []string{"web/shop"}, "the writer is not ready", 1},
		{"a Service that is no target", syncedStore(), true, listEndpoints, []string{"web/shop"}, "slicefeed.dev/class", 1},
		{"an address of a Service that is no target", syncedStore(), true, explainEndpoint, []string{"web/shop", "10.0.0.1"}, "is not a target of this writer", 1},
		{"an explanation for a subscriber", syncedStore(), false, explainEndpoint, []string{"web/shop", "10.0.0.1"}, "role operator", 1},
		{"a ServiceImport that is no target", syncedStore(), true, listEndpoints, []string{"web/shop.serviceimport"}, "web/shop.serviceimport is not a target of this writer", 1},
		{"a name that no Service has", syncedStore(), true, listEndpoints, []string{"web/shop.example"}, "NAMESPACE/SERVICE", 2},
		{"a name without a namespace", syncedStore(), true, listEndpoints, []string{"shop"}, "NAMESPACE/SERVICE", 2},
		{"a name that is none", syncedStore(), true, listEndpoints, []string{"web/Shop/x"}, "NAMESPACE/SERVICE", 2},
		{"an address that is none", syncedStore(), true, explainEndpoint, []string{"web/shop", "worker-1"}, "10.0.0.11", 2},
		{"an address with a zone", syncedStore(), true, explainEndpoint, []string{"web/shop", "fe80::1%eth0"}, "10.0.0.11", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := runCommand(t, c.put, c.operator, c.answer, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.wantText) || settings.ExitCode(err) != c.code || got != "" {
				t.Errorf(
					"it prints %q and ends with %v, code %d: want one that says %q, code %d",
					got,
					err,
					settings.ExitCode(err),
					c.wantText,
					c.code,
				)
			}
		})
	}
}

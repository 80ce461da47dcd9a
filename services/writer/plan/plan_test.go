package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
	problem "github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/targetwatch"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeFeed reports these addresses as ready; with nil it has not synced.
type fakeFeed struct{ ready []string }

func (f fakeFeed) Snapshot(string) subscriber.Snapshot {
	s := subscriber.Snapshot{Source: "default"}
	if f.ready == nil {
		return s
	}
	s.EverSynced, s.Connected, s.SyncedInStream = true, true, true
	s.Membership.State, s.MembershipSyncedAt = subscriber.Synced, time.Now()
	s.ObservationEpoch, s.Observation, s.ObservationReceivedAt = "e", 1, time.Now()
	for _, a := range f.ready {
		s.Members = append(
			s.Members,
			&subscriber.Member{Name: "node-" + a, Addresses: []netip.Addr{netip.MustParseAddr(a)}, State: subscriber.Ready},
		)
	}
	s.TrustedMembers = s.Members
	return s
}

func (fakeFeed) Use(string, string)               {}
func (fakeFeed) Leave(string)                     {}
func (fakeFeed) TakeChanged() map[string]struct{} { return nil }
func (fakeFeed) Changed() <-chan struct{}         { return nil }

func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	}
}

// leader is the Lease of a dry run.
type leader struct{}

func (leader) Term() int                { return 1 }
func (leader) Changed() <-chan struct{} { return nil }
func (leader) Release() func()          { return func() {} }

// planFixture is what a plan is made from. Its prober does not run, so all probes stay pending.
type planFixture struct {
	feed   fakeFeed
	probe  probe.Spec
	window time.Duration
	cidr   string
}

// planOutput returns what plan prints for a fixture.
func planOutput(t *testing.T, fixture planFixture, objects ...runtime.Object) (string, error) {
	t.Helper()
	results, err := planResults(t, fixture, objects...)
	var out bytes.Buffer
	if err == nil {
		err = Print(&out, command.Table, results)
	}
	return out.String(), err
}

// planResults returns what plan decides for a fixture.
func planResults(t *testing.T, fixture planFixture, objects ...runtime.Object) ([]Result, error) {
	t.Helper()
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	client := fake.NewClientset(objects...)
	watched, err := targetwatch.New(client, nil, targets.Config{
		Class:      "default",
		Writer:     "web",
		Namespaces: []string{"web"},
		NamedTarget: targets.Target{
			Key:       targets.Key{Namespace: "web", Name: "shop"},
			ManagedBy: "slicefeed-default",
			FirstName: "shop-slicefeed",
		},
		Defaults: targets.Settings{Probe: fixture.probe, ListUnready: true},
		Sources:  []targets.Source{{Name: "default"}},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	source := reconciler.Source{Feeds: fixture.feed, Name: "default", CIDRs: []netip.Prefix{netip.MustParsePrefix(fixture.cidr)}}
	config := reconciler.Config{
		Sources: []reconciler.Source{source}, Targets: watched, Prober: prober.New(prober.Config{Log: log, Registerer: registry}),
		Limits: verdict.Limits{ShrinkWindow: fixture.window}, Lease: leader{}, Board: endpoints.NewStore("epoch"),
		Reporter: events.NewReporter(events.Config{Logger: log}), Logger: log, Registerer: registry,
		Applier: func() *applier.Applier {
			return applier.New(applier.Config{Store: applier.Kubernetes(client, ""), Leading: func() bool { return true }, Logger: log})
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return watched.Run(ctx) })
	results, err := Run(ctx, config, time.Second)
	stop()
	if runErr := running.Wait(); runErr != nil {
		t.Error(runErr)
	}
	for _, a := range client.Actions() {
		if v := a.GetVerb(); v != "list" && v != "watch" {
			t.Errorf("not a read: %v", a)
		}
	}
	return results, err
}

// ownedSlice is an owned slice in which these addresses are ready.
func ownedSlice(all ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-slicefeed", UID: "2", Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop",
			discoveryv1.LabelManagedBy:   "slicefeed-default",
			"slicefeed.dev/source":       "default",
			"slicefeed.dev/writer":       "web",
		}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "shop", UID: types.UID("1")}}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
	}
	for _, a := range all {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{
				a,
			},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return slice
}

func TestPlanOutput(t *testing.T) {
	mislabeled := ownedSlice("10.0.1.1")
	mislabeled.OwnerReferences = nil // would be written if writes were not blocked
	for _, tt := range []struct {
		name    string
		stand   planFixture
		objects []runtime.Object
		want    []string
		err     string
	}{
		{
			"create",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService()},
			[]string{"create EndpointSlice shop-slicefeed\n", "  + endpoint 10.0.1.1 ready\n", "10.0.1.1  serve    ready    table  source default: READY"},
			"",
		},
		{
			"nothing",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(), ownedSlice("10.0.1.1")},
			[]string{"nothing to write\n", "10.0.1.1"},
			"",
		},
		{
			"guards",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, window: time.Minute},
			[]runtime.Object{newService(), ownedSlice("10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4")},
			[]string{"nothing to write\n", "ShrinkLimited: Source default takes out 3 more ready endpoints", "in the first 1m0s of a new leader"},
			"",
		},
		{
			"removal without a guard",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(), ownedSlice("10.0.1.1", "10.0.1.2")},
			[]string{"update EndpointSlice shop-slicefeed\n  - endpoint 10.0.1.2 ready\n", "10.0.1.2  remove   not listed"},
			"",
		},
		{
			"writes blocked by the allowlist",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, cidr: "10.9.0.0/24"},
			[]runtime.Object{newService(), mislabeled},
			[]string{"Service web/shop\n\nwrites blocked by a guard, see below\n\nADDRESS", "10.0.1.1  hold"},
			"",
		},
		{
			"pending probes",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, probe: probe.Spec{Mode: probe.TCP}},
			[]runtime.Object{newService()},
			[]string{"Probes still pending after 1s: 1."},
			"",
		},
		{
			"a foreign slice",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(), ownedSlice("10.0.1.1"), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: "theirs", Labels: map[string]string{discoveryv1.LabelServiceName: "shop"},
			}}},
			[]string{"\nForeignSlices: ", "theirs"},
			"",
		},
		{"a rejected Service", planFixture{feed: fakeFeed{ready: []string{}}}, nil, nil, "The Service does not exist"},
		{"an inventory that sends nothing", planFixture{}, []runtime.Object{newService()}, nil, "source default did not sync"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.stand.cidr == "" {
				tt.stand.cidr = "10.0.1.0/24"
			}
			start := time.Now()
			out, err := planOutput(t, tt.stand, tt.objects...)
			if tt.err == "" && err != nil || tt.err != "" && !strings.Contains(fmt.Sprint(err), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if waited := time.Since(start); tt.stand.probe.Mode != probe.Off && waited < time.Second {
				t.Errorf("waited for probes for %s, want at least 1s", waited)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("got no %q in:\n%s", want, out)
				}
			}
		})
	}
}

var update = flag.Bool("update", false, "write the example into docs/reference/output.md")

func TestPlanAsJSON(t *testing.T) {
	results, err := planResults(t, planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, window: time.Minute, cidr: "10.0.1.0/24"},
		newService(), ownedSlice("10.0.1.2", "10.0.1.3"))
	if err != nil {
		t.Fatal(err)
	}
	results[0].Problems = append(results[0].Problems, problem.NewProblem(
		problem.Warning, "ForeignSlices", "Service web/shop", "EndpointSlices managed by others belong to it, too: by-hand."))
	results[0].ProbeTimeout = 8 * time.Second
	var out bytes.Buffer
	if err := Print(&out, command.JSON, results); err != nil {
		t.Error(err)
	}
	if err := commandtest.CheckOutput("../../../docs/reference/output.md", "plan", out.String(), *update); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestStatesAsJSON(t *testing.T) {
	paused := newService()
	paused.Annotations = map[string]string{"slicefeed.dev/paused": "true"}
	for _, tt := range []struct {
		name    string
		cidr    string
		objects []runtime.Object
		want    Service // without lists
		err     bool
	}{
		{"managed", "10.0.1.0/24", []runtime.Object{newService()}, Service{State: "managed"}, false},
		{"paused", "10.0.1.0/24", []runtime.Object{paused}, Service{State: "paused"}, false},
		{"blocked", "10.9.0.0/24", []runtime.Object{newService(), ownedSlice("10.0.1.1")}, Service{State: "managed", WritesBlocked: true}, false},
		{"rejected", "10.0.1.0/24", nil, Service{State: "rejected", Message: "The Service does not exist. Create it without a selector."}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results, err := planResults(t, planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, cidr: tt.cidr}, tt.objects...)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := Print(&out, command.JSON, results); (err != nil) != tt.err {
				t.Errorf("error %v, want one: %t", err, tt.err)
			}
			var report struct {
				Services []struct {
					Service

					Problems []json.RawMessage `json:"problems"`
				} `json:"services"`
			}
			if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Services) != 1 {
				t.Fatalf("%v in %s", err, out.String())
			}
			got := report.Services[0].Service
			if tt.name == "paused" && len(got.Writes) != 1 {
				t.Errorf("a paused Service has no writes: %s", out.String())
			}
			got.Namespace, got.Service, got.ProbeTimeout, got.Writes, got.Endpoints, got.Problems = "", "", "", nil, nil, nil
			if d := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Service{})); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestPrintsWhatServeWouldWriteWheneverThatChanges(t *testing.T) {
	changesOf := func(objects ...runtime.Object) reconciler.Preview {
		results, err := planResults(t, planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, cidr: "10.0.1.0/24"}, objects...)
		if err != nil {
			t.Fatal(err)
		}
		return results[0].Preview
	}
	update, none, rejected := changesOf(
		newService(),
		ownedSlice("10.0.1.1", "10.0.1.2"),
	), changesOf(
		newService(),
		ownedSlice("10.0.1.1"),
	), changesOf()
	unsynced := update
	unsynced.Unsynced = errors.New("source default did not sync")
	var out strings.Builder
	changes, key := NewChanges(&out), targets.Key{Namespace: "web", Name: "shop"}
	for _, p := range []reconciler.Preview{unsynced, rejected, update, update, unsynced, none, none, {}, update} {
		changes.Print(key, p)
	}
	const first, second = "Service web/shop\n\nupdate EndpointSlice shop-slicefeed\n  - endpoint 10.0.1.2 ready\n\n", "Service web/shop\n\nnothing to write\n\n"
	if d := cmp.Diff(first+second+first, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestNoTargetsAsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := Print(&out, command.JSON, nil); err != nil || out.String() != "{\n  \"services\": []\n}\n" {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestSanitizesReasons(t *testing.T) {
	var b strings.Builder
	var all []Endpoint
	for _, e := range []verdict.Endpoint{
		{Address: netip.MustParseAddr("10.0.1.1"), Verdict: verdict.Serve, Listed: true, Conditions: verdict.Conditions{Ready: true, Serving: true}, Rule: verdict.RuleTable, Reason: "one\ntwo\x1b"},
		{Address: netip.MustParseAddr("10.0.1.20"), Verdict: verdict.Remove, Rule: verdict.RuleTable, Reason: "absent"},
	} {
		all = append(all, newEndpoint(&e))
	}
	printVerdicts(&b, all)
	want := `ADDRESS    VERDICT  DESIRED     RULE   REASON
10.0.1.1   serve    ready       table  one two 
10.0.1.20  remove   not listed  table  absent
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestWaitsForFirstStatusAsLongAsItMayTake(t *testing.T) {
	for _, tt := range []struct{ interval, timeout, want time.Duration }{
		{2 * time.Second, time.Second, 8 * time.Second},
		{5 * time.Minute, time.Second, time.Minute},
	} {
		if got := maxFirstStatusTime(probe.Spec{Interval: tt.interval, Timeout: tt.timeout}); got != tt.want {
			t.Errorf("every %s: got %s, want %s", tt.interval, got, tt.want)
		}
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	writerreport "github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// fakeFeed reports these addresses as ready; with nil it has not synced.
type fakeFeed struct{ ready []string }

func (f fakeFeed) Use(string, string) subscriber.Snapshot {
	s := subscriber.Snapshot{Source: "default"}
	if f.ready == nil {
		return s
	}
	s.EverSynced, s.Connected, s.SyncedInStream = true, true, true
	s.Membership.State, s.MembershipSyncedAt = subscriber.Synced, time.Now()
	s.ObservationEpoch, s.Observation, s.ObservationReceivedAt = "e", 1, time.Now()
	for _, a := range f.ready {
		s.Members = append(s.Members, &verdict.Member{Name: "node-" + a, Address: netip.MustParseAddr(a), State: verdict.Ready})
	}
	s.TrustedMembers = s.Members
	return s
}

func (fakeFeed) Leave(string)                     {}
func (fakeFeed) TakeChanged() map[string]struct{} { return nil }
func (fakeFeed) Changed() <-chan struct{}         { return nil }

func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	}
}

// planFixture is what a plan is made from. Its prober does not run, so all probes stay pending.
type planFixture struct {
	feed   fakeFeed
	probe  probe.Spec
	window time.Duration
	cidr   string
}

// planReport returns the report that plan prints for a fixture.
func planReport(t *testing.T, fixture planFixture, objects ...runtime.Object) (report.Report, error) {
	t.Helper()
	var all report.Report
	var err error
	withConfig(t, fixture, objects, func(ctx context.Context, config reconciler.Config) {
		all, err = newDryRun(io.Discard).plan(ctx, config, newBuilder(config), time.Second)
	})
	return all, err
}

func newBuilder(config reconciler.Config) *writerreport.Builder {
	return &writerreport.Builder{
		Store: config.Endpoints, Sources: func() []subscriber.Snapshot { return nil }, Leading: func() bool { return true },
		Synced: config.Targets.Synced, ImportsServed: func() error { return nil },
	}
}

// withConfig runs the inputs of a plan while it calls use, and checks that nothing is written.
func withConfig(t *testing.T, fixture planFixture, objects []runtime.Object, use func(context.Context, reconciler.Config)) {
	t.Helper()
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	client := fake.NewClientset(objects...)
	watched, err := targets.New(client, nil, targets.Config{
		Class:      "default",
		Writer:     "web",
		Namespaces: []string{"web"},
		NamedTarget: targets.Target{
			Key:       targets.Key{Namespace: "web", Name: "shop"},
			ManagedBy: "slicefeed-default",
			FirstName: "shop-slicefeed",
		},
		Defaults: targets.Settings{Probe: fixture.probe, ListUnready: true},
		Sources:  []sources.Source{{Name: "default", Ports: []sources.PortRange{{First: 1, Last: 65535}}}},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	source := reconciler.Source{Feeds: fixture.feed, Name: "default", CIDRs: []netip.Prefix{netip.MustParsePrefix(fixture.cidr)}}
	config := reconciler.Config{
		Sources: []reconciler.Source{source}, Targets: watched, Prober: probe.NewProber(log, registry),
		Limits: verdict.Limits{ShrinkWindow: fixture.window}, Lease: dryRunLease{time.Now()}, Endpoints: endpoints.NewStore("epoch"),
		Reporter: events.NewReporter(events.Config{Logger: log}), Logger: log, Registerer: registry,
		Applier: func() *applier.Applier {
			return applier.New(applier.Config{Store: applier.Kubernetes(client, ""), Leading: func() bool { return true }, Logger: log})
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return watched.Run(ctx) })
	use(ctx, config)
	stop()
	if runErr := running.Wait(); runErr != nil {
		t.Error(runErr)
	}
	for _, a := range client.Actions() {
		if v := a.GetVerb(); v != "list" && v != "watch" {
			t.Errorf("not a read: %v", a)
		}
	}
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
			[]string{"shop-slicefeed: create planned\n", "  + endpoint 10.0.1.1 ready\n", "rule:     table: source default: READY", "listed:   not listed, wanted ready"},
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
			[]string{"nothing to write\n", "Source default takes out 3 more ready endpoints", "in the first 1m0s of a new leader", "(ShrinkLimited", "10.0.1.4  ready        shrink"},
			"",
		},
		{
			"removal without a guard",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(), ownedSlice("10.0.1.1", "10.0.1.2")},
			[]string{"shop-slicefeed: update planned\n  - endpoint 10.0.1.2 ready\n", "10.0.1.2  ready, wanted not listed       table"},
			"",
		},
		{
			"writes blocked by the allowlist",
			planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, cidr: "10.9.0.0/24"},
			[]runtime.Object{newService(), mislabeled},
			[]string{"\n\nWRITES\nwrites blocked by a guard, see its problems\n", "(AddressNotAllowed"},
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
			[]string{"ForeignSlices", "theirs"},
			"",
		},
		{"a rejected Service", planFixture{feed: fakeFeed{ready: []string{}}}, nil, []string{"rejected"}, "The Service does not exist"},
		{"an inventory that sends nothing", planFixture{}, []runtime.Object{newService()}, nil, "source default did not sync"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.stand.cidr == "" {
				tt.stand.cidr = "10.0.1.0/24"
			}
			start := time.Now()
			all, err := planReport(t, tt.stand, tt.objects...)
			var text strings.Builder
			if all != nil {
				err = errors.Join(report.Write(&text, all), err)
			}
			out := text.String()
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

func TestPlansByState(t *testing.T) {
	paused := newService()
	paused.Annotations = map[string]string{"slicefeed.dev/paused": "true"}
	change := []*writerv1.WriteReport{
		{Verb: "update", Slice: "shop-slicefeed", Result: "planned", Changes: []string{"- endpoint 10.0.1.2 ready"}},
	}
	for _, tt := range []struct {
		name    string
		cidr    string
		service []runtime.Object
		state   writerv1.TargetState
		want    *writerv1.ServiceReport
	}{
		{"managed", "10.0.1.0/24", []runtime.Object{newService()}, writerv1.TargetState_TARGET_STATE_MANAGED, &writerv1.ServiceReport{Writes: change}},
		{"paused", "10.0.1.0/24", []runtime.Object{paused}, writerv1.TargetState_TARGET_STATE_PAUSED, &writerv1.ServiceReport{
			Writes: change, PlanNotes: []string{"paused by annotation slicefeed.dev/paused: nothing of this is written"},
		}},
		{"blocked", "10.9.0.0/24", []runtime.Object{newService()}, writerv1.TargetState_TARGET_STATE_MANAGED, &writerv1.ServiceReport{
			PlanNotes: []string{"writes blocked by a guard, see its problems"},
		}},
		{"rejected", "10.0.1.0/24", nil, writerv1.TargetState_TARGET_STATE_REJECTED, &writerv1.ServiceReport{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := planReport(t, planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, cidr: tt.cidr},
				append(tt.service, ownedSlice("10.0.1.1", "10.0.1.2"))...)
			r, _ := all.(*writerv1.WriterReport)
			if (err != nil) != (tt.name == "rejected") || len(r.GetServices()) != 1 {
				t.Fatalf("%v: %v", err, all)
			}
			got := r.GetServices()[0]
			if d := cmp.Diff(
				tt.want,
				&writerv1.ServiceReport{Writes: got.GetWrites(), PlanNotes: got.GetPlanNotes()},
				protocmp.Transform(),
			); d != "" ||
				got.GetState() != tt.state {
				t.Errorf("%s (-want +got):\n%s", got.GetState(), d)
			}
		})
	}
}

func TestPrintsWhatServeWouldWriteWheneverThatChanges(t *testing.T) {
	changesOf := func(objects ...runtime.Object) (p writerreport.Preview) {
		fixture := planFixture{feed: fakeFeed{ready: []string{"10.0.1.1"}}, cidr: "10.0.1.0/24"}
		withConfig(t, fixture, objects, func(ctx context.Context, config reconciler.Config) {
			dry := newDryRun(io.Discard)
			if _, err := dry.plan(ctx, config, newBuilder(config), time.Second); len(dry.previews) != 1 {
				t.Fatal(err)
			}
			p = slices.Collect(maps.Values(dry.previews))[0]
		})
		return p
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
	dry := newDryRun(&out)
	for _, p := range []writerreport.Preview{unsynced, rejected, update, update, unsynced, none, none, {Key: update.Key}, update} {
		dry.put(p)
	}
	const first = "\nSERVICE web/shop\nshop-slicefeed: update planned\n  - endpoint 10.0.1.2 ready\n"
	const second = "\nSERVICE web/shop\nnothing to write\n"
	if d := cmp.Diff(first+second+first, out.String()); d != "" {
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

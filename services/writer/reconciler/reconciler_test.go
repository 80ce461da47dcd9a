package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a Reconciler of one Service, whose queues only record what is added.
type fixture struct {
	*Reconciler

	decided, written *recordedQueue
	service          *oneService
	prober           *fakeProber
	lease            *fakeLease
	store            *fakeStore
}

var fixtureKey = targets.Key{Namespace: "web", Name: "shop"}

func newFixture(view targets.Resolution) *fixture {
	f := &fixture{
		decided: &recordedQueue{}, written: &recordedQueue{}, service: &oneService{view: view}, prober: &fakeProber{},
		lease: &fakeLease{since: time.Now()}, store: &fakeStore{slices: view.Slices},
	}
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	reporter := events.NewReporter(events.Config{Logger: log})
	hooks := report.NewHooks(registry, reporter, nil)
	f.Reconciler = New(Config{
		Sources:    []Source{{Name: "default", Feeds: silentFeeds{}, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}},
		Targets:    f.service,
		Prober:     f.prober,
		Lease:      f.lease,
		Reporter:   reporter,
		Endpoints:  endpoints.NewStore("epoch"),
		Logger:     log,
		Registerer: registry,
		Applier: func() *applier.Applier {
			return applier.New(applier.Config{Store: f.store, Leading: f.lease.Leading, Hooks: hooks, Logger: log})
		},
	}, f.decided, f.written)
	return f
}

// anyPort is a source that may use any port, as one may that is not configured then.
var anyPort = []sources.Source{{Name: "default", Ports: []sources.PortRange{{First: 1, Last: 65535}}}}

// managed is a Service that can be managed, without probes and without endpoints.
func managed() targets.Resolution {
	return targets.Resolution{
		Target: targets.Target{
			Key:   fixtureKey,
			State: targets.Managed, Configured: anyPort,
			Owner:     metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "uid"},
			ManagedBy: "slicefeed-default",
			Writer:    "web",
			FirstName: "shop-slicefeed",
			Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
			Settings: targets.Settings{
				Sources:     []string{"default"},
				Probe:       probe.Spec{Mode: probe.Off},
				ProbePort:   30080,
				ListUnready: true,
			},
		},
	}
}

// withSlice returns a managed Service with a slice that lists one endpoint, at another port than it should.
func withSlice() targets.Resolution {
	view := managed()
	name, port, protocol, yes, no := "http", int32(30080), corev1.ProtocolTCP, true, false
	view.Slices = []*discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-slicefeed", ResourceVersion: "1", UID: "u", Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "slicefeed-default", targets.LabelWriter: "web",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		}},
	}}
	return view
}

// recordedQueue is a queue that nobody works on.
type recordedQueue struct {
	added int
	after []time.Duration
	onAdd func()
}

func (q *recordedQueue) Add(targets.Key) {
	q.added++
	if q.onAdd != nil {
		q.onAdd()
	}
}

func (q *recordedQueue) AddAfter(_ targets.Key, wait time.Duration) { q.after = append(q.after, wait) }

// take returns what was added since the last call.
func (q *recordedQueue) take() (added int, after []time.Duration) {
	added, after = q.added, q.after
	q.added, q.after = 0, nil
	return added, after
}

type oneService struct {
	Targets

	view         targets.Resolution
	leadingSince time.Time // as it was resolved last
}

func (s *oneService) Get(_ targets.Key, leadingSince time.Time) targets.Resolution {
	s.leadingSince = leadingSince
	return s.view
}

// fakeProber has one status for all that is probed.
type fakeProber struct {
	Prober

	probed []netip.Addr
	status probe.Status
}

func (p *fakeProber) Set(_ string, requests []probe.Request) {
	p.probed = nil
	for _, request := range requests {
		p.probed = append(p.probed, request.Key.Address)
	}
}

func (p *fakeProber) Statuses(requests []probe.Request) []probe.Status {
	return statuses(p.status, requests)
}

// statuses returns the same status for each request.
func statuses(status probe.Status, requests []probe.Request) (all []probe.Status) {
	for _, r := range requests {
		status.Address, status.Port = r.Key.Address, r.Key.Port
		all = append(all, status)
	}
	return all
}

// fakeLease is held since then; zero: by another writer.
type fakeLease struct {
	since                time.Time
	released, handedOver int
}

func (l *fakeLease) LeadingSince() time.Time { return l.since }
func (l *fakeLease) Leading() bool           { return !l.since.IsZero() }
func (*fakeLease) Changed() <-chan struct{}  { return nil }
func (l *fakeLease) Release() func() {
	l.released++
	return func() { l.handedOver++ }
}

// fakeStore has slices and records updates.
type fakeStore struct {
	applier.Store

	slices  []*discoveryv1.EndpointSlice
	updated *discoveryv1.EndpointSlice
	deleted []string
	err     error  // of each update
	during  func() // called during each update
}

func (s *fakeStore) Get(context.Context, string, string) (*discoveryv1.EndpointSlice, error) {
	return s.slices[0], nil
}

func (s *fakeStore) List(context.Context, string, map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	return s.slices, "1", nil
}

func (s *fakeStore) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if s.during != nil {
		s.during()
	}
	if s.err != nil {
		return nil, s.err
	}
	s.updated = slice.DeepCopy()
	s.updated.ResourceVersion = "2"
	return s.updated, nil
}

func (s *fakeStore) Delete(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	s.deleted = append(s.deleted, slice.Name)
	return nil
}

// silentFeeds have never received anything.
type silentFeeds struct{ Feeds }

func (silentFeeds) Leave(string) {}
func (silentFeeds) Use(_, service string) subscriber.Snapshot {
	return subscriber.Snapshot{Source: "default", Service: service}
}
func (silentFeeds) Changed() <-chan struct{} { return nil }

func TestWritesOnlyWhileLeading(t *testing.T) {
	f := newFixture(withSlice())
	f.lease.since = time.Time{}
	now := time.Now()
	if f.Decide(fixtureKey, now); f.written.added != 0 {
		t.Error("a standby orders a write")
	}
	f.lease.since = now
	if f.Decide(fixtureKey, now); f.written.added != 1 {
		t.Error("a leader orders no write")
	}
	f.lease.since = now.Add(time.Minute)
	if f.Write(t.Context(), fixtureKey, now); f.store.updated != nil {
		t.Error("an order of an earlier term is carried out")
	}
	f.Decide(fixtureKey, now)
	if f.Write(t.Context(), fixtureKey, now); f.store.updated == nil {
		t.Error("an order of this term is not carried out")
	}
}

func TestDecisionDuringAWriteIsTakenAgainBeforeItIsWritten(t *testing.T) {
	f := newFixture(withSlice())
	now := time.Now()
	f.Decide(fixtureKey, now)
	writes := 0
	f.store.during = func() {
		writes++
		f.service.view.Labels = map[string]string{"a": fmt.Sprint("b", writes)}
		f.Decide(fixtureKey, now)
	}
	f.Write(t.Context(), fixtureKey, now)
	f.decided.take()
	f.Write(t.Context(), fixtureKey, now)
	if decisions, _ := f.decided.take(); writes != 1 || decisions != 1 {
		t.Errorf("%d writes and %d decisions, want one write, and another decision on what it left", writes, decisions)
	}
	f.Decide(fixtureKey, now)
	if f.Write(t.Context(), fixtureKey, now); writes != 2 {
		t.Errorf("%d writes, want another one after that decision", writes)
	}
}

func TestServiceThatIsNoLongerRelevantIsForgotten(t *testing.T) {
	f := newFixture(withSlice())
	now := time.Now()
	f.Decide(fixtureKey, now)
	f.service.view = targets.Resolution{Target: targets.Target{State: targets.Gone}}
	f.Decide(fixtureKey, now)
	if f.Write(t.Context(), fixtureKey, now); f.store.updated != nil || len(f.states) != 0 {
		t.Errorf("written is %v, %d targets are known; want neither", f.store.updated, len(f.states))
	}
}

// Found by a simulated world: a writer that decided nothing while another one led took what that one had written for
// edits of its own slices.
func TestTermThatEndedUnseenIsOver(t *testing.T) {
	f := newFixture(managed())
	first, later := time.Now(), time.Now().Add(time.Minute)
	for _, step := range []struct {
		name      string
		at, since time.Time
	}{
		{"first decision of a Service, whose leader is old", first, first.Add(-time.Hour)},
		{"same term", later, first.Add(-time.Hour)},
		{"another term, though nothing was decided in between", later, later},
		{"standby", later, time.Time{}},
	} {
		f.lease.since = step.since
		if f.Decide(
			fixtureKey,
			step.at,
		); !f.states[fixtureKey].leadingSince.Equal(step.since) ||
			!f.service.leadingSince.Equal(step.since) {
			t.Errorf("%s: leads since %s, want %s", step.name, f.states[fixtureKey].leadingSince, step.since)
		}
	}
}

func TestWriteIsQueuedBeforeTheDecisionIsPublished(t *testing.T) {
	f := newFixture(managed())
	published := func() int { all, _ := f.Endpoints.Views(nil); return len(all) }
	f.written.onAdd = func() {
		if published() != 0 {
			t.Error("the decision was published before its write was queued")
		}
	}
	if f.Decide(fixtureKey, time.Now()); f.written.added != 1 || published() != 1 {
		t.Errorf("%d writes were queued and %d targets published, want 1 each", f.written.added, published())
	}
}

func TestSlicesOfARejectedServiceAreNotRewritten(t *testing.T) {
	for _, rejected := range []bool{true, false} {
		view := withSlice()
		if rejected {
			view.State, view.Rejection = targets.ProbesOnly, &targets.Rejection{Reason: "ServiceHasSelector", Message: "Remove it."}
		}
		f := newFixture(view)
		f.Decide(fixtureKey, time.Now())
		f.Write(t.Context(), fixtureKey, time.Now())
		if f.written.added != 1 || (f.store.updated == nil) != rejected {
			t.Errorf("rejected: %t: %d orders, written is %v", rejected, f.written.added, f.store.updated)
		}
		if views, _ := f.Endpoints.Views(nil); len(views) != 1 || (views[0].State == endpoints.Rejected) != rejected {
			t.Errorf("rejected: %t: published is %+v", rejected, views)
		}
	}
}

// The cache shows the slices of the other class, which has deleted them since.
func TestHandOverWaitsForWhatTheAPIServerHas(t *testing.T) {
	view := withSlice()
	view.State, view.Successor = targets.Leaving, "blue"
	theirs := view.Slices[0].DeepCopy()
	theirs.Name, theirs.Labels[discoveryv1.LabelManagedBy] = "shop-of-blue", "slicefeed-blue"
	f := newFixture(view)
	for _, step := range []struct {
		existing []*discoveryv1.EndpointSlice
		want     []string
	}{
		{view.Slices, nil},
		{append(view.Slices, theirs), []string{"shop-slicefeed"}},
	} {
		f.store.slices = step.existing
		f.Decide(fixtureKey, time.Now())
		f.Write(t.Context(), fixtureKey, time.Now().Add(time.Minute))
		if !slices.Equal(f.store.deleted, step.want) {
			t.Errorf("with %d slices at the API server: deleted %v, want %v", len(step.existing), f.store.deleted, step.want)
		}
	}
}

// recordedEvents are the reasons of the Events that a Reporter has recorded, oldest first.
type recordedEvents struct {
	slog.Handler

	mu      sync.Mutex
	reasons []string
}

func (r *recordedEvents) Enabled(context.Context, slog.Level) bool { return true }

func (r *recordedEvents) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reasons = append(r.reasons, a.Value.String())
		}
		return true
	})
	return nil
}

func (r *recordedEvents) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reasons)
}

func TestServiceThatIsManagedAgainIsReportedOnTime(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(*targets.Resolution)
		want []string // reasons, newest first
	}{
		"managed":   {func(v *targets.Resolution) { v.State, v.Rejection = targets.Managed, nil }, []string{"ServiceManaged", "ServiceHasSelector"}},
		"opted out": {func(v *targets.Resolution) { v.State, v.Rejection = targets.Leaving, nil }, []string{"ServiceHasSelector"}},
		"rejected":  {func(*targets.Resolution) {}, []string{"ServiceHasSelector"}},
	} {
		t.Run(name, func(t *testing.T) {
			view := managed()
			view.State, view.Rejection = targets.ProbesOnly, &targets.Rejection{Reason: "ServiceHasSelector", Message: "Remove it."}
			f := newFixture(view)
			reported := &recordedEvents{Handler: slog.DiscardHandler}
			f.Reporter = events.NewReporter(events.Config{Logger: slog.New(reported)})
			now := time.Now()
			f.Decide(fixtureKey, now)
			tt.then(&f.service.view)
			f.decided.take()
			f.Decide(fixtureKey, now.Add(time.Minute))
			_, after := f.decided.take()
			if got := slices.Contains(after, 10*time.Second) || slices.Contains(after, 5*time.Second); got != (len(tt.want) > 1) {
				t.Errorf("decides again after %v", after)
			}
			f.Decide(fixtureKey, now.Add(time.Minute+10*time.Second))
			var got []string
			for _, reason := range slices.Backward(reported.take()) {
				if reason != "SourceNotSynced" && reason != "NoReadyEndpoints" { // the source of this fixture never is synced
					got = append(got, reason)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("reported %v, want %v", got, tt.want)
			}
		})
	}
}

func TestNothingIsWrittenForAServiceThatIsPaused(t *testing.T) {
	for _, paused := range []bool{false, true} {
		view := withSlice()
		view.Settings.Paused = paused
		f := newFixture(view)
		if f.Decide(fixtureKey, time.Now()); (f.written.added == 0) != paused {
			t.Errorf("paused: %t: %d writes", paused, f.written.added)
		}
	}
}

func TestPauseTakesTheOrderBack(t *testing.T) {
	f := newFixture(withSlice())
	f.Decide(fixtureKey, time.Now())
	f.service.view.Settings.Paused = true
	f.Decide(fixtureKey, time.Now())
	if f.Write(t.Context(), fixtureKey, time.Now()); f.store.updated != nil {
		t.Error("an order is carried out after the Service was paused")
	}
}

// Without the pause, the slice is repaired: the source, which has never synced, keeps its endpoint.
func TestWhatAPersonEditsDuringAPauseStays(t *testing.T) {
	for name, pause := range map[string]bool{"edited during a pause": true, "edited without one": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(withSlice())
			decide := func(slice *discoveryv1.EndpointSlice, paused bool) (written *discoveryv1.EndpointSlice) {
				f.store.slices, f.store.updated = []*discoveryv1.EndpointSlice{slice}, nil
				f.service.view.Slices, f.service.view.ResourceVersion, f.service.view.Settings.Paused = f.store.slices, slice.ResourceVersion, paused
				f.Decide(fixtureKey, time.Now())
				f.Write(t.Context(), fixtureKey, time.Now())
				return f.store.updated
			}
			written := decide(f.store.slices[0], false)
			edited := written.DeepCopy()
			edited.Endpoints, edited.ResourceVersion = nil, "3"
			decide(written, pause)
			if repaired := decide(edited, pause) != nil || decide(edited, false) != nil; repaired == pause {
				t.Errorf("it is repaired: %t", repaired)
			}
		})
	}
}

func TestRecreatedServiceStartsWithoutMemory(t *testing.T) {
	at := time.Now()
	before, _ := verdict.Decide(verdict.Memory{}, verdict.Input{Sources: []verdict.Source{
		{
			Name:               "default",
			EverSynced:         true,
			Connected:          true,
			MembershipSynced:   true,
			MembershipSyncedAt: at,
			Observation:        7,
			ObservationAt:      at,
		},
	}}, at)
	memoryAfter := func(uid types.UID, memory verdict.Memory) verdict.Memory {
		f := newFixture(managed())
		s := f.state(fixtureKey)
		s.uid, s.memory = uid, memory
		f.Decide(fixtureKey, at)
		return s.memory
	}
	if reflect.DeepEqual(memoryAfter("uid", before), memoryAfter("uid", verdict.Memory{})) {
		t.Error("the memory of a Service is lost though it is the same Service")
	}
	if !reflect.DeepEqual(memoryAfter("earlier", before), memoryAfter("earlier", verdict.Memory{})) {
		t.Error("the memory of an earlier Service counts for the new one")
	}
}

func TestLeaderThatCannotProbeStepsDown(t *testing.T) {
	for _, tt := range []struct {
		name     string
		status   probe.Status
		released int
	}{
		{"out of sockets", probe.Status{Expired: true, Detail: "too many open files"}, 1},
		{"pending", probe.Status{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			view := withSlice()
			view.Settings.Probe.Mode = probe.TCP
			view.Settings.Sources = nil
			f := newFixture(view)
			f.prober.status = probe.Status{Health: probe.Passing}
			now := time.Now()
			f.Decide(fixtureKey, now) // what is probed follows from the first decision
			f.Decide(fixtureKey, now)
			now = now.Add(time.Minute)
			f.Decide(fixtureKey, now)
			f.prober.status = tt.status
			f.decided.take()
			f.Decide(fixtureKey, now)
			if _, after := f.decided.take(); slices.Contains(after, nonePassingFor) != (tt.released > 0) {
				t.Errorf("decided again after %v", after)
			}
			f.Decide(fixtureKey, now.Add(nonePassingFor))
			if f.lease.released != tt.released || f.lease.handedOver != tt.released {
				t.Errorf(
					"the Lease was released %d times and handed over %d times, want %d; the decision: %+v",
					f.lease.released,
					f.lease.handedOver,
					tt.released,
					f.Decision(fixtureKey),
				)
			}
			if e := f.Decision(fixtureKey).Endpoints; len(e) != 1 || !e[0].Listed || !e[0].Conditions.Ready {
				t.Errorf("the endpoint does not stay as it was: %+v", e)
			}
		})
	}
}

// A dry run decides as a leader does, but orders no write, and does not publish that it leads.
func TestDryRunOrdersNoWrite(t *testing.T) {
	for _, dry := range []bool{false, true} {
		f := newFixture(withSlice())
		var previews []report.Preview
		if dry {
			f.DryRun = func(p report.Preview) { previews = append(previews, p) }
		}
		f.Decide(fixtureKey, time.Now())
		if all, status := f.Endpoints.Views(nil); len(all) != 1 || status.Leading == dry {
			t.Errorf("dry run: %t: %d targets, leading: %t", dry, len(all), status.Leading)
		}
		if ordered, _ := f.written.take(); (ordered == 0) != dry || (len(previews) == 1) != dry {
			t.Errorf("dry run: %t: %d orders, %d previews", dry, ordered, len(previews))
		}
		if dry && (!previews[0].Managed() || !previews[0].Decision.Write || len(previews[0].Desired.Endpoints) != 1) {
			t.Errorf("got %+v", previews[0])
		}
	}
}

// serviceFeeds reports one endpoint for each Service, and records what is used.
type serviceFeeds struct {
	used  map[string]string
	ports map[string]uint16 // of TCP, by Service
}

func newServiceFeeds() *serviceFeeds { return &serviceFeeds{used: map[string]string{}} }

func (f *serviceFeeds) Leave(target string) { delete(f.used, target) }

func (f *serviceFeeds) Use(target, service string) subscriber.Snapshot {
	f.used[target] = service
	address := map[string]string{"shop/web": "10.0.0.1", "shop/api": "10.0.0.2", "": "10.0.0.3"}[service]
	members := []*verdict.Member{{Name: "pod", Address: netip.MustParseAddr(address), State: verdict.Ready}}
	snapshot := subscriber.Snapshot{
		Source:         "blue",
		Service:        service,
		EverSynced:     true,
		SyncedInStream: true,
		Connected:      true,
		Members:        members,
		TrustedMembers: members,
		Membership: subscriber.PartStatus{
			State: subscriber.Synced,
		},
		MembershipSyncedAt: time.Now(),
		Observation:        1,
		ObservationEpoch:   "e of " + service,
	}
	if number, reports := f.ports[service]; reports {
		members[0].Serves = []contract.Port{{Name: "http", Protocol: "TCP", Number: number}}
	}
	return snapshot
}

func (f *serviceFeeds) TakeChanged() map[string]struct{} { return nil }
func (f *serviceFeeds) Changed() <-chan struct{}         { return nil }

func TestATargetUsesTheServiceThatItNames(t *testing.T) {
	view := managed()
	view.Settings.Sources, view.Settings.SourceService = []string{"blue"}, "shop/web"
	f := newFixture(view)
	feeds, others := newServiceFeeds(), newServiceFeeds()
	f.sources["blue"] = Source{Name: "blue", Feeds: feeds, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	f.sources["green"] = Source{Name: "green", Feeds: others}
	f.Decide(fixtureKey, time.Now())
	s := f.state(fixtureKey)
	uses := func(service, address string) {
		t.Helper()
		reported := slices.ContainsFunc(s.decision.Endpoints, func(e verdict.Endpoint) bool {
			return e.Address == netip.MustParseAddr(address) && e.Listed && e.Conditions.Ready
		})
		if got := feeds.used[fixtureKey.String()]; got != service || !reported || len(s.reports) != 1 || len(others.used) != 0 {
			t.Errorf(
				"uses %q with the inputs of %d Services, and decides %v; want %s at %s",
				got,
				len(s.reports),
				s.decision.Endpoints,
				service,
				address,
			)
		}
	}
	uses("shop/web", "10.0.0.1")
	f.service.view.Settings.SourceService = "shop/api"
	f.Decide(fixtureKey, time.Now())
	uses("shop/api", "10.0.0.2")
	f.service.view.State = targets.Leaving
	f.Decide(fixtureKey, time.Now())
	if len(feeds.used)+len(others.used) != 0 {
		t.Errorf("a Service that is opted out uses %q, and %q of a source that it does not name", feeds.used, others.used)
	}
}

// An endpoint that a guard keeps after the target has chosen another exported Service never had the ports of that one.
func TestKeptEndpointsHaveThePortsOfTheEarlierService(t *testing.T) {
	for name, restart := range map[string]bool{"while it runs": false, "before a restart": true} {
		t.Run(name, func(t *testing.T) {
			view := withSlice()
			view.Slices[0].Labels[targets.LabelSource] = "blue"
			view.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}
			settings := &view.Settings
			settings.Sources, settings.SourceService, settings.PortsFromSource, settings.ProbePort = []string{"blue"}, "shop/web", true, 0
			settings.Probe = probe.Spec{Mode: probe.TCP}
			f := newFixture(view)
			f.Limits.ShrinkWindow = time.Minute
			f.prober.status = probe.Status{Health: probe.Passing}
			feeds := &serviceFeeds{used: map[string]string{}, ports: map[string]uint16{"shop/web": 30080, "shop/api": 30090}}
			f.sources["blue"] = Source{Name: "blue", Feeds: feeds, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
			if !restart {
				f.Decide(fixtureKey, time.Now())
			}
			f.service.view.Settings.SourceService = "shop/api"
			f.Decide(fixtureKey, time.Now()) // the new endpoint is probed
			f.Decide(fixtureKey, time.Now())

			s := f.state(fixtureKey)
			got := map[string]int32{}
			plan := planner.Compute(s.pending.order.Desired, s.pending.order.Current)
			for _, slice := range slices.Concat(plan.Create, plan.Update) {
				for _, e := range slice.Endpoints {
					got[e.Addresses[0]] = *slice.Ports[0].Port
				}
			}
			if len(plan.Update) == 0 && len(plan.Delete) == 0 { // the other slice stays as it is
				got["10.0.0.1"] = *view.Slices[0].Ports[0].Port
			}
			if got["10.0.0.1"] != 30080 || got["10.0.0.2"] != 30090 {
				t.Errorf("ports %v by address, want that of each one's own Service", got)
			}
			for _, request := range s.probed {
				if want := map[string]uint16{"10.0.0.1": 30080, "10.0.0.2": 30090}[request.Key.Address.String()]; request.Key.Port != want {
					t.Errorf("%s is probed at %d, want %d", request.Key.Address, request.Key.Port, want)
				}
			}
			published, _ := f.Endpoints.Views(nil)
			if published[0].Held == 0 || len(s.probed) != 2 {
				t.Errorf("%d endpoints are held and %d probed; want one that shrink holds, and two", published[0].Held, len(s.probed))
			}
		})
	}
}

// A rejected Service has no ports of its own, from which those of a source could follow.
func TestRejectedServiceIsProbedAtTheListedPorts(t *testing.T) {
	view := withSlice()
	view.Slices[0].Labels[targets.LabelSource] = "blue"
	view.State, view.Rejection = targets.ProbesOnly, &targets.Rejection{Reason: "HasSelector"}
	settings := &view.Settings
	settings.Sources, settings.SourceService, settings.PortsFromSource, settings.ProbePort = []string{"blue"}, "shop/web", true, 0
	settings.Probe = probe.Spec{Mode: probe.TCP}
	f := newFixture(view)
	feeds := &serviceFeeds{used: map[string]string{}, ports: map[string]uint16{"shop/web": 30090}}
	f.sources["blue"] = Source{Name: "blue", Feeds: feeds, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	f.Decide(fixtureKey, time.Now())
	probed := f.state(fixtureKey).probed
	if len(probed) != 1 || probed[0].Key.Port != 30080 {
		t.Errorf("probed: %v, want 10.0.0.1 at port 30080", probed)
	}
	f.service.view.Configured = []sources.Source{{Name: "blue", Ports: []sources.PortRange{{First: 30000, Last: 30000}}}}
	f.Decide(fixtureKey, time.Now())
	if probed := f.state(fixtureKey).probed; len(probed) != 0 {
		t.Errorf("probed: %v, at a port that the source may not use", probed)
	}
	f.service.view.Settings.ProbePort = 30000
	f.Decide(fixtureKey, time.Now())
	if probed := f.state(fixtureKey).probed; len(probed) != 1 || probed[0].Key.Port != 30000 {
		t.Errorf("probed: %v, at a port that the source may not use", probed)
	}
}

func TestARejectedTargetShowsNoSource(t *testing.T) {
	view := managed()
	view.Settings.Sources, view.Settings.SourceService = []string{"blue"}, "shop/web"
	f := newFixture(view)
	f.sources["blue"] = Source{Name: "blue", Feeds: newServiceFeeds()}
	sources := func() (names []string) {
		_, status := f.Endpoints.Views(nil)
		for _, s := range status.Sources {
			names = append(names, s.Name)
		}
		return names
	}
	f.Decide(fixtureKey, time.Now())
	if got := sources(); !slices.Equal(got, []string{"blue/shop/web"}) {
		t.Fatalf("managed: sources %v", got)
	}
	f.service.view.State, f.service.view.Rejection = targets.Rejected, &targets.Rejection{Reason: "UnknownSource"}
	f.Decide(fixtureKey, time.Now())
	if got := sources(); len(got) != 0 {
		t.Errorf("rejected: sources %v", got)
	}
}

// snapshotFeeds reports the same always.
type snapshotFeeds struct {
	silentFeeds

	snapshot subscriber.Snapshot
}

func (f snapshotFeeds) Use(string, string) subscriber.Snapshot { return f.snapshot }

func TestASourceThatWithholdsAServiceDoesNotExpire(t *testing.T) {
	for name, tt := range map[string]struct {
		state     subscriber.SyncState
		connected bool
		kept      bool
	}{
		"it is not exported":                  {subscriber.Withheld, true, true},
		"the inventory knows nothing current": {subscriber.Unsynced, true, false},
		"the inventory is gone":               {subscriber.Withheld, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			view := withSlice()
			view.Slices[0].Labels[targets.LabelSource] = "blue"
			view.Settings.Sources, view.Settings.ExpireAfter = []string{"blue", "green"}, time.Hour
			f := newFixture(view)
			start := time.Now()
			for _, snapshot := range []subscriber.Snapshot{
				{
					Source: "blue", EverSynced: true, SyncedInStream: true, Connected: tt.connected,
					Membership: subscriber.PartStatus{State: tt.state}, MembershipSyncedAt: start,
				},
				{
					Source: "green", EverSynced: true, SyncedInStream: true, Connected: true,
					Membership: subscriber.PartStatus{State: subscriber.Synced}, MembershipSyncedAt: start.Add(2 * time.Hour),
					Members: []*verdict.Member{{Name: "g", State: verdict.Ready, Address: netip.MustParseAddr("10.0.0.2")}},
				},
			} {
				snapshot.TrustedMembers = snapshot.Members
				f.sources[snapshot.Source] = Source{
					Name:  snapshot.Source,
					Feeds: snapshotFeeds{snapshot: snapshot},
					CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
				}
			}
			f.Decide(fixtureKey, start)
			f.Decide(fixtureKey, start.Add(2*time.Hour))
			if got := f.state(fixtureKey).decision.Endpoints[0]; got.Listed != tt.kept {
				t.Errorf("it is %+v, want it kept: %v", got, tt.kept)
			}
		})
	}
}

func TestDecidesOnWhatWasRestored(t *testing.T) {
	view := withSlice()
	view.ResourceVersion = "1000"
	f := newFixture(view)
	now := time.Now()
	f.Decide(fixtureKey, now)
	f.Write(t.Context(), fixtureKey, now)
	f.Decide(fixtureKey, now)

	restored := withSlice()
	restored.ResourceVersion, restored.Slices[0].ResourceVersion = "999", "998"
	restored.Slices[0].Endpoints[0].Addresses[0] = "10.0.0.9"
	f.service.view = restored
	f.Decide(fixtureKey, now)
	if decided := f.Decision(fixtureKey).Endpoints; len(decided) != 1 || decided[0].Address.String() != "10.0.0.9" {
		t.Errorf("decided about %v, want 10.0.0.9, which the restored slice lists", decided)
	}
}

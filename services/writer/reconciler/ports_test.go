package reconciler

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// portedService is a Service whose ports follow its sources, and what reports, passes and is written of it.
type portedService struct {
	*fixture

	t       *testing.T
	now     time.Time
	reports map[string]*reportedNodes // by source
	prober  *portProber
	writes  int
}

// reportedNodes are what one source reports.
type reportedNodes struct {
	Feeds

	snapshot subscriber.Snapshot
}

func (*reportedNodes) Leave(string)                             {}
func (r *reportedNodes) Use(string, string) subscriber.Snapshot { return r.snapshot }

// portProber has one status for each port.
type portProber struct {
	Prober

	failing []uint16
	probed  map[string]bool // since the start
}

func (p *portProber) Set(_ string, requests []probe.Request) {
	for _, r := range requests {
		p.probed[fmt.Sprintf("%s:%d", r.Key.Address, r.Key.Port)] = true
	}
}

func (p *portProber) Statuses(requests []probe.Request) []probe.Status {
	all := make([]probe.Status, len(requests))
	for i, r := range requests {
		at := time.Unix(0, 0)
		all[i] = probe.Status{
			Address: r.Key.Address, Port: r.Key.Port, Health: probe.Passing, RunStart: at, RunLast: at.Add(time.Hour),
		}
		if slices.Contains(p.failing, r.Key.Port) {
			all[i].Health = probe.Failing
		}
	}
	return all
}

// newPortedService returns a Service with these ports, whose targetPorts are 22. Its sources may use ports from 30000.
func newPortedService(t *testing.T, ports ...string) *portedService {
	view := managed()
	view.Settings = targets.Settings{PortsFromSource: true, ListUnready: true, Probe: probe.Spec{Mode: probe.TCP}}
	for _, name := range ports {
		view.Ports = append(
			view.Ports,
			discoveryv1.EndpointPort{Name: &name, Protocol: new(corev1.ProtocolTCP), Port: new(int32(22))},
		)
	}
	view.Configured = []sources.Source{{Name: "blue", Ports: []sources.PortRange{{First: 30000, Last: 65535}}}}
	w := &portedService{
		t:       t,
		now:     time.Now(),
		fixture: newFixture(view),
		reports: map[string]*reportedNodes{},
		prober:  &portProber{probed: map[string]bool{}},
	}
	w.Prober = w.prober
	for _, name := range []string{"blue", "green"} {
		w.reports[name] = &reportedNodes{snapshot: subscriber.Snapshot{
			Source:           name,
			EverSynced:       true,
			SyncedInStream:   true,
			Connected:        true,
			Membership:       subscriber.PartStatus{State: subscriber.Synced},
			Observation:      1,
			ObservationEpoch: "e",
		}}
		w.sources[name] = Source{Name: name, Feeds: w.reports[name], CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	}
	w.Limits.ShrinkWindow = time.Minute
	w.lease.since = w.now.Add(-time.Hour)
	return w
}

// report has a source report nodes such as "1 http:30080 admin:30081", each complete observation a newer one.
func (w *portedService) report(source string, nodes ...string) {
	w.service.view.Settings.Sources = slices.Sorted(maps.Keys(map[string]bool{source: true, w.anySource(source): true}))
	s := &w.reports[source].snapshot
	s.Observation, s.Members = s.Observation+1, nil
	for _, text := range nodes {
		fields := strings.Fields(text)
		m := &verdict.Member{Name: fields[0], State: verdict.Ready, Address: netip.MustParseAddr("10.0.0." + fields[0])}
		for _, port := range fields[1:] {
			if port == "DRAINING" {
				m.State = verdict.Draining
				continue
			}
			name, number, _ := strings.Cut(port, ":")
			var n uint16
			_, _ = fmt.Sscan(number, &n)
			m.Serves = append(m.Serves, contract.Port{Name: name, Protocol: "TCP", Number: n})
		}
		s.Members = append(s.Members, m)
	}
	s.TrustedMembers = s.Members
}

// anySource returns another source that reports something, or this one.
func (w *portedService) anySource(source string) string {
	for name, r := range w.reports {
		if r.snapshot.Observation > 1 {
			return name
		}
	}
	return source
}

// settle decides and writes until nothing changes, and returns what the slices list, as "1 http:30080 ready".
func (w *portedService) settle() map[string]string {
	w.t.Helper()
	for range 10 {
		for _, r := range w.reports {
			r.snapshot.MembershipSyncedAt = w.now
		}
		w.Decide(fixtureKey, w.now) // what is probed follows from a decision
		w.Decide(fixtureKey, w.now)
		s := w.state(fixtureKey)
		if s.pending.order == nil {
			break
		}
		desired := s.pending.order.Desired
		plan := planner.Compute(desired, w.service.view.Slices)
		if s.pending.order.Adjust {
			plan = planner.AdjustExisting(desired, w.service.view.Slices)
		}
		if w.writes += plan.Writes(); plan.Empty() {
			break
		}
		w.carryOut(plan)
	}
	listed := map[string]string{}
	for _, slice := range w.service.view.Slices {
		for _, e := range slice.Endpoints {
			text := ""
			for _, p := range slice.Ports {
				text += fmt.Sprintf("%s:%d ", *p.Name, *p.Port)
			}
			listed[strings.TrimPrefix(e.Addresses[0], "10.0.0.")] += text + map[bool]string{true: "ready", false: "not ready"}[*e.Conditions.Ready]
		}
	}
	return listed
}

func (w *portedService) carryOut(plan planner.Plan) {
	next := slices.DeleteFunc(slices.Clone(w.service.view.Slices), func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(
			slices.Concat(plan.Update, plan.Delete),
			func(o *discoveryv1.EndpointSlice) bool { return o.Name == s.Name },
		)
	})
	for i, s := range plan.Create {
		s.Name += fmt.Sprint(w.writes, "-", i)
	}
	for _, s := range slices.Concat(plan.Create, plan.Update) {
		s.ResourceVersion = fmt.Sprint(w.writes)
		next = append(next, s)
	}
	w.service.view.Slices = next
}

func (w *portedService) want(what string, want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.settle()); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Kubernetes makes a slice for each set of ports: two applications behind one Service have endpoints of their own.
func TestTwoApplicationsBehindOneServiceKeepTheirPorts(t *testing.T) {
	w := newPortedService(t, "app1", "app2")
	w.report("blue", "71 app1:30100", "72 app1:30100", "73 app2:30101", "74 app2:30101")
	w.want("two applications", map[string]string{
		"71": "app1:30100 ready", "72": "app1:30100 ready", "73": "app2:30101 ready", "74": "app2:30101 ready",
	})
	if w.prober.probed["10.0.0.71:30101"] || !w.prober.probed["10.0.0.73:30101"] {
		t.Errorf("probed: %v", w.prober.probed)
	}
}

// One report of other ports must not take what works, however often it is repeated.
func TestANewPortIsANewEndpoint(t *testing.T) {
	w := newPortedService(t, "http")
	w.prober.failing = []uint16{31999}
	w.report("blue", "1 http:30080", "2 http:30080")
	at30080 := map[string]string{"1": "http:30080 ready", "2": "http:30080 ready"}
	w.want("first", at30080)
	w.report("blue", "1 http:31999", "2 http:31999")
	w.want("ports that do not pass", at30080)
	w.reports["blue"].snapshot.Membership.State = subscriber.Degraded
	w.prober.failing = nil
	w.want("ports of a source that is not trusted", at30080)
	w.reports["blue"].snapshot.Membership.State = subscriber.Synced
	w.want("ports that pass, the first half", map[string]string{"1": "http:31999 ready", "2": "http:30080 ready"})
	w.now = w.now.Add(time.Minute)
	w.report("blue", "1 http:31999", "2 http:31999")
	w.want("the other half, a window later", map[string]string{"1": "http:31999 ready", "2": "http:31999 ready"})
}

func TestFlippingPortsCostsNoMoreThanAFlippingState(t *testing.T) {
	writes := func(flipping int, flips [2]string) int {
		w := newPortedService(t, "http")
		flip := func(to string) {
			var nodes []string
			for n := 1; n <= 20; n++ {
				if n > flipping {
					to = flips[0]
				}
				nodes = append(nodes, fmt.Sprint(n, " ", to))
			}
			w.report("blue", nodes...)
			w.settle()
		}
		flip(flips[0])
		w.writes = 0
		for i := range 100 {
			w.now = w.now.Add(100 * time.Millisecond)
			flip(flips[(i+1)%2])
		}
		return w.writes
	}
	for _, flipping := range []int{1, 7, 15} {
		ports := writes(flipping, [2]string{"http:30080", "http:30081"})
		state := writes(flipping, [2]string{"http:30080", "http:30080 DRAINING"})
		if t.Logf("%d of 20 nodes: %d writes by ports, %d by state", flipping, ports, state); ports > state || state == 0 {
			t.Errorf("%d of 20 nodes: %d writes by ports in 10 s, %d by state", flipping, ports, state)
		}
	}
}

// A port that is missing or denied is no reason to probe another one, past the allowlist.
func TestNothingIsProbedOrWrittenAtAPortThatIsNotAllowed(t *testing.T) {
	w := newPortedService(t, "http")
	w.report("blue", "1", "2 http:22", "3 web:22 admin:22", "4 http:30080")
	w.want("only one can be used", map[string]string{"4": "http:30080 ready"})
	if diff := cmp.Diff(map[string]bool{"10.0.0.4:30080": true}, w.prober.probed); diff != "" {
		t.Error(diff)
	}
	w.report("blue", "1", "4 http:22")
	w.want("a listed one keeps its port", map[string]string{"4": "http:30080 ready"})
	if diff := cmp.Diff(map[string]bool{"10.0.0.4:30080": true}, w.prober.probed); diff != "" {
		t.Error(diff)
	}
}

// After a restart while no ports can be used, each endpoint keeps those of its slice: also beside one that a guard keeps.
func TestEndpointsKeepTheirPortsOverARestart(t *testing.T) {
	w := newPortedService(t, "http")
	w.report("blue", "1 http:30080", "2 http:30090", "3 http:30090")
	before := map[string]string{"1": "http:30080 ready", "2": "http:30090 ready", "3": "http:30090 ready"}
	w.want("first", before)
	w.forget(fixtureKey)
	w.lease.since = w.now
	w.report("blue", "2", "3")
	w.want("after a restart", before) // a new leader lets nothing go in its first minute
}

// A rejected Service: each endpoint is probed at the port of its own slice.
func TestEndpointsOfARejectedServiceAreProbedAtTheirOwnPort(t *testing.T) {
	w := newPortedService(t, "http")
	w.report("blue", "1 http:30080")
	w.report("green", "2 http:30090")
	listed := map[string]string{"1": "http:30080 ready", "2": "http:30090 ready"}
	w.want("managed", listed)
	view := &w.service.view
	view.State, view.Rejection = targets.ProbesOnly, &targets.Rejection{Reason: "HasSelector"}
	view.Ports, view.Settings.PortsFromSource = nil, false
	w.prober.failing = []uint16{30080}
	clear(w.prober.probed)
	w.forget(fixtureKey)
	w.want("rejected", map[string]string{"1": "http:30080 not ready", "2": "http:30090 ready"})
	if diff := cmp.Diff(map[string]bool{"10.0.0.1:30080": true, "10.0.0.2:30090": true}, w.prober.probed); diff != "" {
		t.Error(diff)
	}
}

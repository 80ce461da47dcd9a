package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is when the time of each test starts, and where it stays.
var now = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

type fakeCloud struct {
	budget  ionos.Budget
	expires time.Time
	err     error
}

func (c *fakeCloud) Budget() ionos.Budget { return c.budget }

func (c *fakeCloud) TokenExpiry() (time.Time, bool, error) {
	return c.expires, !c.expires.IsZero(), c.err
}

// fakeSet is a set with this state.
type fakeSet struct{ state *collector.Snapshot }

func (s fakeSet) Snapshot(f roster.Filter) collector.Snapshot {
	out := *s.state
	out.Members = slices.SortedFunc(slices.Values(out.Members), func(a, b roster.Member) int { return cmp.Compare(a.Name, b.Name) })
	out.Members = slices.DeleteFunc(out.Members, func(m roster.Member) bool {
		hasAddress := slices.ContainsFunc(m.Candidates, func(c roster.CandidateAddress) bool { return c.Address == f.Address })
		return f.Name != "" && f.Name != m.Name || f.Address.IsValid() && !hasAddress
	})
	return out
}

func (s fakeSet) Summary() collector.Snapshot {
	out := *s.state
	out.Members = nil
	return out
}

// fixture has the inputs of a report of one set.
type fixture struct {
	state       collector.Snapshot
	cloud       *fakeCloud
	subscribers []feed.Subscriber
}

func (f *fixture) add(name string, state roster.NodeState, omission roster.OmissionReason, address string) *roster.Member {
	m := roster.Member{Node: &roster.Node{
		Name: name, UID: "uid-" + name, State: state, Zone: "de-1", StateReason: "its kubelet is not ready",
		Omission: roster.Omission{Reason: omission},
	}}
	switch {
	case omission.IsIntended():
		m.Excluded = omission
		f.state.Counts.Omitted[omission]++
	case address == "":
		f.state.Counts.Omitted[omission]++
	default:
		m.Addresses, m.Since, m.ServerID = []netip.Addr{netip.MustParseAddr(address)}, now.Add(-3*time.Hour), "server-of-"+name
		m.Candidates = []roster.CandidateAddress{
			{Address: m.Addresses[0], From: "the Node", Reason: "the only usable address of its family"},
		}
		f.state.Counts.States[state]++
	}
	f.state.Members = append(f.state.Members, m)
	return &f.state.Members[len(f.state.Members)-1]
}

// newFixture returns a healthy one, with a node of each kind that is no problem.
func newFixture() *fixture {
	synced := roster.PartStatus{Sync: roster.Synced, Since: now.Add(-time.Hour)}
	f := &fixture{
		state: collector.Snapshot{
			Status: roster.Status{
				Membership: synced, Addresses: synced, Observation: 7, ObservedAt: now.Add(-20 * time.Second), Publishable: true,
			},
			Counts:  roster.Counts{States: map[roster.NodeState]int{}, Omitted: map[roster.OmissionReason]int{}},
			Listing: collector.Listing{StartedAt: now.Add(-30 * time.Second), Servers: 4},
		},
		cloud:       &fakeCloud{budget: ionos.Budget{PerMinute: 120, Free: 58}, expires: now.Add(90*24*time.Hour + time.Hour)},
		subscribers: []feed.Subscriber{{Name: "spiffe://example.org/writer", Since: now.Add(-time.Hour), LastSentAt: now}},
	}
	f.add("master", roster.Ready, roster.ControlPlane, "")
	f.add("worker-1", roster.Ready, 0, "10.0.1.11")
	f.add("worker-2", roster.Draining, 0, "10.0.1.12")
	return f
}

func (f *fixture) builder() *Builder {
	return &Builder{
		Version: "v1.2.3", Instance: "inventory-1", Kind: "kubernetes", Cloud: f.cloud, Set: fakeSet{&f.state},
		Subscribers: func() []feed.Subscriber { return f.subscribers },
	}
}

func (f *fixture) get(t *testing.T, filter string) *inventoryv1.InventoryReport {
	t.Helper()
	r, err := getReport(t, f.builder(), &reportv1.GetReportRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// getReport requests a report at the time now.
func getReport(t *testing.T, b *Builder, request *reportv1.GetReportRequest) (r *inventoryv1.InventoryReport, err error) {
	synctest.Test(t, func(t *testing.T) { r, err = b.GetReport(t.Context(), request) })
	return r, err
}

// describe returns the problems as "LEVEL Reason object: message".
func describe(all []*reportv1.Problem) (lines []string) {
	for _, p := range all {
		level := strings.TrimPrefix(p.GetLevel().String(), "LEVEL_")
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", level, p.GetReason(), p.GetObject(), p.GetMessage()))
	}
	return lines
}

func TestNamesEveryProblem(t *testing.T) {
	degraded := roster.PartStatus{Sync: roster.Degraded, Since: now, Reason: "no contact"}
	unsynced := roster.PartStatus{Sync: roster.Unsynced, Since: now, Reason: "nodes is forbidden"}
	for name, c := range map[string]struct {
		alter func(*fixture)
		want  []string
	}{
		"none":                   {func(*fixture) {}, nil},
		"membership is degraded": {func(f *fixture) { f.state.Status.Membership = degraded }, []string{"WARNING MembershipNotSynced membership: degraded: no contact"}},
		"addresses are unsynced": {func(f *fixture) { f.state.Status.Addresses = unsynced }, []string{"ERROR AddressesNotSynced addresses: unsynced: nodes is forbidden"}},
		"nothing observed yet": {
			func(f *fixture) {
				f.state = collector.Snapshot{Status: roster.Status{Membership: unsynced, Addresses: unsynced}}
			},
			[]string{
				"CANNOT_SERVE NotObserved : no complete observation yet: nodes is forbidden",
				"ERROR MembershipNotSynced membership: unsynced: nodes is forbidden", "ERROR AddressesNotSynced addresses: unsynced: nodes is forbidden",
			},
		},
		"observed and not published": {func(f *fixture) { f.state.Status.Publishable = false }, []string{
			"WARNING NotPublished : clients keep their sets: too few nodes have an address to publish this one",
		}},
		"no node is ready": {func(f *fixture) { f.state.Counts.States[roster.Ready] = 0 }, []string{"ERROR NoNodeReady : none of 1 published node is ready"}},
		"an omitted node":  {func(f *fixture) { f.add("x", roster.Ready, roster.AmbiguousServer, "").Omission.Message = "why" }, []string{"ERROR AmbiguousServer node x: why"}},
		"a new node":       {func(f *fixture) { f.add("x", roster.Ready, roster.NotResolvedYet, "").Omission.Message = "why" }, []string{"WARNING NotResolvedYet node x: why"}},
		"a node that keeps an address of earlier data": {
			func(f *fixture) {
				f.add("x", roster.Ready, roster.NotFoundInIONOS, "10.0.1.13").Omission.Message = "gone"
			},
			[]string{"WARNING NotFoundInIONOS node x: gone"},
		},
		"a node that is not ready": {func(f *fixture) { f.add("x", roster.NotReady, 0, "10.0.1.13") }, []string{"WARNING NodeNotReady node x: its kubelet is not ready"}},
		"the worst first": {
			func(f *fixture) {
				f.add("a", roster.NotReady, 0, "10.0.1.13")
				f.add("b", roster.Ready, roster.OutsideSubnet, "").Omission.Message = "why"
			},
			[]string{"ERROR OutsideSubnet node b: why", "WARNING NodeNotReady node a: its kubelet is not ready"},
		},
		"no subscriber":      {func(f *fixture) { f.subscribers = nil }, nil}, // a writer subscribes to one replica
		"a subscriber lags":  {func(f *fixture) { f.subscribers[0].Lag = 12 }, nil},
		"a silent one":       {func(f *fixture) { f.subscribers[0].LastSentAt = now.Add(-time.Minute) }, []string{"WARNING SubscriberSlow client spiffe://example.org/writer: it has read nothing for 1m0s"}},
		"one that never did": {func(f *fixture) { f.subscribers[0].LastSentAt = time.Time{} }, []string{"WARNING SubscriberSlow client spiffe://example.org/writer: it has read nothing for 1h0m0s"}},
		"a failed listing":   {func(f *fixture) { f.state.Listing.Err = errors.New("503") }, nil}, // the addresses degrade
		"no request is left": {func(f *fixture) { f.cloud.budget.Free = 0 }, []string{"WARNING RequestBudgetUsedUp : 120 requests per minute are used up: the next waits"}},
		"a token for weeks":  {func(f *fixture) { f.cloud.expires = now.Add(20*24*time.Hour + time.Hour) }, []string{"WARNING TokenExpires : the IONOS token expires in 20d"}},
		"a token for days":   {func(f *fixture) { f.cloud.expires = now.Add(50 * time.Hour) }, []string{"ERROR TokenExpires : the IONOS token expires in 2d2h"}},
		"an expired token":   {func(f *fixture) { f.cloud.expires = now.Add(-time.Hour) }, []string{"ERROR TokenExpired : the IONOS token expired 60m ago"}},
		"no token":           {func(f *fixture) { f.cloud.err = errors.New("no such file") }, []string{"ERROR TokenUnreadable : the IONOS token cannot be read: no such file"}},
		"no expiry":          {func(f *fixture) { f.cloud.expires = time.Time{} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			c.alter(f)
			got := f.get(t, "").GetProblems()
			if !slices.Equal(describe(got), c.want) {
				t.Errorf("got %q, want %q", describe(got), c.want)
			}
			for _, p := range got {
				if p.GetAdvice() == "" {
					t.Errorf("%s has no advice", p.GetReason())
				}
			}
			if healthy := report.IsHealthy(got); healthy != (len(c.want) == 0) {
				t.Errorf("healthy: %t", healthy)
			}
			cannotServe := len(c.want) > 0 && strings.HasPrefix(c.want[0], "CANNOT_SERVE")
			if err := f.builder().CheckServing(); (err != nil) != cannotServe {
				t.Errorf("readiness: %v", err)
			}
		})
	}
}

func TestEveryOmissionHasAdvice(t *testing.T) {
	for r := roster.ControlPlane; r <= roster.InvalidRecord; r++ {
		if report.NewProblem(report.Warning, r.String(), "", "").GetAdvice() == "" {
			t.Errorf("%s has no advice", r)
		}
	}
}

func TestFilterSelectsNodesInFull(t *testing.T) {
	f := newFixture()
	b := f.add("worker-3", roster.Ready, 0, "10.0.1.13")
	b.Candidates = append(b.Candidates, roster.CandidateAddress{
		Address: netip.MustParseAddr("192.0.2.1"), From: "the Node", Reason: "outside of SECURED_SUBNET_CIDR 10.0.1.0/24",
	})
	b.Previous, b.ChangedAt = &roster.Node{
		State:     roster.NotReady,
		Addresses: b.Addresses,
		Zone:      "de-1",
		ServerID:  b.ServerID,
	}, now.Add(
		-time.Minute,
	)
	f.subscribers[0].LastSentAt = now.Add(-time.Minute) // no problem of a node
	for filter, want := range map[string]struct {
		nodes    []string
		problems []string
	}{
		"worker-1":                {[]string{"worker-1"}, nil},
		"10.0.1.12":               {[]string{"worker-2"}, nil},
		"::ffff:192.0.2.1":        {[]string{"worker-3"}, nil},
		"shop/web/10.0.1.11":      {[]string{"worker-1"}, nil},
		"shop/web":                {[]string{"master", "worker-1", "worker-2", "worker-3"}, []string{"WARNING SubscriberSlow client spiffe://example.org/writer: it has read nothing for 1m0s"}},
		"worker-9":                {nil, []string{"WARNING NodeUnknown node worker-9: it is not in the source"}},
		"10.0.1.99":               {nil, []string{"WARNING NodeUnknown address 10.0.1.99: no node has it"}},
		strings.Repeat("x", 1000): {},
		"\xff":                    {},
	} {
		r, err := getReport(t, f.builder(), &reportv1.GetReportRequest{Filter: filter})
		if want.nodes == nil && want.problems == nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%.20q: %v", filter, err)
			}
			continue
		}
		var names []string
		for _, n := range r.GetNodes() {
			names = append(names, n.GetName())
		}
		if err != nil || !slices.Equal(names, want.nodes) || !slices.Equal(describe(r.GetProblems()), want.problems) {
			t.Errorf("%q: %v, %q, %q", filter, err, names, describe(r.GetProblems()))
		}
		if r.GetTotals().GetReady() != 2 {
			t.Errorf("%q: totals %v, want those of all nodes", filter, r.GetTotals())
		}
	}

	n := f.get(t, "worker-3").GetNodes()[0]
	if n.GetUid() != "uid-worker-3" || n.GetLastChange() != "not_ready at 10.0.1.13 → ready at 10.0.1.13" ||
		n.GetLastChangeAge().AsDuration() != time.Minute ||
		n.GetAge().AsDuration() != 3*time.Hour ||
		n.GetStateReason() == "" ||
		n.GetServerId() != "server-of-worker-3" {
		t.Errorf("%v", n)
	}
	var candidates []string
	for _, c := range n.GetCandidates() {
		candidates = append(candidates, fmt.Sprintf("%s %s %t: %s", c.GetAddress(), c.GetFrom(), c.GetChosen(), c.GetReason()))
	}
	want := []string{
		"10.0.1.13 the Node true: the only usable address of its family",
		"192.0.2.1 the Node false: outside of SECURED_SUBNET_CIDR 10.0.1.0/24",
	}
	if !slices.Equal(candidates, want) {
		t.Errorf("candidates %q", candidates)
	}
	if n := f.get(t, "master").GetNodes()[0]; n.GetExcluded() != "ControlPlane" || n.GetProblem().GetLevel() != report.Note ||
		n.GetProblem().GetAdvice() == "" {
		t.Errorf("%v", n)
	}
	if n := f.get(t, "").GetNodes()[3]; n.GetUid() != "" || n.GetCandidates() != nil {
		t.Errorf("a line has details: %v", n)
	}
}

func TestUnknownNodeMayNotBeReadYet(t *testing.T) {
	f := newFixture()
	f.state = collector.Snapshot{Status: roster.Status{Membership: roster.PartStatus{Sync: roster.Unsynced, Reason: "forbidden"}}}
	want := "WARNING NodeUnknown node worker-1: the source has not been read completely yet: forbidden"
	if got := describe(f.get(t, "worker-1").GetProblems()); !slices.Contains(got, want) {
		t.Errorf("got %q", got)
	}
}

// fakeExports are exported Services.
type fakeExports struct {
	sets        map[string]*fixture
	unreachable error
}

func (e *fakeExports) CheckReachable() error { return e.unreachable }
func (e *fakeExports) InUse() []string       { return slices.Sorted(maps.Keys(e.sets)) }

func (e *fakeExports) Find(service string) (Set, bool) {
	f, found := e.sets[service]
	if !found {
		return nil, false
	}
	return fakeSet{&f.state}, true
}

func TestShowsExportedServices(t *testing.T) {
	api := newFixture()
	api.state.Status.Membership = roster.PartStatus{Sync: roster.Unsynced, Since: now, Reason: "service pay/api is not exported"}
	all := &fakeExports{sets: map[string]*fixture{"shop/web": newFixture(), "pay/api": api, "shop-2/x": newFixture()}}
	b := &Builder{Exports: all, Find: all.Find, Kind: "service", Subscribers: func() []feed.Subscriber {
		return []feed.Subscriber{
			{Name: "a", Service: "pay/api", Since: now, LastSentAt: now}, {Name: "a", Service: "shop/web", Since: now, LastSentAt: now},
		}
	}}
	for filter, want := range map[string]struct {
		services, nodes, problems []string
		subscribers               int
	}{
		"":                   {[]string{"pay/api", "shop-2/x", "shop/web"}, nil, []string{"WARNING ServiceNotSynced Service pay/api: service pay/api is not exported"}, 2},
		"shop/":              {[]string{"shop/web"}, nil, nil, 1},
		"shop/web":           {[]string{"shop/web"}, []string{"shop/web master", "shop/web worker-1", "shop/web worker-2"}, nil, 1},
		"shop/x":             {nil, nil, []string{"WARNING ServiceNotInUse Service shop/x: no client has requested it in the last minutes"}, 0},
		"worker-1":           {[]string{"pay/api", "shop-2/x", "shop/web"}, []string{"pay/api worker-1", "shop-2/x worker-1", "shop/web worker-1"}, []string{"WARNING ServiceNotSynced Service pay/api: service pay/api is not exported"}, 2},
		"shop/web/10.0.1.12": {[]string{"shop/web"}, []string{"shop/web worker-2"}, nil, 1},
		"shop-2/10.0.1.12/":  {nil, nil, []string{"WARNING ServiceNotInUse Service shop-2/10.0.1.12: no client has requested it in the last minutes"}, 0},
		"nobody":             {nil, nil, []string{"WARNING NodeUnknown node nobody: it is not in the source"}, 2},
	} {
		var got struct{ services, nodes []string }
		request := &reportv1.GetReportRequest{Filter: filter, PageSize: 2}
		var last *inventoryv1.InventoryReport
		for pages := 0; pages == 0 || last.GetNextPageToken() != ""; pages++ {
			r, err := getReport(t, b, request)
			if err != nil {
				t.Fatal(err)
			}
			if got.nodes == nil || r.GetNodes() == nil {
				for _, s := range r.GetServices() {
					got.services = append(got.services, s.GetName())
				}
			}
			for _, n := range r.GetNodes() {
				got.nodes = append(got.nodes, n.GetService()+" "+n.GetName())
			}
			last, request.PageToken = r, r.GetNextPageToken()
		}
		if !slices.Equal(got.services, want.services) || !slices.Equal(got.nodes, want.nodes) ||
			!slices.Equal(describe(last.GetProblems()), want.problems) || len(last.GetSubscribers()) != want.subscribers {
			t.Errorf("%q: %q, %q, %q, %v", filter, got.services, got.nodes, describe(last.GetProblems()), last.GetSubscribers())
		}
		if last.GetTotals().GetReady() != 3 || last.GetTotals().GetExcluded() != 3 {
			t.Errorf("%q: totals %v", filter, last.GetTotals())
		}
	}
	all.unreachable = errors.New("connection refused")
	if err := b.CheckServing(); err == nil || err.Error() != "the secured cluster has not responded yet: connection refused" {
		t.Errorf("readiness: %v", err)
	}
}

func TestReportIsBounded(t *testing.T) {
	f, long := newFixture(), strings.Repeat("\xff<script>\x1b[31m", 1<<7)
	f.state.Status.Membership.Reason, f.state.Listing.Err, f.cloud.err = long, errors.New(long), errors.New(long)
	for i := range 1500 {
		m := f.add(fmt.Sprintf("worker-%06d", i), roster.NotReady, 0, "10.0.1.9")
		m.UID, m.StateReason, m.ProviderID, m.SystemUUID, m.Zone = long, long, long, long, long
		for n := range 36 {
			at := netip.AddrFrom4([4]byte{10, 0, 1, byte(n)})
			m.Candidates = append(m.Candidates, roster.CandidateAddress{Address: at, From: "the Node", Reason: "listed on 2 servers"})
		}
		f.subscribers = append(f.subscribers, feed.Subscriber{Name: long})
	}
	for _, filter := range []string{"", "10.0.1.9"} {
		request, nodes := &reportv1.GetReportRequest{Filter: filter}, 0
		for {
			r, err := getReport(t, f.builder(), request)
			if err != nil {
				t.Fatal(err)
			}
			data, err := proto.Marshal(r)
			if err != nil || len(data) > 4<<20 || len(r.GetProblems()) != 100 || r.GetProblemsOmitted() < 1400 ||
				len(r.GetSubscribers()) != 200 || r.GetSubscribersOmitted() != 1301 {
				t.Fatalf(
					"%v, %d bytes, %d problems and %d, %d subscribers and %d",
					err,
					len(data),
					len(r.GetProblems()),
					r.GetProblemsOmitted(),
					len(r.GetSubscribers()),
					r.GetSubscribersOmitted(),
				)
			}
			if nodes += len(r.GetNodes()); r.GetNextPageToken() == "" {
				break
			}
			request.PageToken = r.GetNextPageToken()
		}
		if want := map[string]int{"": 1503, "10.0.1.9": 1500}[filter]; nodes != want {
			t.Errorf("%q: %d nodes on all pages, want %d", filter, nodes, want)
		}
	}
}

func TestStatusAsJSON(t *testing.T) {
	f := newFixture()
	f.add("worker-3", roster.Ready, roster.NoAddressOnLAN, "").Omission.Message = "server 510b8fa3 has no address on the configured LAN (NICs there: 0)"
	r := f.get(t, "")
	r.Time = timestamppb.New(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC))
	var out strings.Builder
	if err := report.WriteAs(&out, command.JSON, r); err != nil {
		t.Fatal(err)
	}
	if err := testkit.CheckOutput("../../../docs/reference/output.md", "inventory-status", out.String()); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

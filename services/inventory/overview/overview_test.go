package overview

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

type fakeCloud struct {
	budget  ionos.Budget
	expires time.Time
	err     error
}

func (c *fakeCloud) Budget() ionos.Budget { return c.budget }

func (c *fakeCloud) TokenExpiry() (time.Time, bool, error) {
	return c.expires, !c.expires.IsZero(), c.err
}

func node(name string, state source.NodeState, address string) *roster.Node {
	return &roster.Node{
		Name: name, State: state, Since: now.Add(-3 * time.Hour), Addresses: []netip.Addr{netip.MustParseAddr(address)},
		Zone: "de-1", ServerID: "server-of-" + name,
	}
}

// fixture holds the inputs of a Config.
type fixture struct {
	data        collector.Snapshot
	cloud       *fakeCloud
	steps       []source.Step
	subscribers []nodeserver.Subscriber
}

func healthyFixture() *fixture {
	synced := source.PartStatus{Sync: source.Synced, Since: now.Add(-time.Hour)}
	return &fixture{
		data: collector.Snapshot{
			Status: source.Status{
				Membership:  synced,
				Addresses:   synced,
				Observation: 7,
				ObservedAt:  now.Add(-20 * time.Second),
				Publishable: true,
			},
			Nodes:   []*roster.Node{node("worker-1", source.Ready, "10.0.1.11"), node("worker-2", source.Draining, "10.0.1.12")},
			Omitted: []roster.Omission{{Name: "master", Reason: source.ControlPlane}},
			Listing: collector.Listing{StartedAt: now.Add(-30 * time.Second), Duration: 250 * time.Millisecond, Servers: 4},
		},
		cloud: &fakeCloud{budget: ionos.Budget{PerMinute: 120, Free: 58}, expires: now.Add(90 * 24 * time.Hour)},
		steps: []source.Step{
			{Stage: source.StageEligibility, Question: "Is it a worker?", Result: source.Passed, Detail: "no control plane label"},
			{Stage: source.StageMatch, Question: "Which server, by its provider ID?", Result: source.Failed, Detail: "the node has none"},
			{Stage: source.StageMatch, Question: "Which server, by its name?", Result: source.Skipped, Detail: "none"},
			{Stage: source.StageClaim, Question: "Other claimants", Result: source.Note, Detail: "none"},
		},
		subscribers: []nodeserver.Subscriber{
			{Name: "spiffe://example.org/writer", Since: now.Add(-time.Hour), LastSentAt: now.Add(-2 * time.Second), Synced: true},
		},
	}
}

func (f *fixture) page(filter string) statuspage.Page { return f.config().Page(now, filter) }

func (f *fixture) config() *Config {
	return &Config{
		Version: "v1.2.3", Instance: "inventory-1", Kind: "kubernetes", Cloud: f.cloud,
		ReadData: func() collector.Snapshot {
			data := f.data
			data.Nodes, data.Omitted = append([]*roster.Node(nil), data.Nodes...), append([]roster.Omission(nil), data.Omitted...)
			return data
		},
		Explain: func(name string) (roster.Explanation, bool) {
			e := roster.Explanation{Steps: f.steps, Conclusion: "The conclusion about " + name + "."}
			for _, o := range f.data.Omitted {
				if o.Name == name {
					e.Omitted, e.Conclusion = o.Reason, "Omitted: "+o.Advice
				}
			}
			return e, !strings.HasPrefix(name, "unknown")
		},
		Subscribers: func() []nodeserver.Subscriber { return f.subscribers },
	}
}

var update = flag.Bool("update", false, "write the example into docs/reference/output.md")

func TestStatusAsJSON(t *testing.T) {
	f := healthyFixture()
	f.data.Nodes, f.steps = f.data.Nodes[:1], f.steps[:1]
	f.data.Omitted = []roster.Omission{{Name: "worker-3", Reason: source.NoAddressOnLAN, Advice: "Attach a NIC to the LAN."}}
	var out strings.Builder
	format := command.JSON
	if err := format.Write(&out, f.page("")); err != nil {
		t.Fatal(err)
	}
	if err := commandtest.CheckOutput("../../../docs/reference/output.md", "inventory-status", out.String(), *update); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func renderText(t *testing.T, p statuspage.Page) string {
	t.Helper()
	var b strings.Builder
	if err := (statuspage.Terminal{Width: 100}).Write(&b, &p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestShowsNodesWorstFirst(t *testing.T) {
	f := healthyFixture()
	f.data.Nodes = append(f.data.Nodes, node("worker-3", source.NotReady, "10.0.1.13"))
	f.data.Omitted = append(f.data.Omitted,
		roster.Omission{Name: "worker-8", Reason: source.NotResolvedYet, Advice: "Wait."},
		roster.Omission{Name: "worker-9", Reason: source.NoAddressOnLAN, Advice: "Give its server a NIC on LAN 2."})
	f.data.Status.Addresses = source.PartStatus{Sync: source.Degraded, Since: now.Add(-time.Minute), Reason: "cloud listing failed: 503"}
	if diff := cmp.Diff(golden, renderText(t, f.page(""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

const golden = `slicefeed-inventory
inventory-1 v1.2.3, as of 2026-03-01 03:00:00 UTC

ERROR  2 eligible nodes omitted, addresses are degraded, 1 node is not ready.

SOURCE
SOURCE_KIND is kubernetes. Observation 7 was complete 20s ago.
part        state     for  reason
membership  synced    60m
addresses   degraded  60s  cloud listing failed: 503

NODES
ERROR  worker-9  omitted: NO_ADDRESS_ON_LAN
       Give its server a NIC on LAN 2.
              explanation  4 steps, 1 failed
WARN   worker-8  omitted: NOT_RESOLVED_YET
       Wait.
              explanation  4 steps, 1 failed
WARN   worker-3  not ready at 10.0.1.13  for 3h, zone de-1
       The conclusion about worker-3.
       resolved: Node worker-3 → server server-of-worker-3 → 10.0.1.13
              explanation  4 steps, 1 failed
OK     worker-1  ready at 10.0.1.11  for 3h, zone de-1
       worker-2  draining at 10.0.1.12  for 3h, zone de-1
       master    excluded: CONTROL_PLANE

SUBSCRIBERS
client                       role        for  lag
spiffe://example.org/writer  subscriber  60m  none

IONOS API
about           state
last listing    30s ago, 4 servers in 250ms
request budget  58 requests available now; the limit is 120 per minute
token           expires in 90d, on 2026-05-30

Show one in full: slicefeed-inventory status NAME
`

func TestHeadlineNamesProblems(t *testing.T) {
	for name, c := range map[string]struct {
		alter    func(*fixture)
		severity statuspage.Severity
		want     []string
	}{
		"no problems": {func(*fixture) {}, statuspage.OK, []string{"2 nodes published.", "OK     worker-1  ready at 10.0.1.11", "excluded: CONTROL_PLANE"}},
		"membership is degraded": {func(f *fixture) {
			f.data.Status.Membership = source.PartStatus{Sync: source.Degraded, Since: now.Add(-time.Minute), Reason: "no contact with the source"}
		}, statuspage.Warning, []string{"Membership is degraded.", "membership  degraded  60s  no contact with the source"}},
		"addresses are unsynced": {func(f *fixture) { f.data.Status.Addresses = source.PartStatus{Sync: source.Unsynced, Since: now} }, statuspage.Error, []string{"Addresses are unsynced."}},
		"nothing observed yet": {func(f *fixture) { f.data = collector.Snapshot{} }, statuspage.Error, []string{
			"No complete observation yet: nothing is published.", "The source has reported no nodes yet.", "none yet",
		}},
		"not published yet":               {func(f *fixture) { f.data.Status.Publishable = false }, statuspage.OK, []string{"Not published yet: subscribers keep their current set."}},
		"no node is ready":                {func(f *fixture) { f.data.Nodes = f.data.Nodes[1:] }, statuspage.Error, []string{"No node is ready."}},
		"an omitted node":                 {func(f *fixture) { f.data.Omitted[0].Reason = source.AmbiguousServer }, statuspage.Error, []string{"1 eligible node omitted.", "ERROR  master    omitted: AMBIGUOUS_SERVER"}},
		"a new node":                      {func(f *fixture) { f.data.Omitted[0].Reason = source.NotResolvedYet }, statuspage.Warning, []string{"1 eligible node omitted."}},
		"no subscribers":                  {func(f *fixture) { f.subscribers = nil }, statuspage.OK, []string{"No subscribers.", "ALLOWED_CLIENTS_FILE"}},
		"a subscriber that reads nothing": {func(f *fixture) { f.subscribers[0].LastSentAt, f.subscribers[0].Lag = now.Add(-time.Minute), 12 }, statuspage.Warning, []string{"1 subscriber is slow.", "12 changes, has read nothing for 60s"}},
		"a subscriber that never did":     {func(f *fixture) { f.subscribers[0].LastSentAt = time.Time{} }, statuspage.Warning, []string{"has read nothing for 60m"}},
		"an operator":                     {func(f *fixture) { f.subscribers[0].Operator = true }, statuspage.OK, []string{"operator"}},
		"a failed listing":                {func(f *fixture) { f.data.Listing.Err = errors.New("503") }, statuspage.OK, []string{"30s ago, failed: 503"}},
		"an exhausted budget":             {func(f *fixture) { f.cloud.budget = ionos.Budget{PerMinute: 120, Wait: 9 * time.Second} }, statuspage.Warning, []string{"used up: the next request waits 9s"}},
		"a token that expires in weeks":   {func(f *fixture) { f.cloud.expires = now.Add(20 * 24 * time.Hour) }, statuspage.Warning, []string{"The IONOS token expires in 20d."}},
		"a token that expires in days":    {func(f *fixture) { f.cloud.expires = now.Add(2 * 24 * time.Hour) }, statuspage.Error, []string{"The IONOS token expires in 2d."}},
		"an expired token":                {func(f *fixture) { f.cloud.expires = now.Add(-time.Hour) }, statuspage.Error, []string{"expired on 2026-03-01 02:00:00 UTC"}},
		"an unreadable token":             {func(f *fixture) { f.cloud.err = errors.New("no such file") }, statuspage.Error, []string{"no such file"}},
		"a token without expiry":          {func(f *fixture) { f.cloud.expires = time.Time{} }, statuspage.OK, []string{"no stated expiry"}},
		"ports of a Service":              {func(f *fixture) { f.data.Nodes[0].Ports = []contract.Port{{Name: "http", Protocol: "TCP", Number: 80}} }, statuspage.OK, []string{"ports http 80/TCP"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthyFixture()
			c.alter(f)
			p := f.page("")
			if p.Summary.Severity != c.severity {
				t.Errorf("severity %s: %s", p.Summary.Severity, p.Summary.Text)
			}
			for _, want := range c.want {
				if text := renderText(t, p); !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
		})
	}
}

func TestFilterShowsOneNodeExpanded(t *testing.T) {
	p := healthyFixture().page("worker-1")
	if nodes := p.Sections[1].Items; len(nodes) != 1 || !nodes[0].Expanded || p.Filter != "worker-1" ||
		p.Summary.Severity != statuspage.OK {
		t.Errorf("%+v", p)
	}
	if text := renderText(
		t,
		p,
	); !strings.Contains(text, "resolved: Node worker-1 → server server-of-worker-1 → 10.0.1.11") ||
		!strings.Contains(text, "failed: Which server, by its provider ID? (the node has none)") {
		t.Errorf("no explanation in:\n%s", text)
	}
	p = healthyFixture().page("unknown")
	if text := renderText(
		t,
		p,
	); p.Summary.Severity != statuspage.Warning || !strings.Contains(text, "The conclusion about unknown.") ||
		!strings.Contains(text, "No node has this name.") {
		t.Errorf("page of an unknown node:\n%s", text)
	}
}

func TestPageIsBoundedAndEscaped(t *testing.T) {
	const evil = "<script>alert(1)</script>\x1b[31m"
	long := strings.Repeat(`"`, 1<<12)
	f := healthyFixture()
	f.steps = append(f.steps, source.Step{Stage: "claim", Question: evil, Result: source.Failed, Detail: long})
	for range 20 {
		f.steps = append(f.steps, f.steps[len(f.steps)-1])
	}
	f.data.Status.Membership.Reason, f.data.Listing.Err = evil+long, errors.New(evil)
	for n := range 3000 {
		one := node(fmt.Sprintf("worker-%d", n), source.Ready, "10.0.0.1")
		one.Zone, one.ServerID = evil, evil
		f.data.Nodes = append(f.data.Nodes, one)
		f.data.Omitted = append(
			f.data.Omitted,
			roster.Omission{Name: fmt.Sprint("bad-", n), Reason: source.InvalidRecord, Advice: evil + long},
		)
		f.subscribers = append(f.subscribers, nodeserver.Subscriber{Name: evil})
	}
	p := f.page("")
	var page strings.Builder
	if err := statuspage.WriteHTML(&page, &p); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 8<<20 {
		t.Errorf("page has %d bytes", page.Len())
	}
	if strings.Contains(page.String(), "<script") || strings.Contains(page.String(), "\x1b") {
		t.Error("page contains unescaped text")
	}
	for _, want := range []string{"5003 more nodes omitted.", " omitted. Select one to see them.", "2801 more not shown.", "&lt;script&gt;"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

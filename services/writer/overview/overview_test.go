package overview

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var (
	now      = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	ready    = verdict.Conditions{Ready: true, Serving: true}
	draining = verdict.Conditions{Serving: true, Terminating: true}
	out      = verdict.Conditions{}
)

// newTarget is a target that is healthy.
func newTarget(service string, addresses ...string) endpoints.Target {
	t := endpoints.Target{
		Namespace: "web", Service: service, State: endpoints.Managed, Leading: true,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
		Input: verdict.Input{
			Limits: verdict.Limits{Probing: true},
			Sources: []verdict.Source{
				{Name: "blue", EverSynced: true, Connected: true, Observation: 7, ObservationAt: now.Add(-2 * time.Second)},
			},
		},
		Decision: verdict.Decision{Write: true},
		Sources:  []subscriber.Snapshot{syncedSnapshot("blue")},
	}
	for i, text := range addresses {
		a := netip.MustParseAddr(text)
		t.Input.Sources[0].Members = append(
			t.Input.Sources[0].Members,
			verdict.Member{Address: a, Name: fmt.Sprintf("worker-%d", i+1), State: verdict.Ready, Since: now.Add(-time.Hour)},
		)
		t.Input.Probes = append(t.Input.Probes, verdict.Probe{Address: a, Status: verdict.Passing, Since: now.Add(-time.Minute)})
		t.Input.Current = append(t.Input.Current, verdict.CurrentEndpoint{Address: a, Conditions: ready, Source: "blue"})
		t.Decision.Endpoints = append(t.Decision.Endpoints, verdict.Endpoint{
			Address:    a,
			Source:     "blue",
			Verdict:    verdict.Serve,
			Conditions: ready,
			Listed:     true,
			Rule:       verdict.RuleTable,
			Reason:     "source blue: ready, probe: passing",
		})
	}
	return t
}

func syncedSnapshot(name string) subscriber.Snapshot {
	return subscriber.Snapshot{
		Source: name, EverSynced: true, SyncedInStream: true, Connected: true, MembershipSyncedAt: now.Add(-5 * time.Second),
		Observation: 7, ObservationReceivedAt: now.Add(-2 * time.Second),
		Membership: subscriber.PartStatus{State: subscriber.Synced}, Addresses: subscriber.PartStatus{State: subscriber.Synced},
	}
}

func newPageModel(targets ...endpoints.Target) pageModel {
	b := endpoints.NewStore("instance")
	for _, t := range targets {
		b.Put(t)
	}
	b.MarkSynced()
	m := pageModel{
		At:       now,
		Version:  "v1.2.3",
		Instance: "writer-1_x",
		Leading:  true,
		Holder:   "writer-1_x",
		Sources:  []subscriber.Snapshot{syncedSnapshot("blue")},
	}
	m.Services, m.Status = b.Views(nil)
	return m
}

// renderText is a model's page as a terminal shows it that is wide enough.
func renderText(t *testing.T, m pageModel) string {
	t.Helper()
	p := m.Page()
	var b strings.Builder
	if err := (statuspage.Terminal{Width: 1000}).Write(&b, &p); err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(` {2,}`).ReplaceAllString(b.String(), "  ")
}

// unhealthyTarget is a target with an address of each kind: one that is out, one that is held back and one that is new.
func unhealthyTarget() endpoints.Target {
	t := newTarget("shop", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	members, decided := t.Input.Sources[0].Members, t.Decision.Endpoints
	t.Input.Current = t.Input.Current[:3]
	t.Input.Probes[1] = verdict.Probe{
		Address:    decided[1].Address,
		Status:     verdict.Failing,
		Since:      now.Add(-9 * time.Second),
		Detail:     "connection refused",
		LastPassed: now.Add(-11 * time.Second),
	}
	decided[1].Verdict, decided[1].Conditions, decided[1].Reason = verdict.Unready, out, "source blue: ready, probe: failing (connection refused)"
	members[2].State = verdict.Draining
	decided[2].Verdict, decided[2].Rule, decided[2].Reason = verdict.Hold, verdict.RuleShrink, "source blue: draining, probe: passing"
	t.Input.Probes[3] = verdict.Probe{Address: decided[3].Address}
	decided[3].Verdict, decided[3].Listed, decided[3].Reason = verdict.Hold, false, "source blue: ready, probe: pending"
	t.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleShrink, Source: "blue", Held: 1, Message: "One stays for now."}}
	t.Decision.Wake = now.Add(25 * time.Second)
	return t
}

func TestShowsReportProbeRuleAndGuard(t *testing.T) {
	m := newPageModel(newTarget("mail", "10.0.0.1"), unhealthyTarget())
	m.Writes = []history.Write{
		{
			At:        now.Add(-10 * time.Second),
			Namespace: "web",
			Service:   "shop",
			Slice:     "shop-1",
			Verb:      "update",
			Result:    "rejected",
			Message:   "quota",
			Attempts:  3,
		},
		{
			At:        now.Add(-time.Minute),
			Namespace: "web",
			Service:   "shop",
			Slice:     "shop-1",
			Verb:      "update",
			Result:    "ok",
			Attempts:  1,
			Changes: []history.Change{
				{
					Field: "label a",
					New:   "b",
				},
				{Field: "endpoint 10.0.0.1", Old: "ready", New: "out", Reason: "probe: failing"},
				{Field: "endpoint 10.0.0.9", Old: "ready"},
			},
		},
	}
	m.Events = []history.Event{
		{At: now.Add(-time.Hour), Namespace: "web", Service: "shop", Reason: "ShrinkLimited", Note: "One stays for now."},
	}
	if diff := cmp.Diff(goldenPage, renderText(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var update = flag.Bool("update", false, "write the example into docs/reference/output.md")

func TestStatusAsJSON(t *testing.T) {
	m := newPageModel(unhealthyTarget())
	m.Services[0].Addresses = m.Services[0].Addresses[1:2] // an example, not all
	m.Writes = []history.Write{
		{
			At:        now.Add(-10 * time.Second),
			Namespace: "web",
			Service:   "shop",
			Slice:     "shop-1",
			Verb:      "update",
			Result:    "rejected",
			Message:   "quota",
			Attempts:  3,
		},
	}
	m.Events = []history.Event{
		{At: now.Add(-time.Hour), Namespace: "web", Service: "shop", Reason: "ShrinkLimited", Note: "One stays for now."},
	}
	var out strings.Builder
	format := command.JSON
	if err := format.Write(&out, m.Page()); err != nil {
		t.Fatal(err)
	}
	if err := commandtest.CheckOutput("../../../docs/reference/output.md", "writer-status", out.String(), *update); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

const goldenPage = `slicefeed-writer
writer-1_x v1.2.3, as of 2026-03-01 03:00:00 UTC

ERROR  1 of 2 Services unhealthy, 1 change held by guards.
  Leader: decisions are written.

SERVICES
ERROR  web/shop  1 address out of sync  2 ready, 0 draining, 1 not ready
  Guard shrink (source blue) holds 1 address: One stays for now.
  ports: http 30080/TCP
  next decision: in 25s, at 03:00:25 UTC
  ERROR  10.0.0.2  ready, desired not ready  worker-2 ready, probe failing
  Listed as not ready by source and probe.
  The probe fails: connection refused. Check the backend at this address and the network between writer and backend.
  source: blue: ready for 60m, as worker-2 (observation 7, received 2s ago)
  probe: failing for 9s: connection refused; last passed 11s ago
  decision: unready, by rule table: source blue: ready, probe: failing (connection refused)
  current: ready
  desired: not ready
  WARN  10.0.0.4  not listed  worker-4 ready, probe pending
  WARN  10.0.0.3  ready, held  worker-3 draining, probe passing
  OK  10.0.0.1  ready  worker-1 ready, probe passing
OK  web/mail  healthy  1 ready, 0 draining, 0 not ready

SOURCES
source  trust  nodes  membership synced  last observation
blue  trusted  0  5s ago  #7, 2s ago

LAST WRITES
ERROR  web/shop-1  update rejected, 3 times  02:59:50, 10s ago
  API server: quota
  web/shop-1  updated -1 ~1  02:59:00, 60s ago

RECENT EVENTS
  web/shop  ShrinkLimited  02:00:00, 60m ago

Show one in full: slicefeed-writer status NAME
`

func TestListsUnhealthyServicesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		alter    func(*endpoints.Target)
		wantText string
		above    bool // a Service that is healthy
		open     bool
	}{
		"healthy":           {func(*endpoints.Target) {}, "healthy", false, false},
		"not written":       {func(t *endpoints.Target) { t.Input.Current = nil }, "1 address out of sync", true, true},
		"nothing is listed": {func(t *endpoints.Target) { t.Input.Current, t.Decision.Endpoints = nil, nil }, "no ready endpoints", true, true},
		"the allowlist":     {func(t *endpoints.Target) { t.Decision.Write = false }, "writes blocked by a guard", true, true},
		"held back": {func(t *endpoints.Target) {
			t.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleTrust, Source: "blue", Held: 2, Message: "Silence."}}
		}, "2 held by guards", true, true},
		"paused": {func(t *endpoints.Target) {
			t.State, t.Slices = endpoints.Paused, nil
		}, "paused, nothing is written; 1 address would change", true, true},
		"rejected": {func(t *endpoints.Target) {
			t.State, t.Reason, t.Message = endpoints.Rejected, "ServiceHasSelector", "Remove the selector."
		}, "rejected: ServiceHasSelector; nothing is written", true, true},
		"rejected, and its endpoints follow their probes": {func(t *endpoints.Target) {
			t.State, t.Reason, t.Message, t.FollowsProbes = endpoints.Rejected, "ServiceHasSelector", "Remove the selector.", true
		}, "rejected: ServiceHasSelector; no endpoints are added, failing ones become not ready", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget("z", "10.0.0.1")
			c.alter(&target)
			m := newPageModel(newTarget("a", "10.0.0.1"), target)
			texts, services := renderText(t, m), m.Page().Sections[0].Items
			if !strings.Contains(texts, "web/z  "+c.wantText+"  ") {
				t.Errorf("no %q in:\n%s", c.wantText, texts)
			}
			if above := strings.Index(texts, "web/z") < strings.Index(texts, "web/a"); above != c.above {
				t.Errorf("above: %t", above)
			}
			if c.wantText == "paused, nothing is written; 1 address would change" &&
				!strings.Contains(texts, "10.0.0.1  not listed, would be ready") {
				t.Errorf("it does not say what would be:\n%s", texts)
			}
			if open := services[0].Expanded || services[1].Expanded; open != c.open {
				t.Errorf("open: %t", open)
			}
			if !strings.Contains(texts, target.Message) {
				t.Errorf("no %q", target.Message)
			}
		})
	}
}

func TestShowsLeaderAndSourceStatus(t *testing.T) {
	ignoring := newTarget("shop", "10.0.0.1")
	ignoring.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleTrust, Source: "blue", Held: 1}}
	for name, c := range map[string]struct {
		alter    func(*pageModel)
		wantText string
	}{
		"a standby":                         {func(m *pageModel) { m.Leading, m.Holder = false, "writer-2_y" }, "Standby: writer-2_y writes; see its status page."},
		"a standby without a leader":        {func(m *pageModel) { m.Leading, m.Holder = false, "" }, "Standby: the leader writes; see its status page."},
		"a rehearsal":                       {func(m *pageModel) { m.DryRun = true }, "Dry run: nothing is written."},
		"before the start":                  {func(m *pageModel) { m.Status.Synced = false }, "Initial sync incomplete"},
		"no Services":                       {func(m *pageModel) { m.Services = nil }, "No Service has this writer's class"},
		"a Service of no name":              {func(m *pageModel) { m.Services, m.Filter = nil, "web/x" }, "No such target. Check the class label"},
		"writes of a Service that has none": {func(m *pageModel) { m.Writes, m.Filter = nil, "web/nope" }, "No recorded writes for web/nope."},
		"Events of a Service that has none": {func(m *pageModel) { m.Events, m.Filter = nil, "web/nope" }, "No recorded Events for web/nope."},
		"no write at all":                   {func(m *pageModel) { m.Writes = nil }, "No writes since start."},
		"a rehearsal without a write":       {func(m *pageModel) { m.DryRun, m.Writes = true, nil }, "No writes since start."},
		"a rehearsal's writes":              {func(m *pageModel) { m.DryRun = true }, "LAST WRITES (DRY RUN, NOT SENT)"},
		"a silent source":                   {func(m *pageModel) { m.Sources[0].Connected = false }, "blue  disconnected  0  5s ago  #7, 2s ago  link down"},
		"one that rejects the request":      {func(m *pageModel) { m.Sources[0].Connected, m.Sources[0].Denial = false, "exports none" }, "the inventory rejects the request: exports none"},
		"a new source":                      {func(m *pageModel) { m.Sources[0] = subscriber.Snapshot{Source: "blue"} }, "blue  disconnected  0  never  none yet  not synced since start"},
		"one not synced itself":             {func(m *pageModel) { m.Sources[0].Membership = subscriber.PartStatus{Reason: "503"} }, "blue  warning  "},
		"one not trusted": {func(m *pageModel) {
			b := endpoints.NewStore("instance")
			b.Put(ignoring)
			m.Services, m.Status = b.Views(nil)
		}, "ignored by 1 Service"},
	} {
		m := newPageModel(newTarget("shop", "10.0.0.1"))
		c.alter(&m)
		texts := renderText(t, m)
		if !strings.Contains(texts, c.wantText) {
			t.Errorf("%s: no %q in:\n%s", name, c.wantText, texts)
		}
		if blind := strings.Contains(c.wantText, "disconnected") ||
			strings.Contains(c.wantText, "ignored by"); blind &&
			!strings.Contains(texts, "ERROR  Source blue is not trusted") {
			t.Errorf("%s: not on top of:\n%s", name, texts)
		}
	}
}

func TestEscapesForeignText(t *testing.T) {
	const evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)></style></details><a href=https://evil.example>`{{.}}\x00\x1b[31m\xff"
	target := unhealthyTarget()
	target.Reason, target.Message = evil, evil
	target.Ports[0].Name = new(evil)
	for i := range target.Decision.Endpoints {
		target.Decision.Endpoints[i].Reason, target.Decision.Endpoints[i].Rule = evil, verdict.RuleShrink
		target.Input.Sources[0].Members[i].Name = evil
		target.Input.Probes[i] = verdict.Probe{Address: target.Decision.Endpoints[i].Address, Status: verdict.Failing, Detail: evil}
	}
	target.Decision.Guards[0].Message = evil
	rejected := newTarget(evil)
	rejected.Namespace, rejected.State, rejected.Reason, rejected.Message = evil, endpoints.Rejected, evil, evil
	m := newPageModel(target, rejected)
	m.Instance, m.Version, m.Filter, m.Holder, m.Leading = evil, evil, evil, evil, false
	m.Sources[0].Source, m.Sources[0].Membership = evil, subscriber.PartStatus{Reason: evil}
	m.Writes = []history.Write{
		{
			Namespace: evil,
			Slice:     evil,
			Verb:      evil,
			Result:    "rejected",
			Message:   evil,
			Changes:   []history.Change{{Field: evil, New: evil, Reason: evil}},
		},
	}
	m.Events = []history.Event{{Namespace: evil, Reason: evil, Note: evil}}
	p := m.Page()
	var page strings.Builder
	if err := statuspage.WriteHTML(&page, &p); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "<script") || strings.Contains(page.String(), "<img") ||
		strings.Contains(page.String(), "evil.example>") {
		t.Error("markup came in")
	}
	if n := strings.Count(page.String(), "&lt;script&gt;alert(1)&lt;/script&gt;"); n < 30 {
		t.Errorf("the text is there %d times: does it get through at all?", n)
	}
	if strings.ContainsAny(page.String(), "\x00\x1b") {
		t.Error("a control character got through")
	}
}

func TestPageIsBounded(t *testing.T) {
	long := strings.Repeat(`"`, 1<<12)
	var many []endpoints.Target
	var addresses []string
	for i := range 300 {
		addresses = append(addresses, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
	}
	for i := range maxRows + 7 {
		target := newTarget(fmt.Sprintf("s%d", i), addresses[:1]...)
		if i < 30 {
			target = newTarget(fmt.Sprintf("s%d", i), addresses...)
			target.Input.Current[200].Conditions = draining
			for n := range target.Decision.Endpoints {
				target.Decision.Endpoints[n].Reason = long
			}
			for range 50 {
				target.Decision.Guards = append(target.Decision.Guards, verdict.Guard{Rule: verdict.RuleTrust, Message: long})
			}
			for n := range 60 {
				target.Input.Sources = append(target.Input.Sources, verdict.Source{Name: fmt.Sprintf("x%d", n)})
			}
		}
		many = append(many, target)
	}
	m := newPageModel(many...)
	m.Filter = "x"
	for range 100 {
		m.Writes = append(
			m.Writes,
			history.Write{Verb: "update", Result: "ok", Changes: slices.Repeat([]history.Change{{Field: long, New: long}}, 50)},
		)
		m.Events = append(m.Events, history.Event{Reason: long, Note: long})
	}
	p := m.Page()
	var page strings.Builder
	if err := statuspage.WriteHTML(&page, &p); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 12<<20 {
		t.Errorf("it has %d bytes", page.Len())
	}
	texts := page.String()
	for _, reports := range []string{
		"30 of 1007 Services unhealthy", "7 more Services omitted.", "80 earlier ones omitted.", "200 more addresses omitted", "30 more guards omitted", "57 more sources omitted",
		" omitted. Select one to see them.",
		"10.0.0.200</h3> <span class=\"summary error\">draining, desired ready", // whose turn by its address would be the 201st
	} {
		if !strings.Contains(texts, reports) {
			t.Errorf("it does not say %q", reports)
		}
	}
	open := 0
	for _, s := range p.Sections[0].Items {
		if s.Expanded {
			open++
		}
	}
	if open != maxExpanded {
		t.Errorf("%d are open", open)
	}
}

func TestPageShowsFilteredServices(t *testing.T) {
	b := endpoints.NewStore("instance")
	b.Put(newTarget("a", "10.0.0.1"))
	b.Put(unhealthyTarget())
	b.MarkSynced()
	var log history.Log
	log.AddWrite(history.Write{Namespace: "web", Service: "a", Slice: "of-a", Verb: "update", Result: "ok"})
	log.AddEvent(history.Event{Namespace: "web", Service: "shop", Reason: "OfShop"})
	c := Config{
		Store: b, History: &log, Leading: func() bool { return false }, Holder: func() string { return "writer-2" },
		Sources: func() []subscriber.Snapshot {
			return []subscriber.Snapshot{syncedSnapshot("green"), syncedSnapshot("blue")}
		},
	}
	for filter, want := range map[string][4]bool{ // web/a, web/shop, its write, its event
		"": {true, true, true, true}, "web/a": {true, false, true, false}, "web/shop": {false, true, false, true},
		"web/": {true, true, true, true}, "nonsense": {}, "web/x": {},
	} {
		p := c.Page(now, filter)
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		has := func(what string) bool { return strings.Contains(string(raw), what) }
		if got := [4]bool{has(`"name":"web/a"`), has(`"name":"web/shop"`), has("of-a"), has("OfShop")}; got != want {
			t.Errorf("%q: %v, want %v", filter, got, want)
		}
		if p.Sections[1].Table.Rows[0][0].Text != "blue" {
			t.Error("the sources are not sorted")
		}
	}
}

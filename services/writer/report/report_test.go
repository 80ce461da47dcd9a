package report

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
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
		t.Input.Probes = append(t.Input.Probes, probe.Status{Address: a, Health: probe.Passing, Since: now.Add(-time.Minute)})
		t.Input.Current = append(t.Input.Current, verdict.CurrentEndpoint{Address: a, Conditions: ready, Source: "blue"})
		t.Decision.Endpoints = append(t.Decision.Endpoints, verdict.Endpoint{
			Address: a, Source: "blue", Verdict: verdict.Serve, Conditions: ready, Listed: true, Rule: verdict.RuleTable,
			Reason: verdict.Reason{Source: "blue", Report: verdict.Ready, Probe: probe.Passing},
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

// newBuilder returns a builder of reports about targets of a synced writer that leads.
func newBuilder(all ...endpoints.Target) *Builder {
	b := &Builder{
		Version: "v1.2.3", Instance: "writer-1_x", Store: endpoints.NewStore("instance"), Writes: &Writes{},
		Sources: func() []subscriber.Snapshot { return []subscriber.Snapshot{syncedSnapshot("blue")} },
		Leading: func() bool { return true }, Holder: func() string { return "writer-1_x" },
		Synced: func() error { return nil }, ImportsServed: func() error { return nil },
	}
	for _, t := range all {
		t.OutOfSync = t.CountOutOfSync()
		view := targets.Resolution{Target: targets.Target{State: targets.Managed}}
		view.Settings.Paused = t.State == endpoints.Paused
		t.Problems = OfService(view, &t, false)
		for range t.Problems {
			t.Since = append(t.Since, now.Add(-90*time.Second))
		}
		b.Store.Put(t)
	}
	b.Store.MarkSynced()
	return b
}

func build(t *testing.T, b *Builder, filter string) *writerv1.WriterReport {
	t.Helper()
	r, err := b.Build(&reportv1.GetReportRequest{Filter: filter}, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reasons returns the levels and reasons of problems.
func reasons(all []*report.Problem) (texts []string) {
	for _, p := range all {
		texts = append(texts, strings.TrimPrefix(p.GetLevel().String(), "LEVEL_")+" "+p.GetReason())
	}
	return texts
}

// unhealthyTarget has an address of each kind: one that is out, one that is held and one that is new.
func unhealthyTarget() endpoints.Target {
	t := newTarget("shop", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	members, decided := t.Input.Sources[0].Members, t.Decision.Endpoints
	t.Input.Current = t.Input.Current[:3]
	t.Input.Probes[1] = probe.Status{
		Address: decided[1].Address, Health: probe.Failing, Since: now.Add(-9 * time.Second), Detail: "connection refused",
		LastPassed: now.Add(-11 * time.Second),
	}
	decided[1].Verdict, decided[1].Conditions, decided[1].Reason = verdict.Unready, out, verdict.Reason{
		Source: "blue", Report: verdict.Ready, Probe: probe.Failing, Detail: "connection refused",
	}
	members[2].State = verdict.Draining
	decided[2].Verdict, decided[2].Rule, decided[2].Held = verdict.Hold, verdict.RuleShrink, true
	decided[2].Reason.Report = verdict.Draining
	t.Input.Probes[3] = probe.Status{Address: decided[3].Address}
	decided[3].Verdict, decided[3].Listed, decided[3].Reason.Probe = verdict.Hold, false, probe.Pending
	t.Decision.Guards = []verdict.Guard{
		{
			Rule:    verdict.RuleShrink,
			Source:  "blue",
			Held:    1,
			Message: "Source blue takes out 1 more ready endpoint than SHRINK_WINDOW allows; they stay ready.",
		},
	}
	t.Decision.Wake = now.Add(25 * time.Second)
	return t
}

func TestReportAsJSON(t *testing.T) {
	target := unhealthyTarget()
	b := newBuilder(newTarget("mail", "10.0.1.1"), target)
	add := func(ago time.Duration, w *writerv1.WriteReport) {
		w.Slice, w.Verb = "shop-1", "update"
		b.Writes.Add(Write{w, now.Add(-ago), "web", "shop"})
	}
	change := Change{Field: "endpoint 10.0.0.3", Old: "not ready", New: "ready", Reason: "source blue: READY, probe: passing"}
	add(time.Minute, &writerv1.WriteReport{Result: "ok", Changes: []string{change.String()}})
	for range 3 {
		add(10*time.Second, &writerv1.WriteReport{Result: "rejected", Message: "quota"})
	}
	for name, filter := range map[string]string{"writer-status": "", "writer-status-address": "web/shop/10.0.0.2"} {
		var text strings.Builder
		if err := report.WriteAs(&text, command.JSON, build(t, b, filter)); err != nil {
			t.Fatal(err)
		}
		if err := testkit.CheckOutput("../../../docs/reference/output.md", name, text.String()); err != nil {
			t.Errorf("%v\n%s", err, text.String())
		}
	}
}

func TestFilterSelectsServicesAddressesAndNodes(t *testing.T) {
	other := newTarget("mail", "10.0.1.1")
	other.Namespace = "mail"
	imported := newTarget("shop.serviceimport", "10.0.2.1")
	b := newBuilder(unhealthyTarget(), other, imported)
	for filter, want := range map[string]string{
		"":                         "mail/mail web/shop web/shop.serviceimport",
		"web/":                     "web/shop web/shop.serviceimport",
		"web/shop":                 "web/shop[10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4]",
		"web/shop.serviceimport":   "web/shop.serviceimport[10.0.2.1]",
		"web/shop/10.0.0.3":        "web/shop[10.0.0.3]",
		"web/shop/::ffff:10.0.0.3": "web/shop[10.0.0.3]",
		"web/shop/10.9.9.9":        "web/shop[10.9.9.9]", // it says that no source reports it
		"web/shop/worker-4":        "web/shop[10.0.0.4]",
		"web/shop/worker-9":        "web/shop",
		"10.0.1.1":                 "mail/mail[10.0.1.1]",
		"worker-1":                 "mail/mail[10.0.1.1] web/shop[10.0.0.1] web/shop.serviceimport[10.0.2.1]",
		"web/nobody":               "",
		"nobodys-machine":          "",
		"web/shop/10.0.0.3/":       "web/shop",
		strings.Repeat("n", 512):   "",
		"web/" + "\x1b[31m/\x00":   "",
	} {
		r := build(t, b, filter)
		var got []string
		for _, s := range r.GetServices() {
			text := s.GetNamespace() + "/" + s.GetName()
			var addresses []string
			for _, a := range s.GetAddresses() {
				addresses = append(addresses, a.GetAddress())
			}
			if addresses != nil {
				text += fmt.Sprint(addresses)
			}
			got = append(got, text)
		}
		if d := cmp.Diff(want, strings.Join(got, " ")); d != "" {
			t.Errorf("%q (-want +got):\n%s", filter, d)
		}
		if r.GetTotals().GetServices() != 3 || r.GetTotals().GetReady() != 4 {
			t.Errorf("%q: totals depend on the filter: %v", filter, r.GetTotals())
		}
		if healthy := report.IsHealthy(r.GetProblems()); want == "" && healthy {
			t.Errorf("%q: healthy though nothing is selected", filter)
		}
	}
	for _, filter := range []string{strings.Repeat("n", 513), "web/\xff"} {
		if _, err := b.Build(&reportv1.GetReportRequest{Filter: filter}, now); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.20q: %v", filter, err)
		}
	}
}

func TestProblemsAreThoseOfWhatIsSelected(t *testing.T) {
	unsynced := newTarget("new")
	unsynced.Sources[0] = subscriber.Snapshot{Source: "blue"}
	b := newBuilder(unhealthyTarget(), newTarget("mail", "10.0.1.1"), unsynced)
	for filter, want := range map[string][]string{
		"":                  {"ERROR NoReadyEndpoints", "ERROR OutOfSync", "WARNING SourceNotSynced", "WARNING ShrinkLimited"},
		"web/new/worker-7":  {"ERROR NoReadyEndpoints", "WARNING SourceNotSynced"},
		"web/shop":          {"ERROR OutOfSync", "WARNING ShrinkLimited"},
		"web/mail":          nil,
		"web/shop/10.0.0.1": {"ERROR OutOfSync", "WARNING ShrinkLimited"},
		"web/shop/10.0.0.3": {"ERROR OutOfSync", "WARNING ShrinkLimited", "WARNING ShrinkLimited"},
		"web/mail/worker-7": {"WARNING NotReported"},
		"web/mail/10.9.9.9": {"WARNING NotReported"},
		"web/mail/10.0.1.1": nil,
		"web/nobody":        {"WARNING NoServices"},
	} {
		r := build(t, b, filter)
		if d := cmp.Diff(want, reasons(r.GetProblems())); d != "" {
			t.Errorf("%q (-want +got):\n%s", filter, d)
		}
		if want != nil && want[0] == "ERROR OutOfSync" && r.GetProblems()[0].GetAge().GetSeconds() != 90 {
			t.Errorf("age %v", r.GetProblems()[0].GetAge())
		}
	}
}

func TestReportsTheWriterAndItsSources(t *testing.T) {
	ignoring := newTarget("shop", "10.0.0.1")
	ignoring.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleTrust, Source: "blue", Held: 1, Message: "Source blue is not trusted."}}
	for name, c := range map[string]struct {
		alter  func(*Builder, *subscriber.Snapshot)
		target endpoints.Target
		want   []string
		ready  bool
	}{
		"all is well":          {func(*Builder, *subscriber.Snapshot) {}, newTarget("shop", "10.0.0.1"), nil, true},
		"caches not synced":    {func(b *Builder, _ *subscriber.Snapshot) { b.Synced = func() error { return errors.New("no") } }, newTarget("shop", "10.0.0.1"), []string{"CANNOT_SERVE CachesNotSynced"}, false},
		"ServiceImports":       {func(b *Builder, _ *subscriber.Snapshot) { b.ImportsServed = func() error { return errors.New("no") } }, newTarget("shop", "10.0.0.1"), []string{"CANNOT_SERVE ServiceImportsMissing"}, false},
		"before the start":     {func(b *Builder, _ *subscriber.Snapshot) { b.Store = endpoints.NewStore("x") }, newTarget("shop", "10.0.0.1"), []string{"WARNING InitialSyncIncomplete", "WARNING NoServices"}, true},
		"a silent source":      {func(_ *Builder, s *subscriber.Snapshot) { s.Connected = false }, newTarget("shop", "10.0.0.1"), []string{"ERROR SourceDisconnected"}, true},
		"one that rejects us":  {func(_ *Builder, s *subscriber.Snapshot) { s.Connected, s.Denial = false, "exports none" }, newTarget("shop", "10.0.0.1"), []string{"ERROR SourceDisconnected"}, true},
		"a new source":         {func(_ *Builder, s *subscriber.Snapshot) { *s = subscriber.Snapshot{Source: "blue"} }, newTarget("shop", "10.0.0.1"), []string{"ERROR SourceNotSynced"}, true},
		"membership degraded":  {func(_ *Builder, s *subscriber.Snapshot) { s.Membership = subscriber.PartStatus{Reason: "503"} }, newTarget("shop", "10.0.0.1"), []string{"WARNING SourceNotTrusted"}, true},
		"addresses degraded":   {func(_ *Builder, s *subscriber.Snapshot) { s.Addresses = subscriber.PartStatus{Reason: "503"} }, newTarget("shop", "10.0.0.1"), []string{"WARNING SourceDegraded"}, true},
		"a source not trusted": {func(*Builder, *subscriber.Snapshot) {}, ignoring, []string{"ERROR SourceNotTrusted", "WARNING SourceNotTrusted"}, true},
	} {
		b, s := newBuilder(c.target), syncedSnapshot("blue")
		c.alter(b, &s)
		b.Sources = func() []subscriber.Snapshot { return []subscriber.Snapshot{s} }
		r := build(t, b, "")
		if d := cmp.Diff(c.want, reasons(r.GetProblems())); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if err := b.Ready(); (err == nil) != c.ready {
			t.Errorf("%s: readiness %v", name, err)
		}
		if of := r.GetSources()[0]; of.GetTrusted() == strings.Contains(name, "not trusted") {
			t.Errorf("%s: %v", name, of)
		}
	}
	b := newBuilder()
	b.Leading, b.Holder = func() bool { return false }, nil
	if r := build(t, b, ""); !r.GetDryRun() || r.GetLeading() || r.GetLeader() != "" {
		t.Errorf("a dry run: %v", r)
	}
}

func TestReportFitsIntoAMessageAndPagesVisitEachService(t *testing.T) {
	const services = 3000
	b := newBuilder()
	long := strings.Repeat("é", 2000)
	problem := report.NewProblem(report.Error, "OutOfSync", strings.Repeat("n", 140), "%s", long)
	for i := range services {
		t := newTarget(fmt.Sprintf("s%04d", i))
		t.Problems, t.Since = slices.Repeat([]*report.Problem{problem}, 3), make([]time.Time, 3)
		b.Store.Put(t)
	}
	seen := 0
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		r, err := b.Build(&reportv1.GetReportRequest{PageToken: token}, now)
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(r); size > 4<<20 || len(r.GetProblems()) != maxProblems || r.GetProblemsOmitted() != 3*services-maxProblems {
			t.Fatalf("%d bytes, %d problems and %d more", size, len(r.GetProblems()), r.GetProblemsOmitted())
		}
		seen, token = seen+len(r.GetServices()), r.GetNextPageToken()
	}
	if seen != services {
		t.Errorf("%d Services on the pages", seen)
	}

	large := newTarget("large")
	for i := range 5000 {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		large.Input.Sources[0].Members = append(large.Input.Sources[0].Members, verdict.Member{Address: a, Name: long})
		large.Decision.Endpoints = append(
			large.Decision.Endpoints,
			verdict.Endpoint{Address: a, Reason: verdict.Reason{Detail: strings.Repeat("r", 200)}},
		)
	}
	b.Store.Put(large)
	for range 2 * maxWrites {
		large := &writerv1.WriteReport{Result: "ok", Message: long, Changes: slices.Repeat([]string{long[:maxText]}, 100)}
		b.Writes.Add(Write{large, now, "web", "large"})
	}
	r := build(t, b, "web/large")
	s := r.GetServices()[0]
	if size := proto.Size(r); size > 4<<20 || len(s.GetAddresses()) != maxAddresses || s.GetAddressesOmitted() != 4000 ||
		len(s.GetWrites()) != maxWrites || s.GetWrites()[0].GetChangesOmitted() != 50 {
		t.Errorf("%d bytes, %d addresses and %d more, %d writes", size, len(s.GetAddresses()), s.GetAddressesOmitted(), len(s.GetWrites()))
	}

	if r, err := b.Plan(nil, now); err != nil { // of the command plan, which prints it itself
		t.Error(err)
	} else if w, _ := r.(*writerv1.WriterReport); len(w.GetServices()) != services+1 || w.GetNextPageToken() != "" ||
		len(w.GetProblems()) != 3*services || len(w.GetServices()[0].GetAddresses()) != 5000 {
		t.Errorf("a plan has %d Services and %d problems", len(w.GetServices()), len(w.GetProblems()))
	}
}

func TestForeignTextStaysInItsLine(t *testing.T) {
	const evil = "a\nERROR b\x1b[31m\u202e\xff"
	target := unhealthyTarget()
	for i := range target.Decision.Endpoints {
		target.Decision.Endpoints[i].Reason.Detail = evil
		target.Input.Sources[0].Members[i].Name = evil
		target.Input.Probes[i] = probe.Status{Address: target.Decision.Endpoints[i].Address, Health: probe.Failing, Detail: evil}
	}
	target.Decision.Guards[0].Message = evil
	b := newBuilder(target)
	labeled := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{evil: evil}}}
	w := NewWrite("shop-1", "create", "rejected", nil, labeled, func(netip.Addr) string { return evil })
	w.Message = evil
	b.Writes.Add(Write{w, now, "web", "shop"})
	s := syncedSnapshot("blue")
	s.Membership = subscriber.PartStatus{Reason: evil}
	b.Sources = func() []subscriber.Snapshot { return []subscriber.Snapshot{s} }
	encoded, err := protojson.Marshal(build(t, b, "web/shop"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(encoded); strings.Contains(text, `\n`) || strings.Contains(text, `\u00`) || strings.Contains(text, "\u202e") {
		t.Error(text)
	}
}

// Each case is one address of a Service. Its source is synced and connected and lists the address as ready, unless the
// case changes that.
func TestExplainsAddresses(t *testing.T) {
	type world struct {
		target  *endpoints.Target
		source  *verdict.Source
		decided *verdict.Endpoint
	}
	guard := func(rule verdict.Rule) func(*world) {
		return func(w *world) {
			w.decided.Rule, w.decided.Verdict, w.decided.Held = rule, verdict.Hold, true
			w.target.Decision.Guards = []verdict.Guard{
				{Rule: verdict.RuleTrust, Source: "another", Message: "Not this."},
				{Rule: rule, Source: "blue", Held: 1, Message: "See here."},
			}
		}
	}
	listed := func(c verdict.Conditions, v verdict.Verdict, then func(*world)) func(*world) {
		return func(w *world) {
			w.decided.Verdict, w.decided.Conditions, w.target.Input.Current[0].Conditions = v, c, c
			then(w)
		}
	}
	unlisted := func(then func(*world)) func(*world) {
		return func(w *world) {
			w.decided.Listed, w.decided.Verdict, w.target.Input.Current = false, verdict.Hold, nil
			then(w)
		}
	}
	member := func(s verdict.State) func(*world) { return func(w *world) { w.source.Members[0].State = s } }
	for name, c := range map[string]struct {
		alter func(*world)
		want  string // level, reason and message; empty: no problem
	}{
		"all is well": {func(*world) {}, ""},
		"a guard":     {guard(verdict.RuleShrink), "WARNING ShrinkLimited: See here"},
		"a guard, and it is as reported": {func(w *world) {
			guard(verdict.RuleTrust)(w)
			w.decided.Held = false
		}, ""},
		"the allowlist":  {unlisted(guard(verdict.RuleAllowlist)), "WARNING AddressNotAllowed: See here"},
		"not written":    {func(w *world) { w.target.Input.Current = nil }, "ERROR OutOfSync: Its slices do not list it as wanted"},
		"another source": {func(w *world) { w.target.Input.Current[0].Source = "green" }, "ERROR OutOfSync: Its slices do not list it as wanted"},
		"the probe fails": {listed(out, verdict.Unready, func(w *world) {
			w.target.Input.Probes[0] = probe.Status{Address: w.decided.Address, Health: probe.Failing, Detail: "connection refused"}
		}), "WARNING ProbeFailing: Its probe fails: connection refused"},
		"pending":                      {unlisted(func(w *world) { w.target.Input.Probes[0] = probe.Status{Address: w.decided.Address} }), "NOTE ProbePending: Its probe has no result yet"},
		"not ready":                    {listed(out, verdict.Unready, member(verdict.NotReady)), "WARNING NodeNotReady: Node worker-1 is NOT_READY"},
		"draining":                     {listed(draining, verdict.Drain, member(verdict.Draining)), "NOTE NodeDraining: Node worker-1 is DRAINING"},
		"a state of a newer inventory": {listed(out, verdict.Hold, member(verdict.Unknown)), "WARNING StateUnknown: Node worker-1 has a state that this version does not know"},
		"the source reports no port of the Service": {unlisted(func(w *world) {
			w.decided.Rule, w.decided.Reason = verdict.RuleTrust, verdict.Reason{Source: "blue", Why: "no port is reported"}
		}), "WARNING SourceNotTrusted: Not added: source blue: no port is reported, probe: pending"},
		"its source stands by": {unlisted(func(w *world) {
			w.decided.Verdict, w.decided.Rule = verdict.StandBy, verdict.RuleFailover
		}), "NOTE StandBy: Source blue stands by: those before it have enough ready endpoints"},
		"no source lists it":           {unlisted(func(w *world) { w.source.Members, w.target.Decision.Endpoints = nil, nil }), "WARNING NotReported: No source of the Service reports it"},
		"a source that has not synced": {unlisted(func(w *world) { w.source.EverSynced, w.target.Decision.Endpoints = false, nil }), "WARNING SourceNotSynced: Source blue has not synced, so it may list the address"},
		"paused, and changed by hand":  {func(w *world) { w.target.State = endpoints.Paused }, ""},
		"rejected, and nothing is known": {func(w *world) {
			*w.target = endpoints.Target{Namespace: "web", Service: "shop", State: endpoints.Rejected}
		}, "WARNING NotReported: No source of the Service reports it"},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget("shop", "10.0.0.1")
			c.alter(&world{&target, &target.Input.Sources[0], &target.Decision.Endpoints[0]})
			got := ""
			if p := build(t, newBuilder(target), "web/shop/10.0.0.1").GetServices()[0].GetAddresses()[0].GetProblem(); p != nil {
				got = reasons([]*report.Problem{p})[0] + ": " + p.GetMessage()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Whatever is decided, an address has its rule and what is wanted, and a problem unless it is ready as wanted.
func TestAnExplanationFitsTheDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := verdict.Source{
			Name:               "default",
			EverSynced:         rapid.Bool().Draw(t, "ever synced"),
			MembershipSynced:   rapid.Bool().Draw(t, "synced"),
			MembershipSyncedAt: now,
			Allowlist:          verdict.Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}},
		}
		source.Connected = source.EverSynced && rapid.Bool().Draw(t, "connected")
		input := verdict.Input{
			LeadingSince: now.Add(-time.Hour),
			Limits: verdict.Limits{
				Probing:      rapid.Bool().Draw(t, "probing"),
				ListUnready:  rapid.Bool().Draw(t, "list unready"),
				ShrinkWindow: time.Minute,
			},
		}
		for i := range 5 {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if rapid.Bool().Draw(t, "reported") {
				source.Members = append(
					source.Members,
					verdict.Member{Address: address, State: verdict.State(rapid.IntRange(0, 3).Draw(t, "state"))},
				)
			}
			if rapid.Bool().Draw(t, "current") {
				conditions := rapid.SampledFrom([]verdict.Conditions{ready, draining, out}).Draw(t, "conditions")
				input.Current = append(input.Current, verdict.CurrentEndpoint{Address: address, Conditions: conditions})
			}
			input.Probes = append(
				input.Probes,
				probe.Status{Address: address, Health: probe.Health(rapid.IntRange(0, 2).Draw(t, "probe"))},
			)
		}
		source.Trusted, input.Sources = source.Members, []verdict.Source{source}
		_, decision := verdict.Decide(verdict.Memory{}, input, now)
		b := newBuilder(endpoints.Target{Namespace: "web", Service: "a", State: endpoints.Managed, Input: input, Decision: decision})
		r, err := b.Build(&reportv1.GetReportRequest{Filter: "web/a"}, now)
		if err != nil {
			t.Fatal(err)
		}
		outOfSync, s := 0, r.GetServices()[0]
		for _, a := range s.GetAddresses() {
			var decided verdict.Endpoint
			for _, d := range decision.Endpoints {
				if d.Address.String() == a.GetAddress() {
					decided = d
				}
			}
			if a.GetRule() != string(decided.Rule) || (a.GetWanted() != nil) != decided.Listed ||
				a.GetWanted().GetReady() != decided.Conditions.Ready {
				t.Errorf("%v does not fit %+v", a, decided)
			}
			if a.GetProblem() == nil && !a.GetWanted().GetReady() {
				t.Errorf("no problem of %v: %+v", a, decided)
			}
			if a.GetProblem().GetReason() == "OutOfSync" || !proto.Equal(a.GetNow(), a.GetWanted()) {
				outOfSync++
			}
			for _, in := range a.GetReports() {
				if in.GetState() == "DRAINING" && a.GetProblem() == nil && a.GetWanted().GetTerminating() {
					t.Errorf("a draining node is not explained: %v", a)
				}
			}
		}
		if outOfSync != int(s.GetOutOfSync()) {
			t.Errorf("%d addresses differ, out of sync are %d", outOfSync, s.GetOutOfSync())
		}
		for _, p := range append(s.GetProblems(), r.GetProblems()...) {
			if utf8.RuneCountInString(p.GetMessage()) > 100 || p.GetReason() == "" || p.GetObject() == "" {
				t.Errorf("%v", p)
			}
		}
	})
}

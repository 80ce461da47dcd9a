package report

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

const (
	note    = reportv1.Level_LEVEL_NOTE
	warning = reportv1.Level_LEVEL_WARNING
	failure = reportv1.Level_LEVEL_ERROR
)

var now = timestamppb.New(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC))

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

func problem(level reportv1.Level, reason, object, message, advice string) *reportv1.Problem {
	return &reportv1.Problem{Level: level, Reason: reason, Object: object, Message: message, Advice: advice, Age: seconds(90)}
}

// inventory is the report of an inventory without a filter.
func inventory() *inventoryv1.InventoryReport {
	omitted := problem(failure, "NoAddressOnLAN", "node standardnodes-late1", "its server has no address on LAN 2 (NICs there: 0)",
		"Attach a NIC to the LAN, or check IONOS_PRIVATE_LAN_ID.")
	unready := problem(warning, "NodeNotReady", "node standardnodes-t8z5b", "condition Ready is Unknown: its kubelet stopped reporting",
		"Check its kubelet.")
	excluded := problem(note, "ControlPlane", "node control-plane-1", "it has label node-role.kubernetes.io/control-plane", "")
	published := func(name, address string, state inventoryv1.NodeState, age int64) *inventoryv1.NodeReport {
		return &inventoryv1.NodeReport{Name: name, State: state, Addresses: []string{address}, Age: seconds(age), Zone: "AUTO"}
	}
	r := &inventoryv1.InventoryReport{
		Version: "v1.2.3", Instance: "slicefeed-inventory-7c975d28z4-f4tmw", SourceKind: "kubernetes", Time: now,
		Problems: []*reportv1.Problem{
			omitted, unready, problem(warning, "AddressesNotSynced", "addresses", "degraded: IONOS API: 503 Service Unavailable", "Wait."),
		},
		Totals: &inventoryv1.NodeTotals{
			Ready: new(uint32(3)), Draining: new(uint32(1)), NotReady: new(uint32(1)), Omitted: new(uint32(1)), Excluded: new(uint32(1)),
		},
		Status: &inventoryv1.SourceStatus{
			Membership: &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: seconds(3600)},
			Addresses: &inventoryv1.PartStatus{
				State: inventoryv1.SyncState_SYNC_STATE_DEGRADED, Age: seconds(60), Reason: "IONOS API: 503 Service Unavailable",
			},
			Observation: 7, ObservationAge: seconds(20),
		},
		Cloud: &inventoryv1.CloudReport{
			ListingAge: seconds(30), Servers: new(uint32(26)), RequestsLeft: new(uint32(58)), RequestsPerMinute: 120,
			TokenExpiresIn: seconds(90 * 24 * 3600),
		},
		Nodes: []*inventoryv1.NodeReport{
			{Name: "control-plane-1", Excluded: "ControlPlane", Problem: excluded},
			published("standardnodes-3xk7a", "10.0.1.11", inventoryv1.NodeState_NODE_STATE_READY, 10800),
			published("standardnodes-9pqw2", "10.0.1.12", inventoryv1.NodeState_NODE_STATE_READY, 10800),
			{Name: "standardnodes-late1", Problem: omitted},
			published("standardnodes-m4c6e", "10.0.1.13", inventoryv1.NodeState_NODE_STATE_DRAINING, 60),
			published("standardnodes-t8z5b", "10.0.1.14", inventoryv1.NodeState_NODE_STATE_NOT_READY, 90),
			published("standardnodes-zz1d0", "10.0.1.15", inventoryv1.NodeState_NODE_STATE_READY, 10800),
		},
		Subscribers: []*inventoryv1.SubscriberReport{
			{Name: "spiffe://example.org/slicefeed/writer", Age: seconds(3600), SentAge: seconds(2), Behind: new(uint64(0))},
		},
	}
	r.Nodes[5].Problem = unready
	return r
}

// node is the report of an inventory about one node.
func node() *inventoryv1.InventoryReport {
	r := inventory()
	r.Filter, r.Nodes, r.Problems = "standardnodes-late1", r.GetNodes()[3:4], r.GetProblems()[:1]
	n := r.GetNodes()[0]
	n.Uid, n.StateReason, n.ProviderId = "9f1c7f5e-2d0b-4d57-8f0e-3b6a1f0c2d11", "condition Ready is True", "ionos://27c2d098-6263-42d0-bc8a-3586e232f1b0"
	n.Match, n.ServerId = "by its provider ID", "27c2d098-6263-42d0-bc8a-3586e232f1b0"
	n.Candidates = []*inventoryv1.CandidateAddress{
		{Address: "203.0.113.19", From: "Node, InternalIP", Chosen: new(false), Reason: "addresses come from the cloud"},
		{Address: "192.168.7.2", From: "NIC nic-two, LAN 3", Chosen: new(false), Reason: "its LAN is not LAN 2"},
	}
	n.LastChange, n.LastChangeAge = "no longer published", seconds(8)
	return r
}

// writer is the report of a writer without a filter.
func writer() *writerv1.WriterReport {
	of := func(name string, state writerv1.TargetState, ready, draining, notReady, outOfSync, held uint32) *writerv1.ServiceReport {
		return &writerv1.ServiceReport{
			Namespace: "web",
			Name:      name,
			State:     state,
			Ready:     &ready,
			Draining:  &draining,
			NotReady:  &notReady,
			OutOfSync: &outOfSync,
			Held:      &held,
		}
	}
	const managed = writerv1.TargetState_TARGET_STATE_MANAGED
	r := &writerv1.WriterReport{
		Version:  "v1.2.3",
		Instance: "slicefeed-writer-6d5c9b7f4-x2v8k",
		Time:     now,
		Leading:  new(true),
		Leader:   "slicefeed-writer-6d5c9b7f4-x2v8k",
		Problems: []*reportv1.Problem{
			problem(
				failure,
				"ServiceHasSelector",
				"Service web/cart",
				"it has a selector, so Kubernetes writes its slices",
				"Remove spec.selector.",
			),
			problem(failure, "NoReadyEndpoints", "Service web/search", "no endpoint is ready",
				"See the addresses of the Service in the report: each says why it is not ready."),
			problem(warning, "Paused", "Service web/mail", "paused by annotation: nothing is written; 4 addresses would change",
				"Remove annotation slicefeed.dev/paused to resume."),
			problem(
				warning,
				"ShrinkLimited",
				"Service web/shop, source default",
				"1 ready endpoint stays: more left than SHRINK_WINDOW allows",
				"At most half leave per SHRINK_WINDOW. If this is unexpected, check its inventory.",
			),
			problem(note, "TrafficDistribution", "Service web/api", "trafficDistribution PreferClose has no effect in kube-proxy", ""),
		},
		Totals: &writerv1.ServiceTotals{
			Services: new(uint32(5)), Healthy: new(uint32(1)), Ready: new(uint32(5)), Draining: new(uint32(0)), NotReady: new(uint32(1)),
			OutOfSync: new(uint32(4)), Held: new(uint32(1)),
		},
		Sources: []*writerv1.SourceState{
			{
				Name: "default", Connected: new(true), Trusted: new(true), Nodes: new(uint32(5)), MembershipAge: seconds(2),
				Observation: 7, ObservationAge: seconds(24),
			},
			{
				Name: "green", Connected: new(false), Trusted: new(false), Nodes: new(uint32(0)),
				Problem: problem(failure, "SourceDisconnected", "source green", "connection refused", ""),
			},
		},
		Services: []*writerv1.ServiceReport{
			of("api", managed, 1, 0, 0, 0, 0),
			of("cart", writerv1.TargetState_TARGET_STATE_REJECTED, 0, 0, 0, 0, 0),
			of(
				"mail",
				writerv1.TargetState_TARGET_STATE_PAUSED,
				0,
				0,
				0,
				4,
				0,
			),
			of("search", managed, 0, 0, 0, 0, 0),
			of("shop", managed, 4, 0, 1, 0, 1),
		},
	}
	for n, of := range []int{1, 3, 2, 4, 0} {
		r.Services[of].Problem = r.GetProblems()[n]
	}
	return r
}

// service is the report of a writer about one Service.
func service() *writerv1.WriterReport {
	r := writer()
	r.Filter, r.Services, r.Problems, r.Sources = "web/shop", r.GetServices()[4:], r.GetProblems()[3:4], r.GetSources()[:1]
	s := r.GetServices()[0]
	s.Problems, s.Sources, s.NextDecisionIn = r.GetProblems(), []string{"default"}, seconds(570)
	s.Ports = []*writerv1.Port{{Name: "http", Protocol: "TCP", Number: 30080, ServicePort: 80}}
	ready := &writerv1.Backend{Ready: true, Serving: true}
	address := func(text, node, state, rule, probe string, age int64) *writerv1.AddressReport {
		return &writerv1.AddressReport{
			Address: text, Rule: rule, Reason: "source default: " + state + ", probe: " + probe, Age: seconds(age),
			Reports: []*writerv1.AddressInSource{{Source: "default", Node: node, State: state, Age: seconds(age)}},
			Probe:   &writerv1.ProbeReport{Result: probe, Age: seconds(age)}, Now: ready, Wanted: ready,
		}
	}
	s.Addresses = []*writerv1.AddressReport{
		address("10.0.1.11", "standardnodes-3xk7a", "READY", "table", "passing", 10800),
		address("10.0.1.12", "standardnodes-9pqw2", "READY", "table", "failing", 9),
		address("10.0.1.13", "standardnodes-m4c6e", "DRAINING", "shrink", "passing", 60),
		address("10.0.1.14", "standardnodes-t8z5b", "NOT_READY", "table", "passing", 90),
	}
	failing, held := s.GetAddresses()[1], s.GetAddresses()[2]
	failing.Probe.Detail, failing.Probe.PassedAge = "connection refused", seconds(11)
	failing.Wanted = &writerv1.Backend{}
	failing.Problem = problem(failure, "OutOfSync", "address 10.0.1.12 of Service web/shop", "its slices do not list it as wanted", "")
	held.Problem = problem(warning, "ShrinkLimited", "address 10.0.1.13 of Service web/shop", "guard shrink: 1 ready endpoint stays", "")
	s.Writes = []*writerv1.WriteReport{
		{Age: seconds(10), Slice: "shop-slicefeed", Verb: "update", Result: "rejected", Message: "exceeded quota", Attempts: 3},
		{
			Age:            seconds(60),
			Slice:          "shop-slicefeed",
			Verb:           "update",
			Result:         "ok",
			Attempts:       1,
			ChangesOmitted: 2,
			Changes: []string{
				"~ endpoint 10.0.1.15 not ready -> ready",
				"- endpoint 10.0.1.9 ready",
				"+ label app.kubernetes.io/part-of shop",
			},
		},
	}
	return r
}

// address is the report of a writer about one address.
func address() *writerv1.WriterReport {
	r := service()
	r.Filter = "web/shop/10.0.1.12"
	r.Services[0].Addresses, r.Services[0].Writes = r.GetServices()[0].GetAddresses()[1:2], nil
	return r
}

func TestPrintsReports(t *testing.T) {
	standby := writer()
	standby.Problems, standby.Leading, standby.Leader = standby.GetProblems()[4:], new(false), "slicefeed-writer-2"
	for name, r := range map[string]Report{
		"inventory": inventory(), "node": node(), "writer": writer(), "service": service(), "address": address(), "standby": standby,
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			if err := Write(&text, r); err != nil {
				t.Fatal(err)
			}
			check(t, name+".txt", text.Bytes())
			if name != "address" && name != "standby" {
				check(t, name+".html", get(t, r, "/statusz").Body.Bytes())
			}
		})
	}
}

// check compares what is printed with a file, or writes the file.
func check(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *testkit.Update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if diff := cmp.Diff(string(want), string(got)); diff != "" || err != nil {
		t.Errorf("%s: error %v (-want +got):\n%s", name, err, diff)
	}
}

// hostile is text that must not reach a page or a terminal as it is.
const hostile = "\x1b[2J\u202e<b>"

// fill sets each field of a message to a value that no other field has, and returns how these values are printed.
func fill(m protoreflect.Message, path string, texts map[string]string, number *int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := path + "." + string(field.Name())
		*number++
		var value protoreflect.Value
		switch field.Kind() {
		case protoreflect.StringKind:
			value, texts[name] = protoreflect.ValueOfString(name+hostile), name
		case protoreflect.Uint32Kind:
			value, texts[name] = protoreflect.ValueOfUint32(uint32(1000+*number)), fmt.Sprint(1000+*number)
		case protoreflect.Uint64Kind:
			value, texts[name] = protoreflect.ValueOfUint64(uint64(1000+*number)), fmt.Sprint(1000+*number)
		case protoreflect.BoolKind, protoreflect.EnumKind:
			continue // their words are in the examples
		default:
			var message protoreflect.Message
			if field.IsList() {
				message = m.NewField(field).List().NewElement().Message()
			} else {
				message = m.NewField(field).Message()
			}
			switch message.Descriptor().FullName() {
			case "google.protobuf.Duration":
				message = durationpb.New(time.Duration(300+*number) * 24 * time.Hour).ProtoReflect()
				texts[name] = fmt.Sprintf("%dd", 300+*number)
			case "google.protobuf.Timestamp":
				message = now.ProtoReflect()
				texts[name] = "2026-03-01 03:00:00 UTC"
			default:
				fill(message, name, texts, number)
			}
			value = protoreflect.ValueOfMessage(message)
		}
		if field.IsList() {
			m.Mutable(field).List().Append(value)
		} else {
			m.Set(field, value)
		}
	}
}

// hidden are fields that a page does not need: it has the same elsewhere, or shows it in other words.
var hidden = regexp.MustCompile(
	`cloud\.servers|reports\.state|services\.totals\.excluded|\.(now|wanted)\.|services\.problems\.|\w\.\w+\.problem\.(reason|object|advice|age)|page_token`,
)

func TestShowsEachField(t *testing.T) {
	for _, r := range []Report{&inventoryv1.InventoryReport{}, &writerv1.WriterReport{}} {
		texts, number := map[string]string{}, 0
		fill(r.ProtoReflect(), string(r.ProtoReflect().Descriptor().Name()), texts, &number)
		terminal, browser := "", ""
		for range 2 { // in full, and in one line each
			var out bytes.Buffer
			if err := Write(&out, r); err != nil {
				t.Fatal(err)
			}
			terminal, browser = terminal+out.String(), browser+get(t, r, "/statusz").Body.String()
			switch r := r.(type) {
			case *inventoryv1.InventoryReport:
				r.Nodes[0].StateReason, r.Nodes[0].Match = "", ""
			case *writerv1.WriterReport:
				r.Services[0].Sources, r.Services[0].Addresses, r.Services[0].PlanNotes = nil, nil, nil
			}
		}
		for form, got := range map[string]string{"terminal": terminal, "browser": browser} {
			for field, text := range texts {
				if !strings.Contains(got, text) && !hidden.MatchString(field) {
					t.Errorf("%s: %s is not shown, as %s", form, field, text)
				}
			}
			if strings.ContainsAny(got, "\x1b\u202e") || form == "browser" && strings.Contains(got, "<b>") {
				t.Errorf("%s: text from outside is shown as it is", form)
			}
		}
	}
}

// get returns how the handler answers a request.
func get(t *testing.T, r Report, target string) *httptest.ResponseRecorder {
	t.Helper()
	build := func(_ context.Context, request *reportv1.GetReportRequest) (Report, error) {
		if request.GetFilter() == "no//filter" {
			return nil, status.Error(codes.InvalidArgument, "want NAMESPACE/SERVICE")
		}
		return r, nil
	}
	w := httptest.NewRecorder()
	Handler(build, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", target, nil))
	return w
}

func TestServesReports(t *testing.T) {
	for target, want := range map[string]struct {
		code        int
		contentType string
		text        string
	}{
		"/statusz":                   {200, "text/html; charset=utf-8", "<title>ERROR · slicefeed-inventory</title>"},
		"/statusz?format=text":       {200, "text/plain; charset=utf-8", "ERROR  3 problems.\n"},
		"/statusz?format=json":       {200, "application/json", `"behind": "0"`},
		"/statusz?filter=no//filter": {400, "text/plain; charset=utf-8", "want NAMESPACE/SERVICE"},
	} {
		w := get(t, inventory(), target)
		if w.Code != want.code || w.Header().Get("Content-Type") != want.contentType || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: %d, %s:\n%s", target, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if strings.Contains(w.Body.String(), `"filter":`) {
			t.Errorf("%s has what is not set:\n%s", target, w.Body)
		}
	}
}

func TestAdviceIsDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| reason | what to do |\n|---|---|\n")
	for _, reason := range slices.Sorted(maps.Keys(advice)) {
		fmt.Fprintf(&table, "| %s | %s |\n", reason, advice[reason])
	}
	if err := testkit.CheckSection(
		"../../../docs/operate/troubleshooting.md",
		"advice",
		func(string) string { return table.String() },
	); err != nil {
		t.Error(err)
	}
}

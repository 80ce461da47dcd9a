package report

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
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
)

var update = flag.Bool("update", false, "write the examples into testdata")

var now = timestamppb.New(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC))

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

func problem(level reportv1.Level, reason, object, message, advice string) *reportv1.Problem {
	return &reportv1.Problem{Level: level, Reason: reason, Object: object, Message: message, Advice: advice, Age: seconds(90)}
}

// inventory is the report of an inventory without a filter.
func inventory() *inventoryv1.InventoryReport {
	omitted := func(name string) *reportv1.Problem {
		return problem(reportv1.Level_LEVEL_ERROR, "NoAddressOnLAN", "node "+name, "it has no address on LAN 2", "Attach a NIC to the LAN.")
	}
	synced := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: seconds(3600)}
	return &inventoryv1.InventoryReport{
		Version: "v1.2.3", Instance: "inventory-1", SourceKind: "kubernetes", Time: now,
		Problems: []*reportv1.Problem{
			omitted("worker-8"), omitted("worker-9"),
			problem(reportv1.Level_LEVEL_WARNING, "NodeNotReady", "node worker-3", "its kubelet does not report", "Look at its kubelet."),
		},
		Totals: &inventoryv1.NodeTotals{
			Ready:    new(uint32(1)),
			Draining: new(uint32(1)),
			NotReady: new(uint32(1)),
			Omitted:  new(uint32(2)),
			Excluded: new(uint32(1)),
		},
		Status: &inventoryv1.SourceStatus{
			Membership:     synced,
			Observation:    7,
			ObservationAge: seconds(20),
			Addresses: &inventoryv1.PartStatus{
				State:  inventoryv1.SyncState_SYNC_STATE_DEGRADED,
				Age:    seconds(60),
				Reason: "IONOS API: 503",
			},
		},
		Cloud: &inventoryv1.CloudReport{
			ListingAge: seconds(30), Servers: new(uint32(4)), RequestsLeft: new(uint32(58)), RequestsPerMinute: 120,
			TokenExpiresIn: seconds(90 * 24 * 3600),
		},
		Nodes: []*inventoryv1.NodeReport{
			{Name: "master", Excluded: "ControlPlane"},
			{
				Name:      "worker-1",
				State:     inventoryv1.NodeState_NODE_STATE_READY,
				Addresses: []string{"10.0.1.11"},
				Age:       seconds(10800),
				Zone:      "de-1",
			},
			{
				Name:      "worker-2",
				State:     inventoryv1.NodeState_NODE_STATE_DRAINING,
				Addresses: []string{"10.0.1.12"},
				Age:       seconds(60),
				Zone:      "de-1",
			},
			{
				Name:      "worker-3",
				State:     inventoryv1.NodeState_NODE_STATE_NOT_READY,
				Addresses: []string{"10.0.1.13", "2001:db8::13"},
				Age: seconds(
					90,
				),
				Problem: problem(reportv1.Level_LEVEL_WARNING, "NodeNotReady", "node worker-3", "its kubelet does not report", ""),
			},
			{Name: "worker-8", Problem: omitted("worker-8")},
			{Name: "worker-9", Problem: omitted("worker-9")},
		},
		Subscribers: []*inventoryv1.SubscriberReport{
			{Name: "spiffe://example.org/writer", Age: seconds(3600), SentAge: seconds(2), Behind: new(uint64(0))},
		},
	}
}

// node is the report of an inventory about one node.
func node() *inventoryv1.InventoryReport {
	r := inventory()
	r.Filter, r.Nodes, r.Problems = "worker-9", r.GetNodes()[5:], r.GetProblems()[1:2]
	n := r.GetNodes()[0]
	n.Uid, n.StateReason, n.ProviderId = "9f1c", "condition Ready is True: ready", "ionos://22222222"
	n.SystemUuid, n.Match, n.ServerId = "22222222", "its provider ID is that of server 22222222", "22222222"
	n.Candidates = []*inventoryv1.CandidateAddress{
		{Address: "192.168.7.2", From: "NIC nic-two, LAN 2", Chosen: new(false), Reason: "outside 10.0.1.0/24"},
		{Address: "10.0.1.19", From: "Node", Chosen: new(true), Reason: "the only one inside 10.0.1.0/24"},
	}
	n.LastChange, n.LastChangeAge = "address 10.0.1.19 removed", seconds(8)
	return r
}

// writer is the report of a writer without a filter.
func writer() *writerv1.WriterReport {
	return &writerv1.WriterReport{
		Version: "v1.2.3", Instance: "writer-1", Time: now, Leading: new(true), Leader: "writer-1",
		Problems: []*reportv1.Problem{
			problem(
				reportv1.Level_LEVEL_ERROR,
				"OutOfSync",
				"Service web/shop",
				"1 address is not listed as wanted",
				"See the last writes.",
			),
			problem(reportv1.Level_LEVEL_NOTE, "SliceForeign", "Service web/mail", "another controller has a slice of it", ""),
		},
		Totals: &writerv1.ServiceTotals{
			Services:  new(uint32(2)),
			Healthy:   new(uint32(1)),
			Ready:     new(uint32(3)),
			Draining:  new(uint32(1)),
			NotReady:  new(uint32(1)),
			OutOfSync: new(uint32(1)),
			Held:      new(uint32(0)),
		},
		Sources: []*writerv1.SourceState{
			{
				Name: "blue", Connected: new(true), Trusted: new(true), Nodes: new(uint32(4)), MembershipAge: seconds(5),
				Observation: 7, ObservationAge: seconds(2),
			},
			{
				Name: "green", Connected: new(false), Trusted: new(false), Nodes: new(uint32(0)),
				Problem: problem(reportv1.Level_LEVEL_ERROR, "SourceDisconnected", "source green", "connection refused", ""),
			},
		},
		Services: []*writerv1.ServiceReport{
			{Namespace: "web", Name: "mail", State: writerv1.TargetState_TARGET_STATE_MANAGED, Ready: new(uint32(2))},
			{
				Namespace: "web", Name: "shop", State: writerv1.TargetState_TARGET_STATE_MANAGED, Ready: new(uint32(1)),
				Draining: new(uint32(1)), NotReady: new(uint32(1)), OutOfSync: new(uint32(1)), Held: new(uint32(0)),
				Problem: problem(reportv1.Level_LEVEL_ERROR, "OutOfSync", "Service web/shop", "1 address is not listed as wanted", ""),
			},
		},
	}
}

// service is the report of a writer about one Service.
func service() *writerv1.WriterReport {
	r := writer()
	r.Filter, r.Services, r.Problems = "web/shop", r.GetServices()[1:], r.GetProblems()[:1]
	s := r.GetServices()[0]
	s.Problems, s.Sources, s.NextDecisionIn = r.GetProblems(), []string{"blue", "green"}, seconds(25)
	s.Ports = []*writerv1.Port{{Name: "http", Protocol: "TCP", Number: 30080}}
	ready, draining := &writerv1.Backend{Ready: true, Serving: true}, &writerv1.Backend{Serving: true, Terminating: true}
	s.Addresses = []*writerv1.AddressReport{
		{
			Address: "10.0.0.2",
			Rule:    "table",
			Reason:  "source blue: ready, probe: failing (connection refused)",
			Age:     seconds(9),
			Problem: problem(
				reportv1.Level_LEVEL_WARNING,
				"ProbeFailing",
				"address 10.0.0.2",
				"connection refused",
				"Look at the backend.",
			),
			Reports: []*writerv1.AddressInSource{
				{Source: "blue", Node: "worker-2", State: "READY", Age: seconds(3600)}, {Source: "green"},
			},
			Probe:  &writerv1.ProbeReport{Result: "failing", Age: seconds(9), Detail: "connection refused", PassedAge: seconds(11)},
			Now:    ready,
			Wanted: &writerv1.Backend{},
		},
		{
			Address: "10.0.0.3",
			Rule:    "table",
			Reason:  "source blue: draining, probe: passing",
			Age:     seconds(60),
			Reports: []*writerv1.AddressInSource{
				{Source: "blue", Node: "worker-3", State: "DRAINING", Age: seconds(60)},
				{Source: "green"},
			},
			Probe:  &writerv1.ProbeReport{Result: "passing", Age: seconds(3600)},
			Now:    draining,
			Wanted: draining,
		},
	}
	s.Writes = []*writerv1.WriteReport{
		{Age: seconds(10), Slice: "shop-1", Verb: "update", Result: "rejected", Message: "exceeded quota", Attempts: 3},
		{
			Age: seconds(60), Slice: "shop-1", Verb: "update", Result: "ok", Attempts: 1,
			Changes: []string{"~ endpoint 10.0.0.3: ready -> draining", "- endpoint 10.0.0.9 ready"}, ChangesOmitted: 2,
		},
	}
	return r
}

func TestPrintsReportsForTerminals(t *testing.T) {
	healthy := writer()
	healthy.Problems, healthy.Leading, healthy.Leader = healthy.GetProblems()[1:], new(false), "writer-2"
	for name, r := range map[string]Report{
		"inventory": inventory(), "node": node(), "writer": writer(), "service": service(), "standby": healthy,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Write(&out, r); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if diff := cmp.Diff(string(want), out.String()); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
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
	`cloud\.servers|reports\.state|services\.status\.ports|services\.totals\.excluded|\.(now|wanted)\.|services\.problems\.|\w\.\w+\.problem\.(reason|object|advice|age)|page_token`,
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
				r.Services[0].Sources, r.Services[0].Addresses = nil, nil
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
	}
}

package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
)

func TestParseSubject(t *testing.T) {
	for text, want := range map[string]string{
		"worker-4": "node worker-4", "10.0.1.14": "address 10.0.1.14", "fd00::1": "address fd00::1", "::ffff:10.0.1.14": "address 10.0.1.14",
		"web/shop": "service web/shop", "web/shop.serviceimport": "service web/shop.serviceimport", "web/shop.example": "error", "web/": "error", "/shop": "error", "Worker_4": "error", "": "error", "fe80::1%eth0": "error",
	} {
		s, err := parseSubject(text)
		got := "error"
		switch {
		case err != nil:
		case s.service != nil:
			got = "service " + s.service.GetNamespace() + "/" + s.service.GetService()
		case s.address.IsValid():
			got = "address " + s.address.String()
		default:
			got = "node " + s.node
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// fakeInventory publishes worker-1 with two addresses and omits worker-2. It has one node a page.
type fakeInventory struct {
	inventoryv1.InventoryOperatorServiceClient
}

func (fakeInventory) ListNodeDetails(
	_ context.Context,
	req *inventoryv1.ListNodeDetailsRequest,
	_ ...grpc.CallOption,
) (*inventoryv1.ListNodeDetailsResponse, error) {
	if req.GetPageToken() == "" {
		return &inventoryv1.ListNodeDetailsResponse{NextPageToken: "2", Nodes: []*inventoryv1.NodeDetails{
			{
				Name: "worker-1",
				Result: &inventoryv1.NodeDetails_Published{
					Published: &inventoryv1.Node{Name: "worker-1", Addresses: []string{"10.0.1.11", "fd00::11"}},
				},
			},
		}}, nil
	}
	return &inventoryv1.ListNodeDetailsResponse{Nodes: []*inventoryv1.NodeDetails{{
		Name: "worker-2", Result: &inventoryv1.NodeDetails_Omitted{Omitted: &inventoryv1.Omission{Advice: "Attach\x1b[2J a NIC."}},
	}}}, nil
}

func (fakeInventory) ExplainNodes(
	_ context.Context,
	req *inventoryv1.ExplainNodesRequest,
	_ ...grpc.CallOption,
) (*inventoryv1.ExplainNodesResponse, error) {
	response := &inventoryv1.ExplainNodesResponse{}
	for _, name := range req.GetNames() {
		response.Explanations = append(
			response.Explanations,
			&inventoryv1.NodeExplanation{Name: name, Conclusion: "It is " + name + ".", Steps: []*inventoryv1.ExplanationStep{
				{Question: "Is it there?", Result: inventoryv1.StepResult_STEP_RESULT_PASSED, Detail: "yes"},
			}},
		)
	}
	return response, nil
}

// fakeWriter has two targets: web/shop lists 10.0.1.11 and 10.0.1.99, and web/other nothing.
type fakeWriter struct {
	writerv1.WriterOperatorServiceClient

	targets int // further ones
}

func (w fakeWriter) ListTargetDetails(
	_ context.Context,
	req *writerv1.ListTargetDetailsRequest,
	_ ...grpc.CallOption,
) (*writerv1.ListTargetDetailsResponse, error) {
	response := &writerv1.ListTargetDetailsResponse{}
	for _, service := range append([]string{"other", "shop"}, make([]string, w.targets)...) {
		if services := req.GetServices(); len(services) == 0 || services[0].GetService() == service {
			response.Targets = append(response.Targets, &writerv1.TargetDetails{Target: &writerv1.ListedTarget{
				Namespace: "web", Service: service, Target: &writerv1.Target{State: writerv1.TargetState_TARGET_STATE_MANAGED}, Ready: 1,
			}})
		}
	}
	return response, nil
}

func (fakeWriter) ExplainEndpoint(
	_ context.Context,
	req *writerv1.ExplainEndpointRequest,
	_ ...grpc.CallOption,
) (*writerv1.ExplainEndpointResponse, error) {
	if req.GetService() == "" {
		return nil, status.Error(codes.NotFound, "gone")
	}
	e := &writerv1.ExplainEndpointResponse{
		Namespace:  req.GetNamespace(),
		Service:    req.GetService(),
		Address:    req.GetAddress(),
		Conclusion: "No source lists it.",
		Sources: []*writerv1.SourceReport{
			{Source: "default", Listed: req.GetService() == "shop" && req.GetAddress() == "10.0.1.11", Member: "worker-1"},
		},
	}
	if req.GetService() == "shop" && strings.HasPrefix(req.GetAddress(), "10.") {
		e.Current = &writerv1.Backend{Address: req.GetAddress(), Ready: true, Serving: true}
	}
	if e.GetSources()[0].GetListed() {
		e.Desired, e.Rule, e.Reason = &writerv1.Backend{Ready: true, Serving: true}, "shrink", "worker-1 draining, probe passing"
		e.Steps = []*writerv1.ExplanationStep{{Stage: "source", Detail: "default reports draining"}}
	}
	return e, nil
}

func listed(context.Context, *writerv1.ServiceSelector) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.0.1.99"), netip.MustParseAddr("10.0.1.11")}, nil
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name, subject string
		reader        reader
		want          []string // nodes, explanations, targets and endpoints
		problem       string
	}{
		{"a node in the Service that lists it", "worker-1", reader{fakeInventory{}, fakeWriter{}, listed}, []string{"node worker-1", "explains worker-1", "target shop", "endpoint shop 10.0.1.11"}, ""},
		{"an omitted node", "worker-2", reader{fakeInventory{}, fakeWriter{}, listed}, []string{"node worker-2", "explains worker-2"}, "the node is not published"},
		{"an unknown node", "worker-3", reader{fakeInventory{}, fakeWriter{}, listed}, []string{"explains worker-3"}, "the source has no such node"},
		{"an address of a node", "10.0.1.11", reader{fakeInventory{}, fakeWriter{}, listed}, []string{"node worker-1", "explains worker-1", "target shop", "endpoint shop 10.0.1.11"}, ""},
		{"an address that only a slice lists", "10.0.1.99", reader{fakeInventory{}, fakeWriter{}, listed}, []string{"target shop", "endpoint shop 10.0.1.99"}, ""},
		{"an unknown address", "fd00::99", reader{fakeInventory{}, fakeWriter{}, listed}, nil, "no node and no Service has the address"},
		{
			"a Service with all that its source or its slices have", "web/shop",
			reader{fakeInventory{}, fakeWriter{}, listed},
			[]string{"node worker-1", "node worker-2", "target shop", "endpoint shop 10.0.1.11", "endpoint shop 10.0.1.99", "endpoint shop fd00::11"},
			"",
		},
		{"a node, without the writer", "worker-1", reader{inventory: fakeInventory{}}, []string{"node worker-1", "explains worker-1"}, ""},
		{"a Service, without the inventory", "web/shop", reader{writer: fakeWriter{}, listed: listed}, []string{"target shop", "endpoint shop 10.0.1.11", "endpoint shop 10.0.1.99"}, ""},
		{"a target that goes meanwhile", "worker-1", reader{fakeInventory{}, fakeWriter{targets: 1}, listed}, []string{"node worker-1", "explains worker-1", "target shop", "endpoint shop 10.0.1.11"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parseSubject(c.subject)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.reader.explain(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range r.nodes {
				got = append(got, "node "+n.GetName())
			}
			for _, e := range r.steps {
				got = append(got, "explains "+e.GetName())
			}
			for _, target := range r.targets {
				got = append(got, "target "+target.GetTarget().GetService())
			}
			for _, e := range r.endpoints {
				got = append(got, "endpoint "+e.GetService()+" "+e.GetAddress())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			problem := ""
			if err := r.check(s); err != nil {
				problem = err.Error()
			}
			if problem != c.problem {
				t.Errorf("problem %q, want %q", problem, c.problem)
			}
		})
	}
}

// exportingInventory exports shop/api, which has the endpoint api-1, and shop/web, which has worker-1 and worker-2 of
// fakeInventory after its first observation.
type exportingInventory struct {
	fakeInventory

	requests *[]string
}

func (f exportingInventory) ListNodeDetails(
	ctx context.Context,
	req *inventoryv1.ListNodeDetailsRequest,
	_ ...grpc.CallOption,
) (*inventoryv1.ListNodeDetailsResponse, error) {
	*f.requests = append(*f.requests, "list "+req.GetService())
	switch {
	case req.GetService() == "":
		return nil, status.Error(codes.InvalidArgument, "this inventory exports Services")
	case req.GetService() == "shop/api":
		return &inventoryv1.ListNodeDetailsResponse{Cursor: &inventoryv1.Cursor{Epoch: "e"}, Nodes: []*inventoryv1.NodeDetails{
			{
				Name:   "api-1",
				Result: &inventoryv1.NodeDetails_Published{Published: &inventoryv1.Node{Name: "api-1", Addresses: []string{"10.0.1.50"}}},
			},
		}}, nil
	case !slices.Contains((*f.requests)[:len(*f.requests)-1], "list shop/web"):
		return &inventoryv1.ListNodeDetailsResponse{}, nil // no observation yet
	}
	page, err := f.fakeInventory.ListNodeDetails(ctx, req)
	page.Cursor = &inventoryv1.Cursor{Epoch: "e"}
	return page, err
}

func (f exportingInventory) ExplainNodes(
	ctx context.Context,
	req *inventoryv1.ExplainNodesRequest,
	_ ...grpc.CallOption,
) (*inventoryv1.ExplainNodesResponse, error) {
	*f.requests = append(*f.requests, "explain "+strings.Join(req.GetNames(), " ")+" of "+req.GetService())
	return f.fakeInventory.ExplainNodes(ctx, req)
}

// exportUser is fakeWriter, whose target shop uses shop/web of the source blue, and whose target other uses shop/api.
type exportUser struct{ fakeWriter }

func (w exportUser) ListTargetDetails(
	ctx context.Context,
	req *writerv1.ListTargetDetailsRequest,
	_ ...grpc.CallOption,
) (*writerv1.ListTargetDetailsResponse, error) {
	response, err := w.fakeWriter.ListTargetDetails(ctx, req)
	for _, target := range response.GetTargets() {
		target.Sources = []string{"blue/shop/" + map[string]string{"shop": "web", "other": "api"}[target.GetTarget().GetService()], "green"}
	}
	return response, err
}

func TestExplainReadsTheExportedServicesThatTargetsUse(t *testing.T) {
	for text, want := range map[string][]string{
		"web/shop":  {"list ", "list shop/web", "list shop/web", "list shop/web"},
		"worker-1":  {"list ", "list shop/api", "list shop/web", "list shop/web", "list shop/web", "explain worker-1 of shop/web"},
		"10.0.1.50": {"list ", "list shop/api", "list shop/web", "list shop/web", "list shop/web", "explain api-1 of shop/api"},
		"worker-9":  {"list ", "list shop/api", "list shop/web", "list shop/web", "list shop/web"},
	} {
		var requests []string
		s, err := parseSubject(text)
		if err != nil {
			t.Fatal(err)
		}
		r := reader{exportingInventory{requests: &requests}, exportUser{}, listed}
		found, err := r.explain(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, requests); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		problem := found.check(s)
		if unknown := problem != nil && strings.Contains(problem.Error(), "no such node"); unknown != (text == "worker-9") {
			t.Errorf("%s: %v", text, problem)
		}
	}
	r := reader{inventory: exportingInventory{requests: new([]string)}}
	if _, err := r.explain(
		t.Context(),
		subject{node: "worker-1"},
	); err == nil ||
		!strings.Contains(err.Error(), "give the context of the writer too") {
		t.Errorf("without the writer: %v", err)
	}
}

func TestExplainRejectsAnUnknownServiceAndTooManyEndpoints(t *testing.T) {
	r := reader{fakeInventory{}, fakeWriter{}, listed}
	if _, err := r.explain(
		t.Context(),
		subject{service: &writerv1.ServiceSelector{Namespace: "web", Service: "absent"}},
	); err == nil ||
		!strings.Contains(err.Error(), "web/absent is not a target") {
		t.Errorf("unknown Service: %v", err)
	}
	r.writer = fakeWriter{targets: maxExplained}
	if _, err := r.explain(t.Context(), subject{node: "worker-1"}); !errors.Is(err, errTooMany) {
		t.Errorf("too many: %v", err)
	}
}

func TestReportAsTable(t *testing.T) {
	r := reader{fakeInventory{}, fakeWriter{}, listed}
	for subjectText, want := range map[string]string{
		"web/shop": `Service web/shop: managed, 1 ready, 0 draining, 0 not ready
ADDRESS    NODE      LISTED  DECISION  REASON
10.0.1.11  worker-1  ready   ready     worker-1 draining, probe passing (guard shrink)
10.0.1.99  -         ready   no        No source lists it.
fd00::11   -         no      no        No source lists it.

Node worker-2 is omitted: Attach [2J a NIC.
`,
		"10.0.1.11": `Node worker-1
  ok  Is it there? yes
It is worker-1.

Service web/shop: managed, 1 ready, 0 draining, 0 not ready
  10.0.1.11
    source    default reports draining
    No source lists it.

`,
	} {
		s, err := parseSubject(subjectText)
		if err != nil {
			t.Fatal(err)
		}
		found, err := r.explain(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := found.writeTable(&b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", subjectText, diff)
		}
	}
}

func TestReportAsJSONHasAllParts(t *testing.T) {
	var b strings.Builder
	if err := (&report{}).write(
		&b,
		command.JSON,
	); err != nil ||
		b.String() != "{\n  \"nodes\": [],\n  \"explanations\": [],\n  \"targets\": [],\n  \"endpoints\": []\n}\n" {
		t.Errorf("empty report: %v %s", err, b.String())
	}
	r := reader{fakeInventory{}, fakeWriter{}, listed}
	found, err := r.explain(t.Context(), subject{node: "worker-1"})
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := found.write(&b, command.YAML); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nodes:\n- name: worker-1\n", "explanations:\n- conclusion: It is worker-1.\n", "targets:\n", "endpoints:\n- address: 10.0.1.11\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if slices.Contains(strings.Split(b.String(), "\n"), "nodes: []") {
		t.Error("no node")
	}
}

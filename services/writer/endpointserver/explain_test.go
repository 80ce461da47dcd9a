package endpointserver

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// ownedSlice returns an owned slice of the Service web/a.
func ownedSlice(n int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a-slicefeed", Labels: map[string]string{
			discoveryv1.LabelServiceName: "a", discoveryv1.LabelManagedBy: "slicefeed-default",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
	}
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{testAddress(i).String()}})
	}
	return s
}

// decidedTarget returns a target whose first address is held by a guard, and whose second one is not
// probed yet.
func decidedTarget() endpoints.Target {
	now := time.Now()
	t := managedTarget("a", 1)
	t.Input = verdict.Input{
		Limits: verdict.Limits{Probing: true},
		Sources: []verdict.Source{{
			Name: "default", EverSynced: true, Connected: true, Observation: 7, ObservationAt: now.Add(-time.Second),
			Members: []verdict.Member{
				{Address: testAddress(0), Name: "worker-0", State: verdict.NotReady, Since: now.Add(-time.Minute)},
				{Address: testAddress(1), Name: "worker-1", State: verdict.Ready, Since: now.Add(-time.Hour)},
			},
		}},
		Probes: []verdict.Probe{
			{
				Address:    testAddress(0),
				Status:     verdict.Failing,
				Since:      now.Add(-10 * time.Second),
				Detail:     "connection refused",
				LastPassed: now.Add(-12 * time.Second),
			},
			{Address: testAddress(1)},
		},
		Current: []verdict.CurrentEndpoint{{Address: testAddress(0), Conditions: ready}},
	}
	t.Decision.Wake = now.Add(30 * time.Second)
	t.Decision.Endpoints = []verdict.Endpoint{
		{
			Address:    testAddress(0),
			Source:     "default",
			Verdict:    verdict.Hold,
			Conditions: ready,
			Listed:     true,
			Rule:       verdict.RuleShrink,
			Reason:     "report and probe",
		},
		{Address: testAddress(1), Source: "default", Verdict: verdict.Hold, Rule: verdict.RuleTable, Reason: "report and probe"},
	}
	t.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleShrink, Source: "default", Held: 1, Message: "Wait."}}
	t.Sources = []subscriber.Snapshot{
		{Source: "default", EverSynced: true, SyncedInStream: true, Membership: subscriber.PartStatus{State: subscriber.Synced}},
	}
	return t
}

func TestListsTargetsInPagesAndTheirGuardsToOperators(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		list := func(name string, services ...*writerv1.ServiceSelector) (*writerv1.ListTargetsResponse, error) {
			return r.client.ListTargets(withClientName(r.t.Context(), name), &writerv1.ListTargetsRequest{Services: services})
		}
		early, err := list("proxy")
		checkEqual(t, "error before the first decisions", err, nil)
		checkEqual(t, "a reason then", early.GetStatus().GetReason() != "", true)
		_, err = list("nobody")
		checkEqual(t, "a stranger", status.Code(err), codes.PermissionDenied)
		_, err = list("proxy", &writerv1.ServiceSelector{})
		checkEqual(t, "an empty selector", status.Code(err), codes.InvalidArgument)

		r.store.Put(decidedTarget())
		r.store.Put(managedTarget("b", 2))
		r.store.MarkSynced()
		l, err := list("proxy")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, target := range l.GetTargets() {
			names = append(names, target.GetNamespace()+"/"+target.GetService())
		}
		checkEqual(t, "targets", names, []string{"web/a", "web/b"})
		checkEqual(t, "ready", l.GetTargets()[1].GetReady(), uint32(2))
		checkEqual(t, "held back", l.GetStatus().GetHeld(), uint32(1))
		checkEqual(t, "source", l.GetStatus().GetSources()[0].GetReason(), "link down")

		l, err = r.client.ListTargets(r.t.Context(), &writerv1.ListTargetsRequest{PageSize: 1})
		checkEqual(t, "first page", []any{len(l.GetTargets()), l.GetTargets()[0].GetService(), err}, []any{1, "a", nil})
		l, err = r.client.ListTargets(r.t.Context(), &writerv1.ListTargetsRequest{PageToken: l.GetNextPageToken()})
		checkEqual(
			t,
			"second page",
			[]any{len(l.GetTargets()), l.GetTargets()[0].GetService(), l.GetNextPageToken(), err},
			[]any{1, "b", "", nil},
		)

		details := func(name string) (*writerv1.ListTargetDetailsResponse, error) {
			return r.details.ListTargetDetails(withClientName(r.t.Context(), name), &writerv1.ListTargetDetailsRequest{
				Services: []*writerv1.ServiceSelector{{Namespace: "web", Service: "a"}},
			})
		}
		_, err = details("nobody")
		checkEqual(t, "details for a stranger", status.Code(err), codes.PermissionDenied)
		d, err := details("operator")
		if err != nil || len(d.GetTargets()) != 1 {
			t.Fatal(d, err)
		}
		a := d.GetTargets()[0]
		checkEqual(t, "target", a.GetTarget().GetService(), "a")
		checkEqual(t, "guard", a.GetGuards()[0].GetRule()+": "+a.GetGuards()[0].GetMessage(), "shrink: Wait.")
		checkEqual(t, "decides in", a.GetNextDecisionIn().AsDuration(), 30*time.Second)
		checkEqual(t, "sources", a.GetSources(), []string{"default"})
	})
}

// serviceNames are the services that were registered.
type serviceNames map[string]any

func (s serviceNames) RegisterService(desc *grpc.ServiceDesc, implementation any) {
	s[desc.ServiceName] = implementation
}

func TestLocalOperatorNeedsNoClientAndHasNoStreams(t *testing.T) {
	store, registered := endpoints.NewStore("instance"), serviceNames{}
	store.Put(decidedTarget())
	RegisterLocalOperator(registered, store)
	operator, ok := registered[writerv1.WriterOperatorService_ServiceDesc.ServiceName].(writerv1.WriterOperatorServiceServer)
	if !ok || len(registered) != 1 {
		t.Fatalf("registered %v, want the operator service alone", registered)
	}
	details, err := operator.ListTargetDetails(t.Context(), &writerv1.ListTargetDetailsRequest{})
	checkEqual(t, "error", err, nil)
	checkEqual(t, "guard", details.GetTargets()[0].GetGuards()[0].GetRule(), "shrink")
	explained, err := operator.ExplainEndpoint(
		t.Context(),
		&writerv1.ExplainEndpointRequest{Namespace: "web", Service: "a", Address: "10.0.0.0"},
	)
	checkEqual(t, "error", err, nil)
	checkEqual(t, "rule", explained.GetRule(), "shrink")
}

func TestExplainsEndpoints(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		explain := func(name, service, address string) (*writerv1.ExplainEndpointResponse, error) {
			return r.details.ExplainEndpoint(
				withClientName(r.t.Context(), name),
				&writerv1.ExplainEndpointRequest{Namespace: "web", Service: service, Address: address},
			)
		}
		r.store.Put(decidedTarget())
		for what, c := range map[string]struct {
			name, service, address string
			code                   codes.Code
		}{
			"a stranger":             {"nobody", "a", "10.0.0.0", codes.PermissionDenied},
			"no address":             {"operator", "a", "worker-0", codes.InvalidArgument},
			"a zone":                 {"operator", "a", "fe80::1%eth0", codes.InvalidArgument},
			"no Service":             {"operator", "", "10.0.0.0", codes.InvalidArgument},
			"another's Service":      {"operator", "b", "10.0.0.0", codes.NotFound},
			"an address in disguise": {"operator", "a", "::ffff:10.0.0.0", codes.OK},
		} {
			_, err := explain(c.name, c.service, c.address)
			checkEqual(t, what, status.Code(err), c.code)
		}

		e, err := explain("operator", "a", "10.0.0.0")
		if err != nil {
			t.Fatal(err)
		}
		w := e.GetSources()[0]
		checkEqual(
			t,
			"source",
			[]string{w.GetSource(), w.GetMember(), w.GetState(), w.GetStateAge().AsDuration().String()},
			[]string{"default", "worker-0", "NOT_READY", "1m0s"},
		)
		p := e.GetProbe()
		checkEqual(
			t,
			"probe",
			[]string{p.GetHealth(), p.GetDetail(), p.GetAge().AsDuration().String(), p.GetPassedAge().AsDuration().String()},
			[]string{"failing", "connection refused", "10s", "12s"},
		)
		checkEqual(t, "verdict", e.GetVerdict(), writerv1.Verdict_VERDICT_HOLD)
		checkEqual(t, "rule", e.GetRule(), "shrink")
		checkEqual(t, "guard", e.GetGuard().GetMessage(), "Wait.")
		checkEqual(t, "until", e.GetNextDecisionIn().AsDuration(), 30*time.Second)
		checkEqual(t, "held and listed", []bool{e.GetCurrent().GetReady(), e.GetDesired().GetReady()}, []bool{true, true})
		checkEqual(t, "advice", e.GetAdvice(), "Wait.")

		e, err = explain("operator", "a", "10.0.0.1")
		checkEqual(t, "error", err, nil)
		checkEqual(t, "probe of a new one", e.GetProbe().GetHealth(), "pending")
		checkEqual(t, "its age", e.GetProbe().GetAge() == nil, true)
		checkEqual(t, "held or listed", e.GetCurrent() != nil || e.GetDesired() != nil || e.GetGuard() != nil, false)
	})
}

func TestR12StatesAndVerdictsHaveWireNumbers(t *testing.T) {
	for state, wire := range map[endpoints.State]writerv1.TargetState{
		endpoints.Managed: writerv1.TargetState_TARGET_STATE_MANAGED, endpoints.Paused: writerv1.TargetState_TARGET_STATE_PAUSED,
		endpoints.Rejected: writerv1.TargetState_TARGET_STATE_REJECTED,
	} {
		checkEqual(t, wire.String(), writerv1.TargetState(state), wire)
	}
	for state, wire := range map[verdict.Verdict]writerv1.Verdict{
		0: writerv1.Verdict_VERDICT_NONE, verdict.Serve: writerv1.Verdict_VERDICT_SERVE, verdict.Drain: writerv1.Verdict_VERDICT_DRAIN,
		verdict.Unready: writerv1.Verdict_VERDICT_UNREADY, verdict.Remove: writerv1.Verdict_VERDICT_REMOVE, verdict.Hold: writerv1.Verdict_VERDICT_HOLD,
		verdict.StandBy: writerv1.Verdict_VERDICT_STAND_BY,
	} {
		checkEqual(t, wire.String(), encodeVerdict(state), wire)
	}
	checkEqual(t, "backends of a group", endpoints.MaxBackends, 10_000) // as writer.proto states
}

package endpoints

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
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

func TestListsTargetsInPages(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		list := func(name string, services ...*writerv1.ServiceSelector) (*writerv1.ListTargetsResponse, error) {
			return r.client.ListTargets(testkit.WithClientName(r.t.Context(), name), &writerv1.ListTargetsRequest{Services: services})
		}
		early, err := list("proxy")
		checkEqual(t, "error before the first decisions", err, nil)
		checkEqual(t, "a reason then", early.GetStatus().GetReason() != "", true)
		_, err = list("unknown")
		checkEqual(t, "a stranger", status.Code(err), codes.PermissionDenied)
		_, err = list("proxy", &writerv1.ServiceSelector{})
		checkEqual(t, "an empty selector", status.Code(err), codes.InvalidArgument)

		held := readyTarget("a", 1)
		held.Decision.Endpoints[0].Held = true
		held.Sources = []subscriber.Snapshot{
			{Source: "default", EverSynced: true, SyncedInStream: true, Membership: subscriber.PartStatus{State: subscriber.Synced}},
		}
		r.store.Put(held)
		r.store.Put(readyTarget("b", 2))
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
	})
}

func TestR12StatesHaveWireNumbers(t *testing.T) {
	for state, wire := range map[State]writerv1.TargetState{
		Managed: writerv1.TargetState_TARGET_STATE_MANAGED, Paused: writerv1.TargetState_TARGET_STATE_PAUSED,
		Rejected: writerv1.TargetState_TARGET_STATE_REJECTED,
	} {
		checkEqual(t, wire.String(), writerv1.TargetState(state), wire)
	}
	checkEqual(t, "backends of a group", maxBackends, 10_000) // as writer.proto states
}

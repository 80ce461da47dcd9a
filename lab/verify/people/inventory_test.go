package people

import (
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestAnOperatorIsToldWhatIsLeftOutAndWhyAndASubscriberIsNot(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	w := s.Join(1)[0]
	s.CreateNode("nobodys-machine", netip.MustParseAddr("10.0.1.5"))
	s.UntilCalled("both nodes are known", func() bool { return len(s.NodeDetails().GetNodes()) == 2 })

	all := s.NodeDetails().GetNodes()
	if left := all[0]; left.GetName() != "nobodys-machine" || left.GetOmitted().GetAdvice() == "" ||
		left.GetOmitted().GetReason() == inventoryv1.OmissionReason_OMISSION_REASON_UNSPECIFIED {
		t.Errorf("an operator sees of the omitted node %v", left)
	}
	if all[1].GetPublished().GetName() != w.Name || all[1].GetServerId() != w.Server {
		t.Errorf("an operator sees of the published node %v", all[1])
	}
	if list := s.ListNodes(s.WriterConn()); len(list.GetNodes()) != 1 {
		t.Errorf("a subscriber sees %v", list)
	}
	_, err := inventoryv1.NewInventoryOperatorServiceClient(s.WriterConn()).ListNodeDetails(s.Ctx(), &inventoryv1.ListNodeDetailsRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the operators' service answers a subscriber: %v", err)
	}
}

func TestTheChainOfANodeIsExplained(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	w := s.Machine(pair.WorkerOptions{})
	s.Must(w.Join(s.Ctx()))
	s.CreateNode("nobodys-machine", netip.MustParseAddr("10.0.1.5"))

	s.Step("by a command of its own, beside a running inventory or without one", func(s *e2e.Setup) {
		code, text := e2e.Run(s.T, "slicefeed-inventory", s.Inventory.Env(), "explain", w.Name)
		if code != 0 ||
			!e2e.ContainsAll(text, "eligibility", "Is its kubelet ready?", w.Server, "published as READY at "+w.Address.String()) {
			s.T.Errorf("exit code %d: %s", code, text)
		}
		code, text = e2e.Run(s.T, "slicefeed-inventory", s.Inventory.Env(), "explain", "nobodys-machine")
		if code != 1 || !e2e.ContainsAll(text, "Omitted, NOT_FOUND_IN_IONOS") {
			s.T.Errorf("exit code %d: %s", code, text)
		}
		code, text = e2e.Run(s.T, "slicefeed-inventory", s.Inventory.Env(), "explain", w.Name+"x")
		if code != 1 || !strings.Contains(text, "not found in source") {
			s.T.Errorf("a name that no node has: exit code %d: %s", code, text)
		}
	})
	s.Step("by the running inventory, to operators", func(s *e2e.Setup) {
		s.StartAll()
		if text := s.Explain(
			w.Name,
		); !e2e.ContainsAll(
			text,
			"EXPLANATION_STAGE_ELIGIBILITY",
			"STEP_RESULT_PASSED",
			w.Server,
			"READY at "+w.Address.String(),
		) {
			s.T.Error(text)
		}
		_, err := inventoryv1.NewInventoryOperatorServiceClient(s.WriterConn()).
			ExplainNodes(s.Ctx(), &inventoryv1.ExplainNodesRequest{Names: []string{w.Name}})
		if status.Code(err) != codes.PermissionDenied {
			s.T.Errorf("a subscriber is told: %v", err)
		}
	})
}

func TestPreflightSaysWhatToMendBeforeItIsServed(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	w := s.Machine(pair.WorkerOptions{})
	s.Must(w.Join(s.Ctx()))

	code, text := e2e.Run(t, "slicefeed-inventory", s.Inventory.Env(), "preflight")
	if code != 0 ||
		!e2e.InOrder(text, "certificate ok", "peer CA ok", "LAN", `ok "workers"`, "API server ok", "nodes ok may list nodes, watch nodes") {
		t.Errorf("with nothing wrong: exit code %d:\n%s", code, text)
	}
	for _, wrong := range []struct{ name, setting, value, says string }{
		{"the datacenter", "IONOS_DATACENTER_ID", "00000000-0000-4000-8000-000000000000", "FAILED"},
		{"the LAN", "IONOS_PRIVATE_LAN_ID", "77", "check IONOS_DATACENTER_ID, IONOS_PRIVATE_LAN_ID"},
		{"the CIDR", "SECURED_SUBNET_CIDR", "10.9.0.0/24", "check SECURED_SUBNET_CIDR"},
		{"the peers' CA", "TLS_PEER_CA_FILE", s.Inventory.Dir() + "/tls.crt", "not a CA's"},
		{"a permission, of Pods", "WORKLOAD", "kube-system/app=gateway", "may not list pods in kube-system"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			code, text := e2e.Run(t, "slicefeed-inventory", append(s.Inventory.Env(), wrong.setting+"="+wrong.value), "preflight")
			if code != 1 || !strings.Contains(text, wrong.says) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", code, wrong.says, text)
			}
		})
	}
	if nodes, err := s.SecuredClient().CoreV1().Nodes().List(s.Ctx(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 1 {
		t.Errorf("it changed something: %v, %v", nodes, err)
	}
}

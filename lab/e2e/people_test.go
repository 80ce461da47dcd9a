package e2e

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTheChainOfANodeIsExplained(t *testing.T) {
	s := enter(t, script{})
	w := s.machine(pair.WorkerOptions{})
	s.must(w.Join(s.ctx()))
	s.node("nobodys-machine", netip.MustParseAddr("10.0.1.5"))

	s.step("by a command of its own, beside a running inventory or without one", func(s *stage) {
		code, text := run(s.t, "slicefeed-inventory", s.Inventory.Env(), "explain", w.Name)
		if code != 0 || !containsAll(text, "eligibility", "Is its kubelet ready?", w.Server, "published as READY at "+w.Address.String()) {
			s.t.Errorf("exit code %d: %s", code, text)
		}
		code, text = run(s.t, "slicefeed-inventory", s.Inventory.Env(), "explain", "nobodys-machine")
		if code != 1 || !containsAll(text, "Omitted, NOT_FOUND_IN_IONOS") {
			s.t.Errorf("exit code %d: %s", code, text)
		}
		if code, text = run(
			s.t,
			"slicefeed-inventory",
			s.Inventory.Env(),
			"explain",
			w.Name+"x",
		); code != 1 ||
			!strings.Contains(text, w.Name+"\n") {
			s.t.Errorf("a name that nobody has: exit code %d: %s", code, text)
		}
	})
	s.step("by the running inventory, to operators", func(s *stage) {
		s.start()
		if text := s.explained(
			w.Name,
		); !containsAll(
			text,
			"EXPLANATION_STAGE_ELIGIBILITY",
			"STEP_RESULT_PASSED",
			w.Server,
			"READY at "+w.Address.String(),
		) {
			s.t.Error(text)
		}
		_, err := inventoryv1.NewInventoryOperatorServiceClient(s.subscriber()).
			ExplainNodes(s.ctx(), &inventoryv1.ExplainNodesRequest{Names: []string{w.Name}})
		if status.Code(err) != codes.PermissionDenied {
			s.t.Errorf("a subscriber is told: %v", err)
		}
	})
}

func TestPreflightSaysWhatToMendBeforeItIsServed(t *testing.T) {
	s := enter(t, script{})
	w := s.machine(pair.WorkerOptions{})
	s.must(w.Join(s.ctx()))

	code, text := run(t, "slicefeed-inventory", s.Inventory.Env(), "preflight")
	if code != 0 || strings.Contains(text, "FAIL") ||
		!containsAll(text, "ok    list nodes", "ok    IONOS token", "ok    first observation", `"workers"`) {
		t.Errorf("with nothing wrong: exit code %d:\n%s", code, text)
	}
	for _, wrong := range []struct{ name, setting, value, says string }{
		{"the datacenter", "IONOS_DATACENTER_ID", "00000000-0000-4000-8000-000000000000", "FAIL  LAN"},
		{"the LAN", "IONOS_PRIVATE_LAN_ID", "77", "FAIL  LAN 77"},
		{"the CIDR", "SECURED_SUBNET_CIDR", "10.9.0.0/24", "check SECURED_SUBNET_CIDR"},
		{"the peers' CA", "TLS_PEER_CA_FILE", s.Inventory.Dir() + "/tls.crt", "FAIL  peer CA"},
		{"the selector", "NODE_SELECTOR", "pool=nowhere", "FAIL  source"},
		{"a permission, of Pods", "WORKLOAD", "kube-system/app=gateway", "FAIL  list pods"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			code, text := run(t, "slicefeed-inventory", append(s.Inventory.Env(), wrong.setting+"="+wrong.value), "preflight")
			if code != 1 || !strings.Contains(text, wrong.says) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", code, wrong.says, text)
			}
		})
	}
	if nodes, err := s.SecuredClient().CoreV1().Nodes().List(s.ctx(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 1 {
		t.Errorf("it changed something: %v, %v", nodes, err)
	}
}

package people

import (
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestReportShowsOperatorsWhatIsPublishedAndWhatIsNot(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	w := s.Join(1)[0]
	s.CreateNode("nobodys-machine", netip.MustParseAddr("10.0.1.5"))
	s.UntilCalled("both nodes are known", func() bool { return len(s.InventoryReport("").GetNodes()) == 2 })

	s.Step("of all nodes", func(s *e2e.Setup) {
		r := s.InventoryReport("")
		if omitted := r.GetNodes()[0]; omitted.GetName() != "nobodys-machine" || omitted.GetState() != 0 ||
			omitted.GetProblem().GetAdvice() == "" {
			s.T.Errorf("the omitted node: %v", omitted)
		}
		if published := r.GetNodes()[1]; published.GetName() != w.Name || published.GetState() != inventoryv1.NodeState_NODE_STATE_READY {
			s.T.Errorf("the published node: %v", published)
		}
		if len(r.GetProblems()) != 1 || r.GetTotals().GetOmitted() != 1 || len(r.GetSubscribers()) == 0 ||
			r.GetCloud().GetRequestsPerMinute() == 0 {
			s.T.Errorf("the report: %v", r)
		}
	})
	s.Step("of one node, by its name and by its address", func(s *e2e.Setup) {
		for _, filter := range []string{w.Name, w.Address.String()} {
			nodes := s.InventoryReport(filter).GetNodes()
			if len(nodes) != 1 || nodes[0].GetServerId() != w.Server || nodes[0].GetMatch() == "" || nodes[0].GetStateReason() == "" ||
				len(nodes[0].GetCandidates()) == 0 || !nodes[0].GetCandidates()[0].GetChosen() {
				s.T.Errorf("%s: %v", filter, nodes)
			}
		}
	})
	s.Step("to nobody else", func(s *e2e.Setup) {
		if list := s.ListNodes(s.WriterConn()); len(list.GetNodes()) != 1 {
			s.T.Errorf("a subscriber sees %v", list)
		}
		_, err := inventoryv1.NewInventoryReportServiceClient(s.WriterConn()).GetReport(s.Ctx(), &reportv1.GetReportRequest{})
		if status.Code(err) != codes.PermissionDenied {
			s.T.Errorf("a subscriber gets a report: %v", err)
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

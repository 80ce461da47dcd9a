package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// inventoryAt is where the inventory listens.
func inventoryAt() string { return netip.AddrPortFrom(pair.InventoryAddress, pair.LinkPort).String() }

// dial makes a connection to the inventory.
func (s *stage) dial(certFile, keyFile, caFile string) *grpc.ClientConn {
	s.t.Helper()
	conn, err := pair.Dial(pair.InventoryAddress, certFile, keyFile, caFile)
	s.must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *stage) operator() *grpc.ClientConn {
	s.t.Helper()
	return s.dial(s.Operator.CertFile, s.Operator.KeyFile, s.Operator.CAFile)
}

// subscriber connects with the writer's own certificate.
func (s *stage) subscriber() *grpc.ClientConn {
	s.t.Helper()
	dir := s.Writers[0].Dir()
	return s.dial(dir+"/tls.crt", dir+"/tls.key", dir+"/peer-ca.crt")
}

func (s *stage) list(conn *grpc.ClientConn) *inventoryv1.ListNodesResponse {
	s.t.Helper()
	list, err := inventoryv1.NewInventoryServiceClient(conn).ListNodes(s.ctx(), &inventoryv1.ListNodesRequest{}, grpc.WaitForReady(true))
	s.must(err)
	return list
}

// details returns all nodes that the inventory knows, as an operator sees them.
func (s *stage) details() *inventoryv1.ListNodeDetailsResponse {
	s.t.Helper()
	list, err := inventoryv1.NewInventoryOperatorServiceClient(s.operator()).
		ListNodeDetails(s.ctx(), &inventoryv1.ListNodeDetailsRequest{}, grpc.WaitForReady(true))
	s.must(err)
	return list
}

// observe requests observations now, as a subscriber does that holds a change. It requests three, since
// requests that overlap share them, and the last one may be over.
func (s *stage) observe() {
	s.t.Helper()
	_, err := inventoryv1.NewInventoryServiceClient(s.operator()).
		RequestObservations(s.ctx(), &inventoryv1.RequestObservationsRequest{Observations: 3})
	s.must(err)
}

// tryList returns only the error.
func tryList(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, &inventoryv1.ListNodesRequest{})
	return err
}

// write replaces a file in one step, as whatever renews such files does.
func (s *stage) write(file, text string) {
	s.t.Helper()
	s.must(pki.WriteFile(file, []byte(text)))
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func TestAnOperatorIsToldWhatIsLeftOutAndWhyAndASubscriberIsNot(t *testing.T) {
	s := enter(t, script{})
	s.start()
	w := s.join(1)[0]
	s.node("nobodys-machine", netip.MustParseAddr("10.0.1.5"))
	s.called("both nodes are known", func() bool { return len(s.details().GetNodes()) == 2 })

	all := s.details().GetNodes()
	if left := all[0]; left.GetName() != "nobodys-machine" || left.GetOmitted().GetAdvice() == "" ||
		left.GetOmitted().GetReason() == inventoryv1.OmissionReason_OMISSION_REASON_UNSPECIFIED {
		t.Errorf("an operator sees of the omitted node %v", left)
	}
	if all[1].GetPublished().GetName() != w.Name || all[1].GetServerId() != w.Server {
		t.Errorf("an operator sees of the published node %v", all[1])
	}
	if list := s.list(s.subscriber()); len(list.GetNodes()) != 1 {
		t.Errorf("a subscriber sees %v", list)
	}
	_, err := inventoryv1.NewInventoryOperatorServiceClient(s.subscriber()).ListNodeDetails(s.ctx(), &inventoryv1.ListNodeDetailsRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the operators' service answers a subscriber: %v", err)
	}
}

// explained is the chain of a node, as an operator is told it.
func (s *stage) explained(name string) string {
	s.t.Helper()
	list, err := inventoryv1.NewInventoryOperatorServiceClient(s.operator()).ExplainNodes(s.ctx(),
		&inventoryv1.ExplainNodesRequest{Names: []string{name}}, grpc.WaitForReady(true))
	s.must(err)
	var b strings.Builder
	for _, e := range list.GetExplanations() {
		for _, step := range e.GetSteps() {
			fmt.Fprintf(&b, "%s: %s %s: %s\n", step.GetStage(), step.GetQuestion(), step.GetResult(), step.GetDetail())
		}
		b.WriteString(e.GetConclusion() + "\n")
	}
	return b.String()
}

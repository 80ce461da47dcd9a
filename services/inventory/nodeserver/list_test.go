package nodeserver

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// publishThree publishes red, worker-00000 and worker-00001.
func publishThree(h *harness) {
	h.nodes.Apply(append(nodeChanges(2), roster.Change{Name: "red", Node: newNode("red", 9, source.Ready)}))
	h.nodes.SetStatus(publishedStatus(1))
}

func nodeNames(nodes []*inventoryv1.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.GetName())
	}
	return names
}

func TestListNodesReturnsTheSet(t *testing.T) {
	runServer(t, func(h *harness) {
		list := func(client string, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
			return h.client.ListNodes(withClientName(h.t.Context(), client), req)
		}
		_, err := list("writer", &inventoryv1.ListNodesRequest{})
		checkEqual(t, "before the first publication", status.Code(err), codes.Unavailable)
		_, err = list("unknown", &inventoryv1.ListNodesRequest{})
		checkEqual(t, "an unknown client", status.Code(err), codes.PermissionDenied)

		publishThree(h)
		for _, tt := range []struct {
			name, client string
			req          *inventoryv1.ListNodesRequest
			want         []string
		}{
			{"all", "writer", &inventoryv1.ListNodesRequest{}, []string{"red", "worker-00000", "worker-00001"}},
			{"names", "writer", &inventoryv1.ListNodesRequest{Names: []string{"worker-00001", "cp", "missing"}}, []string{"worker-00001"}},
		} {
			l, err := list(tt.client, tt.req)
			checkEqual(t, tt.name+", error", err, nil)
			checkEqual(t, tt.name, nodeNames(l.GetNodes()), tt.want)
		}

		first, err := list("writer", &inventoryv1.ListNodesRequest{PageSize: 2})
		checkEqual(t, "error", err, nil)
		checkEqual(t, "first page", nodeNames(first.GetNodes()), []string{"red", "worker-00000"})
		second, err := list("writer", &inventoryv1.ListNodesRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
		checkEqual(t, "error", err, nil)
		checkEqual(t, "second page", nodeNames(second.GetNodes()), []string{"worker-00001"})
		checkEqual(t, "token of the last page", second.GetNextPageToken(), "")
		checkEqual(t, "revision of each page", []uint64{first.GetCursor().GetRevision(), second.GetCursor().GetRevision()}, []uint64{3, 3})
		checkEqual(t, "digest of the whole set on each page", string(second.GetDigest()), string(first.GetDigest()))

		for name, req := range map[string]*inventoryv1.ListNodesRequest{
			"an empty name": {Names: []string{""}}, "a long name": {Names: []string{strings.Repeat("x", 254)}},
			"too many names": {Names: make([]string, 1001)}, "a negative page": {PageSize: -1}, "an invalid token": {PageToken: "%"},
		} {
			_, err := list("writer", req)
			checkEqual(t, name, status.Code(err), codes.InvalidArgument)
		}
	})
}

func TestListNodeDetailsShowsPublishedAndOmittedNodes(t *testing.T) {
	runServer(t, func(h *harness) {
		list := func(req *inventoryv1.ListNodeDetailsRequest) (lines []string, response *inventoryv1.ListNodeDetailsResponse) {
			response, err := h.operator.ListNodeDetails(withClientName(h.t.Context(), "operator"), req)
			checkEqual(t, "error", err, nil)
			for _, n := range response.GetNodes() {
				result := "published " + n.GetPublished().GetName()
				if n.GetOmitted() != nil {
					result = n.GetOmitted().GetReason().String()
				}
				lines = append(lines, strings.Join([]string{n.GetName(), n.GetProviderId(), n.GetServerId(), result}, " "))
			}
			return lines, response
		}
		lines, early := list(&inventoryv1.ListNodeDetailsRequest{})
		checkEqual(t, "before the first publication", lines, []string{"cp ionos://cp  OMISSION_REASON_CONTROL_PLANE"})
		checkEqual(t, "cursor before the first publication", early.GetCursor() == nil, true)

		publishThree(h)
		all := []string{
			"cp ionos://cp  OMISSION_REASON_CONTROL_PLANE", "red ionos://red server-red published red",
			"worker-00000 ionos://worker-00000 server-worker-00000 published worker-00000",
			"worker-00001 ionos://worker-00001 server-worker-00001 published worker-00001",
		}
		lines, first := list(&inventoryv1.ListNodeDetailsRequest{PageSize: 3})
		checkEqual(t, "first page", lines, all[:3])
		checkEqual(t, "revision", first.GetCursor().GetRevision(), uint64(3))
		lines, _ = list(&inventoryv1.ListNodeDetailsRequest{PageSize: 3, PageToken: first.GetNextPageToken()})
		checkEqual(t, "second page", lines, all[3:])
		lines, _ = list(&inventoryv1.ListNodeDetailsRequest{Names: []string{"red", "missing"}})
		checkEqual(t, "names", lines, all[1:2])
	})
}

func TestExplainsNodesToOperators(t *testing.T) {
	runServer(t, func(h *harness) {
		explain := func(client string, names ...string) ([]string, error) {
			l, err := h.operator.ExplainNodes(withClientName(h.t.Context(), client), &inventoryv1.ExplainNodesRequest{Names: names})
			var lines []string
			for _, e := range l.GetExplanations() {
				lines = append(lines, e.GetName()+": "+e.GetConclusion())
				for _, s := range e.GetSteps() {
					lines = append(lines, fmt.Sprintf("%s, %s, %s: %s", s.GetStage(), s.GetResult(), s.GetQuestion(), s.GetDetail()))
				}
			}
			return lines, err
		}
		source := func(name string) string {
			return "EXPLANATION_STAGE_SOURCE, STEP_RESULT_PASSED, is it there: " + name
		}

		lines, err := explain("operator", "early")
		checkEqual(t, "before the first publication", lines, []string{"early: It is early.", source("early")})
		checkEqual(t, "error", err, nil)

		h.nodes.Apply(nodeChanges(1))
		h.nodes.SetStatus(publishedStatus(1))
		lines, err = explain("operator", "cp", "worker-00000", "b", "a")
		checkEqual(t, "in the requested order", lines, []string{
			"cp: It is cp.",
			source("cp"),
			"worker-00000: It is worker-00000.",
			source("worker-00000"),
			"b: It is b.",
			source("b"),
			"a: It is a.",
			source("a"),
		})
		checkEqual(t, "error", err, nil)

		_, err = explain("unknown", "worker-00000")
		checkEqual(t, "an unknown client", status.Code(err), codes.PermissionDenied)
		_, err = explain("operator")
		checkEqual(t, "no names", status.Code(err), codes.InvalidArgument)
		_, err = explain("operator", make([]string, 101)...)
		checkEqual(t, "too many names", status.Code(err), codes.InvalidArgument)
	})
}

func TestLocalOperatorNeedsNoClientAndSeesAllNodes(t *testing.T) {
	runServer(t, func(h *harness) {
		publishThree(h)
		operator := localOperator{server: h.server}
		all, err := operator.ListNodeDetails(h.t.Context(), &inventoryv1.ListNodeDetailsRequest{Names: []string{"worker-00000"}})
		checkEqual(t, "error", err, nil)
		checkEqual(t, "published", all.GetNodes()[0].GetPublished().GetName(), "worker-00000")
		explained, err := operator.ExplainNodes(h.t.Context(), &inventoryv1.ExplainNodesRequest{Names: []string{"worker-00000"}})
		checkEqual(t, "error", err, nil)
		checkEqual(t, "conclusion", explained.GetExplanations()[0].GetConclusion(), "It is worker-00000.")
		_, err = operator.ExplainNodes(h.t.Context(), &inventoryv1.ExplainNodesRequest{})
		checkEqual(t, "no names", status.Code(err), codes.InvalidArgument)
	})
}

func TestEveryStageAndResultHasAnEnumValue(t *testing.T) {
	for stage, number := range stages {
		if number == inventoryv1.ExplanationStage_EXPLANATION_STAGE_UNSPECIFIED ||
			number.String() != "EXPLANATION_STAGE_"+strings.ToUpper(stage) {
			t.Errorf("stage %s is %s", stage, number)
		}
	}
	for result := source.Note; result <= source.Skipped; result++ {
		if stepResults[result] == inventoryv1.StepResult_STEP_RESULT_UNSPECIFIED {
			t.Errorf("result %d is unspecified", result)
		}
	}
}

func TestExplanationTextIsTruncated(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for _, text := range []string{long, "x" + long, "\xff\xfe", ""} {
		s := encodeStep(source.Step{Stage: source.StageState, Question: text, Detail: text})
		for _, got := range []string{s.GetQuestion(), s.GetDetail(), truncate(text)} {
			if len(got) > contract.MaxTextLength || !utf8.ValidString(got) {
				t.Errorf("%.20q became %d bytes, valid: %t", text, len(got), utf8.ValidString(got))
			}
		}
	}
	if got := truncate("as it is"); got != "as it is" {
		t.Errorf("a short text became %q", got)
	}
}

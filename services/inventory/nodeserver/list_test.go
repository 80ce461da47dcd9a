package nodeserver

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExplainsNodesToOperators(t *testing.T) {
	runServer(t, func(h *harness) {
		explain := func(client string, names ...string) ([]string, error) {
			l, err := h.client.ListNodes(withClientName(h.t.Context(), client), &inventoryv1.ListNodesRequest{Names: names, Explain: true})
			var lines []string
			for _, e := range l.GetExplanations() {
				lines = append(lines, e.GetName()+": "+e.GetConclusion())
				for _, s := range e.GetSteps() {
					lines = append(lines, fmt.Sprintf("%s, %s, %s: %s", s.GetStage(), s.GetResult(), s.GetQuestion(), s.GetDetail()))
				}
			}
			return lines, err
		}
		source := func(name string) string { return "source, STEP_RESULT_PASSED, is it there: " + name }

		lines, err := explain("operator", "early")
		checkEqual(t, "before the first publication", lines, []string{"early: It is early.", source("early")})
		checkEqual(t, "error", err, nil)

		h.stores.Apply(nodeChanges(1))
		h.stores.SetStatus(publishedStatus(1))
		lines, err = explain("operator", "cp", "worker-00000", "b", "a")
		checkEqual(t, "in the requested order, with the view at the end", lines, []string{
			"cp: It is cp.", source("cp"),
			"worker-00000: It is worker-00000. Omitted for this client: its view does not select the node.", source("worker-00000"),
			`view, STEP_RESULT_FAILED, Does this client's view select it?: node labels do not match the node selector "pool=red"`,
			"b: It is b.", source("b"), "a: It is a.", source("a"),
		})
		checkEqual(t, "error", err, nil)

		_, err = explain("writer", "worker-00000")
		checkEqual(t, "a subscriber", status.Code(err), codes.PermissionDenied)
		_, err = explain("operator")
		checkEqual(t, "no names", status.Code(err), codes.InvalidArgument)
		_, err = explain("operator", make([]string, 101)...)
		checkEqual(t, "too many names", status.Code(err), codes.InvalidArgument)

		l, err := h.client.ListNodes(withClientName(h.t.Context(), "operator"), &inventoryv1.ListNodesRequest{Names: []string{"cp"}})
		checkEqual(t, "explanations without Explain", len(l.GetExplanations()), 0)
		checkEqual(t, "error", err, nil)
	})
}

func TestExplanationTextIsTruncated(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for _, text := range []string{long, "x" + long, "\xff\xfe", ""} {
		s := encodeStep(source.Step{Stage: source.StageState, Question: text, Detail: text})
		for _, got := range []string{s.GetQuestion(), s.GetDetail(), truncate(text)} {
			if len(got) > maxTextLength || !utf8.ValidString(got) {
				t.Errorf("%.20q became %d bytes, valid: %t", text, len(got), utf8.ValidString(got))
			}
		}
	}
	if got := truncate("as it is"); got != "as it is" {
		t.Errorf("a short text became %q", got)
	}
}

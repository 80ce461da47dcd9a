package nodeserver

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExplainsToOperatorsWhatTheyAskAbout(t *testing.T) {
	serve(t, func(h *harness) {
		ask := func(client string, names ...string) ([]string, error) {
			l, err := h.client.ListNodes(as(h.t.Context(), client), &inventoryv1.ListNodesRequest{Names: names, Explain: true})
			var said []string
			for _, e := range l.GetExplanations() {
				said = append(said, e.GetName()+": "+e.GetConclusion())
				for _, s := range e.GetSteps() {
					said = append(said, fmt.Sprintf("%s, %s, %s: %s", s.GetStage(), s.GetResult(), s.GetQuestion(), s.GetDetail()))
				}
			}
			return said, err
		}
		source := func(name string) string { return "source, STEP_RESULT_PASSED, is it there: " + name }

		said, err := ask("operator", "early")
		want(t, "before the first look", said, []string{"early: It is early.", source("early")})
		want(t, "error", err, nil)

		h.stores.Apply(fleet(1))
		h.stores.SetStatus(told(1))
		said, err = ask("operator", "cp", "worker-00000", "b", "a")
		want(t, "in the order asked, with the view at the end", said, []string{
			"cp: It is cp.", source("cp"),
			"worker-00000: It is worker-00000. This client is not told of it: its view does not select the node.", source("worker-00000"),
			`view, STEP_RESULT_FAILED, Does this client's view select it?: its labels do not match the node selector "pool=red"`,
			"b: It is b.", source("b"), "a: It is a.", source("a"),
		})
		want(t, "error", err, nil)

		_, err = ask("writer", "worker-00000")
		want(t, "a subscriber", status.Code(err), codes.PermissionDenied)
		_, err = ask("operator")
		want(t, "about nothing", status.Code(err), codes.InvalidArgument)
		_, err = ask("operator", make([]string, 101)...)
		want(t, "about too many", status.Code(err), codes.InvalidArgument)

		l, err := h.client.ListNodes(as(h.t.Context(), "operator"), &inventoryv1.ListNodesRequest{Names: []string{"cp"}})
		want(t, "unasked", len(l.GetExplanations()), 0)
		want(t, "error", err, nil)
	})
}

func TestAnExplanationIsBoundedAndFitToBeSent(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for _, text := range []string{long, "x" + long, "\xff\xfe", ""} {
		s := wireStep(roster.Step{Stage: roster.StageState, Question: text, Saw: text})
		for _, got := range []string{s.GetQuestion(), s.GetDetail(), bounded(text)} {
			if len(got) > mostText || !utf8.ValidString(got) {
				t.Errorf("%.20q became %d bytes, valid: %t", text, len(got), utf8.ValidString(got))
			}
		}
	}
	if got := bounded("told as it is"); got != "told as it is" {
		t.Errorf("a short text became %q", got)
	}
}

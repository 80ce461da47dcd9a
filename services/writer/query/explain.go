package query

import (
	"context"
	"errors"
	"fmt"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

// errNotReady is returned for an address that must not get new connections.
var errNotReady = errors.New("the address is not listed as ready")

// explainEndpoint prints how reports and probe status lead to what is listed.
func explainEndpoint(ctx context.Context, q request) error {
	e, err := q.operator.ExplainEndpoint(ctx, &writerv1.ExplainEndpointRequest{
		Namespace: q.service.GetNamespace(), Service: q.service.GetService(), Address: q.address.String(),
	})
	if err != nil {
		return err
	}
	if q.format.IsTable() {
		printExplanation(q, e)
	} else if err := q.format.Write(q.out, e); err != nil {
		return err
	}
	if !e.GetDesired().GetReady() {
		return errNotReady
	}
	return nil
}

func printExplanation(q request, e *writerv1.ExplainEndpointResponse) {
	q.printRow("", fmt.Sprintf("%s of %s/%s, %s", e.GetAddress(), e.GetNamespace(), e.GetService(), roleName(e.GetLeading())))
	fmt.Fprintln(q.out)
	q.printRow("Service", describeState(e.GetTarget()))
	q.printRow("ports", describePorts(e.GetTarget()))
	for _, step := range e.GetSteps() {
		q.printRow(step.GetStage(), step.GetDetail())
	}
	if g := e.GetGuard(); g != nil {
		q.printRow("guard", describeGuard(g))
	}
	q.printRow("next decision", describeNextDecision(e.GetNextDecisionIn()))
	fmt.Fprintln(q.out)
	q.printRow("", e.GetConclusion())
	if e.GetAdvice() != e.GetGuard().GetMessage() { // else it is above
		q.printRow("", e.GetAdvice())
	}
}

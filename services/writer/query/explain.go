package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// errNotReady is the end of an explanation of an address that is to get no new connections.
var errNotReady = errors.New("the address is not listed as ready")

// explainEndpoint prints the chain from both witnesses to what is listed.
func explainEndpoint(ctx context.Context, q request) error {
	e, err := q.writer.ExplainEndpoint(ctx, &writerv1.ExplainEndpointRequest{
		Namespace: q.service.GetNamespace(), Service: q.service.GetService(), Address: q.address.String(),
	})
	if err != nil {
		return err
	}
	printExplanation(q.out, e)
	if !e.GetDesired().GetReady() {
		return errNotReady
	}
	return nil
}

func printExplanation(out io.Writer, e *writerv1.ExplainEndpointResponse) {
	stage := func(name string, lines ...string) {
		fmt.Fprintf(out, "\n%s\n", name)
		for _, line := range lines {
			fmt.Fprintf(out, "  %s\n", display.Wrap(line, textWidth, 4))
		}
	}
	fmt.Fprintf(out, "%s of %s/%s, %s\n", e.GetAddress(), e.GetNamespace(), e.GetService(), roleName(e.GetLeading()))
	stage("the Service", describeState(e.GetTarget()), "ports: "+describePorts(e.GetTarget().GetPorts()))

	var sources []string
	for _, s := range e.GetSources() {
		sources = append(sources, describeReport(s))
	}
	if len(sources) == 0 {
		sources = []string{"none is asked about this Service"}
	}
	stage("what its sources say", sources...)
	stage("what the probe says", describeProbe(e.GetProbe()))

	decided := []string{"nothing is decided about this address"}
	if e.GetVerdict() != writerv1.Verdict_VERDICT_UNSPECIFIED {
		verdict := strings.ToLower(strings.TrimPrefix(e.GetVerdict().String(), "VERDICT_"))
		decided = []string{fmt.Sprintf("%s, by the rule %s", verdict, display.Sanitize(e.GetRule())), e.GetReason()}
	}
	stage("what is decided", append(decided, "the slices have it as: "+describeBackend(e.GetCurrent()), "it is to be: "+describeBackend(e.GetDesired()))...)
	if g := e.GetGuard(); g != nil {
		stage("what is held back", "by "+describeGuard(g), describeNextDecision(e))
	} else {
		stage("what is held back", "nothing", describeNextDecision(e))
	}
	fmt.Fprintf(out, "\n%s\n", display.Wrap(e.GetConclusion(), textWidth, 0))
	if e.GetAdvice() != "" {
		fmt.Fprintf(out, "%s\n", display.Wrap(e.GetAdvice(), textWidth, 0))
	}
}

func describeReport(s *writerv1.SourceReport) string {
	said := display.Sanitize(s.GetSource()) + ": "
	switch {
	case !s.GetEverSynced():
		said += "not heard since the writer started"
	case s.GetListed():
		said += fmt.Sprintf("%s for %s, as %s", display.Sanitize(s.GetState()), formatAge(s.GetStateAge()), display.Sanitize(s.GetMember()))
	default:
		said += "does not list it"
	}
	if s.GetObservationAge() != nil {
		said += fmt.Sprintf(" (observation %d, heard of %s ago)", s.GetObservation(), formatAge(s.GetObservationAge()))
	}
	if s.GetEverSynced() && s.GetStatus().GetReason() != "" {
		said += "; " + s.GetStatus().GetReason()
	}
	return said
}

func describeProbe(p *writerv1.ProbeStatus) string {
	if p == nil {
		return "nothing: this address is not probed"
	}
	said := display.Sanitize(p.GetHealth())
	if p.GetAge() != nil {
		said += " for " + formatAge(p.GetAge())
	}
	if p.GetDetail() != "" {
		said += " (" + p.GetDetail() + ")"
	}
	if p.GetPassedAge() != nil && p.GetHealth() != "passing" {
		said += ", passed " + formatAge(p.GetPassedAge()) + " ago"
	}
	return said
}

func describeNextDecision(e *writerv1.ExplainEndpointResponse) string {
	if e.GetNextDecisionIn() == nil {
		return "the next decision comes with the next change"
	}
	return "the next decision that comes by itself is due in " + formatAge(e.GetNextDecisionIn())
}

func describeBackend(b *writerv1.Backend) string {
	if b == nil {
		return "not listed"
	}
	return describeConditions(b)
}

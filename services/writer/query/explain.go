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
	printExplanation(q.out, e)
	if !e.GetDesired().GetReady() {
		return errNotReady
	}
	return nil
}

func printExplanation(out io.Writer, e *writerv1.ExplainEndpointResponse) {
	section := func(name string, lines ...string) {
		fmt.Fprintf(out, "\n%s\n", name)
		for _, line := range lines {
			fmt.Fprintf(out, "  %s\n", display.Wrap(line, textWidth, 4))
		}
	}
	fmt.Fprintf(out, "%s of %s/%s, %s\n", e.GetAddress(), e.GetNamespace(), e.GetService(), roleName(e.GetLeading()))
	section("Service", describeState(e.GetTarget()), "ports: "+describePorts(e.GetTarget().GetPorts()))

	var sources []string
	for _, s := range e.GetSources() {
		sources = append(sources, describeReport(s))
	}
	if len(sources) == 0 {
		sources = []string{"none"}
	}
	section("sources", sources...)
	section("probe", describeProbe(e.GetProbe()))

	decided := []string{"none for this address"}
	if e.GetVerdict() != writerv1.Verdict_VERDICT_NONE {
		verdict := strings.ToLower(strings.TrimPrefix(e.GetVerdict().String(), "VERDICT_"))
		decided = []string{fmt.Sprintf("%s, by rule %s", verdict, display.Sanitize(e.GetRule())), e.GetReason()}
	}
	section("decision", append(decided, "current: "+describeBackend(e.GetCurrent()), "desired: "+describeBackend(e.GetDesired()))...)
	if g := e.GetGuard(); g != nil {
		section("held by guards", describeGuard(g), describeNextDecision(e))
	} else {
		section("held by guards", "nothing", describeNextDecision(e))
	}
	fmt.Fprintf(out, "\n%s\n", display.Wrap(e.GetConclusion(), textWidth, 0))
	if e.GetAdvice() != "" {
		fmt.Fprintf(out, "%s\n", display.Wrap(e.GetAdvice(), textWidth, 0))
	}
}

func describeReport(s *writerv1.SourceReport) string {
	text := display.Sanitize(s.GetSource()) + ": "
	switch {
	case !s.GetEverSynced():
		text += "not synced since start"
	case s.GetListed():
		text += fmt.Sprintf("%s for %s, as %s", display.Sanitize(s.GetState()), formatAge(s.GetStateAge()), display.Sanitize(s.GetMember()))
	default:
		text += "does not list it"
	}
	if s.GetObservationAge() != nil {
		text += fmt.Sprintf(" (observation %d, received %s ago)", s.GetObservation(), formatAge(s.GetObservationAge()))
	}
	if s.GetEverSynced() && s.GetStatus().GetReason() != "" {
		text += "; " + s.GetStatus().GetReason()
	}
	return text
}

func describeProbe(p *writerv1.ProbeStatus) string {
	if p == nil {
		return "none: this address is not probed"
	}
	text := display.Sanitize(p.GetHealth())
	if p.GetAge() != nil {
		text += " for " + formatAge(p.GetAge())
	}
	if p.GetDetail() != "" {
		text += " (" + p.GetDetail() + ")"
	}
	if p.GetPassedAge() != nil && p.GetHealth() != "passing" {
		text += ", passed " + formatAge(p.GetPassedAge()) + " ago"
	}
	return text
}

func describeNextDecision(e *writerv1.ExplainEndpointResponse) string {
	if e.GetNextDecisionIn() == nil {
		return "next decision with the next change"
	}
	return "next decision in " + formatAge(e.GetNextDecisionIn())
}

func describeBackend(b *writerv1.Backend) string {
	if b == nil {
		return "not listed"
	}
	return describeConditions(b)
}

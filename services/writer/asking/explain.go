package asking

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

// explain prints the chain from both witnesses to what is listed.
func explain(ctx context.Context, q question) error {
	e, err := q.writer.ExplainEndpoint(ctx, &writerv1.ExplainEndpointRequest{
		Namespace: q.of.GetNamespace(), Service: q.of.GetService(), Address: q.address.String(),
	})
	if err != nil {
		return err
	}
	chain(q.out, e)
	if !e.GetDesired().GetReady() {
		return errNotReady
	}
	return nil
}

func chain(out io.Writer, e *writerv1.ExplainEndpointResponse) {
	stage := func(name string, lines ...string) {
		fmt.Fprintf(out, "\n%s\n", name)
		for _, line := range lines {
			fmt.Fprintf(out, "  %s\n", display.Wrap(line, width, 4))
		}
	}
	fmt.Fprintf(out, "%s of %s/%s, %s\n", e.GetAddress(), e.GetNamespace(), e.GetService(), who(e.GetLeading()))
	stage("the Service", state(e.GetTarget()), "ports: "+ports(e.GetTarget().GetPorts()))

	var sources []string
	for _, s := range e.GetSources() {
		sources = append(sources, source(s))
	}
	if len(sources) == 0 {
		sources = []string{"none is asked about this Service"}
	}
	stage("what its sources say", sources...)
	stage("what the probe says", probe(e.GetProbe()))

	decided := []string{"nothing is decided about this address"}
	if e.GetVerdict() != writerv1.Verdict_VERDICT_UNSPECIFIED {
		verdict := strings.ToLower(strings.TrimPrefix(e.GetVerdict().String(), "VERDICT_"))
		decided = []string{fmt.Sprintf("%s, by the rule %s", verdict, display.Sanitize(e.GetRule())), e.GetReason()}
	}
	stage("what is decided", append(decided, "the slices have it as: "+listed(e.GetCurrent()), "it is to be: "+listed(e.GetDesired()))...)
	if g := e.GetGuard(); g != nil {
		stage("what is held back", "by "+guard(g), until(e))
	} else {
		stage("what is held back", "nothing", until(e))
	}
	fmt.Fprintf(out, "\n%s\n", display.Wrap(e.GetConclusion(), width, 0))
	if e.GetAdvice() != "" {
		fmt.Fprintf(out, "%s\n", display.Wrap(e.GetAdvice(), width, 0))
	}
}

func source(s *writerv1.SourceReport) string {
	said := display.Sanitize(s.GetSource()) + ": "
	switch {
	case !s.GetEverSynced():
		said += "not heard since the writer started"
	case s.GetListed():
		said += fmt.Sprintf("%s for %s, as %s", display.Sanitize(s.GetState()), age(s.GetStateAge()), display.Sanitize(s.GetMember()))
	default:
		said += "does not list it"
	}
	if s.GetObservationAge() != nil {
		said += fmt.Sprintf(" (observation %d, heard of %s ago)", s.GetObservation(), age(s.GetObservationAge()))
	}
	if s.GetEverSynced() && s.GetStatus().GetReason() != "" {
		said += "; " + s.GetStatus().GetReason()
	}
	return said
}

func probe(p *writerv1.ProbeStatus) string {
	if p == nil {
		return "nothing: this address is not probed"
	}
	said := display.Sanitize(p.GetHealth())
	if p.GetAge() != nil {
		said += " for " + age(p.GetAge())
	}
	if p.GetDetail() != "" {
		said += " (" + p.GetDetail() + ")"
	}
	if p.GetPassedAge() != nil && p.GetHealth() != "passing" {
		said += ", passed " + age(p.GetPassedAge()) + " ago"
	}
	return said
}

func until(e *writerv1.ExplainEndpointResponse) string {
	if e.GetNextDecisionIn() == nil {
		return "the next decision comes with the next change"
	}
	return "the next decision that comes by itself is due in " + age(e.GetNextDecisionIn())
}

func listed(b *writerv1.Backend) string {
	if b == nil {
		return "not listed"
	}
	return conditions(b)
}

package roster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/inventory/assign"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Explanation is how one node came to be published or omitted.
type Explanation struct {
	Steps      []source.Step
	Omitted    source.OmissionReason // 0: it is published, or not known
	Conclusion string                // one or two sentences, with what to do if the node is omitted
}

// Explain returns how the node of this name came to be published or omitted, as of the same moment as
// Nodes and Omitted. It is the same decision once more, with a trace. If the source does not know the
// name, known is false and the explanation says so.
func (r *Roster) Explain(name string) (e Explanation, known bool) {
	m := r.members[name]
	if m == nil {
		return r.explainUnknown(name), false
	}
	trace := &source.Trace{Steps: slices.Clone(m.Steps)}
	addMissingSteps(trace, &m.Candidate)
	if m.Excluded != 0 {
		r.resolver.TraceNotReached(trace)
		assign.TraceNotReached(trace)
	} else {
		r.resolver.Resolve(&m.Candidate, m.firstSeen, trace)
		r.assigner.TraceClaims(name, trace)
	}
	return Explanation{Steps: trace.Steps, Omitted: m.omission.Reason, Conclusion: r.conclude(m)}, true
}

func (r *Roster) explainUnknown(name string) Explanation {
	var trace source.Trace
	const question = "Is it in the source?"
	if membership, everVerified := r.observer.Membership(); !everVerified {
		trace.Add(source.Skipped, source.StageSource, question, "no full verification of the source yet")
		return Explanation{Steps: trace.Steps, Conclusion: fmt.Sprintf(
			"Node %q is unknown so far: %s. Fix that, or wait.", truncate(name), membership.Reason)}
	}
	trace.Add(source.Failed, source.StageSource, question, "no node has this name")
	return Explanation{Steps: trace.Steps, Conclusion: fmt.Sprintf(
		"Node %q is not in the source. Check the name, and that this inventory reads the node's cluster.", truncate(name))}
}

// addMissingSteps adds the steps that the source did not record.
func addMissingSteps(trace *source.Trace, c *source.Candidate) {
	if c.Invalid != "" && !trace.Has(source.StageSource, source.Failed) {
		trace.Add(source.Failed, source.StageSource, "Is its data valid?", "%s", c.Invalid)
	}
	switch {
	case c.Excluded != 0 && !trace.Has(source.StageEligibility, source.Failed):
		trace.Add(source.Failed, source.StageEligibility, "Is it eligible?", "%s", cmp.Or(c.Advice, enumName(c.Excluded)))
	case !trace.Has(source.StageEligibility):
		trace.Add(source.Passed, source.StageEligibility, "Is it eligible?", "not excluded")
	}
	if !trace.Has(source.StageState) {
		trace.Add(source.Note, source.StageState, "Which state is it in?", "%s", enumName(c.State))
	}
}

// conclude is the end of an explanation.
func (r *Roster) conclude(m *member) string {
	if m.node == nil {
		return fmt.Sprintf("Omitted, %s: %s", enumName(m.omission.Reason), m.omission.Advice)
	}
	what := fmt.Sprintf("%s at %s", enumName(m.node.State), joinAddresses(m.node.Addresses))
	switch {
	case !r.observer.Publishable():
		return fmt.Sprintf("Will be published as %s after the first publication (%s).", what, r.unpublishableReason())
	case m.Invalid != "":
		return fmt.Sprintf("Published as %s, its last valid state; the current record is invalid: %s", what, m.Invalid)
	}
	return fmt.Sprintf("Published as %s.", what)
}

// unpublishableReason is why nothing is published yet.
func (r *Roster) unpublishableReason() string {
	var reasons []string
	membership, _ := r.observer.Membership()
	for _, part := range []struct {
		name   string
		status source.PartStatus
	}{{"membership", membership}, {"addresses", r.observer.Addresses()}} {
		if part.status.Sync != source.Synced {
			reasons = append(reasons, part.name+": "+cmp.Or(part.status.Reason, "none"))
		}
	}
	if reasons == nil {
		return "some READY nodes have no address yet, and may get one"
	}
	return strings.Join(reasons, "; ")
}

// enumName is the name of an enum value in the contract.
func enumName(value fmt.Stringer) string { return strings.ToUpper(value.String()) }

func joinAddresses(addresses []netip.Addr) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}

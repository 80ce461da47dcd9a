package endpoints

import (
	"fmt"
	"strings"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// describe returns the explanation as sentences.
func (e *Explanation) describe() (conclusion, advice string) {
	var sentences []string
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	switch e.State {
	case Paused:
		add("Service is paused; nothing is written. Its slices %s.", e.listedState(e.Desired))
		advice = e.Message
	case Rejected:
		if e.FollowsProbes {
			add("Service is rejected (%s); no endpoints are added, and failing ones still become not ready. Its slices %s.", e.Reason, e.listedState(e.Desired))
		} else {
			add("Service is rejected (%s); nothing is written. Its slices %s.", e.Reason, e.listedState(e.Desired))
		}
		advice = e.Message
	default:
		add("%s.", e.outcome())
		advice = e.advise()
	}
	if !e.Leading {
		sentences = append(sentences, "This writer is a standby; the leader writes.")
	}
	return strings.Join(sentences, " "), advice
}

func (e *Explanation) listedState(b *Backend) string {
	if b == nil {
		return "do not list the address"
	}
	return "list the address as " + b.Conditions.String()
}

// outcome describes what the decision means for the address.
func (e *Explanation) outcome() string {
	listed := "not listed"
	if e.Desired != nil {
		listed = "listed as " + e.Desired.Conditions.String()
	}
	switch {
	case e.Endpoint.Verdict == 0:
		return "No source and no slice lists this address"
	case e.Endpoint.Rule == verdict.RuleAllowlist:
		return "Not allowed by the allowlist: " + listed
	case e.Guard != nil && e.Desired != nil && e.Endpoint.Rule == verdict.RuleFloor:
		return sentenceCase(listed) + " because no other endpoint would be ready"
	case e.Guard != nil:
		return fmt.Sprintf("Guard %s holds a change: still %s", e.Endpoint.Rule, listed)
	case e.Desired == nil && e.Endpoint.Verdict == verdict.Hold, e.Desired == nil && e.Endpoint.Verdict == verdict.Serve:
		return sentenceCase(listed) + " yet: a new address needs a trusted source that lists it and a passing probe"
	case e.Endpoint.Verdict == verdict.Hold:
		return "Unchanged: " + listed
	default:
		return sentenceCase(listed) + " by source and probe"
	}
}

func sentenceCase(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// advise returns what to do about an address that is not listed as ready.
func (e *Explanation) advise() string {
	if e.Guard != nil {
		return e.Guard.Message
	}
	if e.Desired != nil && e.Desired.Conditions.Ready {
		return ""
	}
	var member *verdict.Member
	var report *SourceReport
	for i := range e.Reports {
		if w := &e.Reports[i]; w.Member != nil && (member == nil || w.Name == e.Endpoint.Source) {
			member, report = w.Member, w
		}
	}
	switch {
	case member == nil:
		for _, w := range e.Reports {
			if !w.EverSynced {
				return fmt.Sprintf("Source %s has not synced since this writer started, so it may list the address. Check the link to its inventory.", w.Name)
			}
		}
		return "Query the inventory of the source that should list it: slicefeed-inventory explain NODE shows why a node is omitted. " +
			"Also check the node selector of the Service."
	case e.Probe != nil && e.Probe.Status == verdict.Failing:
		return fmt.Sprintf("The probe fails: %s. Check the backend at this address and the network between writer and backend.", e.Probe.Detail)
	case e.Probe != nil && e.Probe.Status == verdict.Pending:
		return "The probe status is pending. Try again in a moment."
	case !report.Connected:
		return fmt.Sprintf("Source %s is not trusted: %s. Check its inventory and the link to it.", report.Name, report.Reason)
	case member.State == verdict.NotReady:
		return fmt.Sprintf("Node %s is not ready in the secured cluster. Check the node; slicefeed-inventory explain %s shows its state.", member.Name, member.Name)
	case member.State == verdict.Draining:
		return "Node " + member.Name + " is draining in the secured cluster. No action is needed unless this is unexpected."
	case member.State == verdict.Unknown:
		return fmt.Sprintf("The inventory of source %s reports a state that this version does not know. Update the writer.", report.Name)
	default:
		return ""
	}
}

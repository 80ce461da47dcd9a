package endpoints

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// The API, the commands and the status page show these texts and lay them out, each in its way.

// PausedMessage says what a pause means.
const PausedMessage = "Service is paused by annotation slicefeed.dev/paused. Nothing is written, whatever happens to its endpoints. Remove the annotation to resume."

func (s State) String() string {
	return map[State]string{Managed: "managed", Paused: "paused", Rejected: "rejected", ReadOnly: "read-only"}[s]
}

func (p Port) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol))
}

// DescribePorts lists ports.
func DescribePorts(all []Port) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return cmp.Or(strings.Join(texts, ", "), "none")
}

// String names the state of a backend. A nil backend is not listed.
func (b *Backend) String() string {
	if b == nil {
		return "not listed"
	}
	return b.Conditions.String()
}

// DescribeGuard says what a guard holds, and why.
func DescribeGuard(g *verdict.Guard) string {
	name := "Guard " + string(g.Rule)
	if g.Source != "" {
		name += " (source " + g.Source + ")"
	}
	return fmt.Sprintf("%s holds %s: %s", name, display.Count(g.Held, "address", "addresses"), g.Message)
}

// describe sets the texts of the explanation.
func (e *Explanation) describe(now time.Time) {
	add := func(stage, format string, args ...any) {
		e.Steps = append(e.Steps, Step{stage, fmt.Sprintf(format, args...)})
	}
	for _, lists := range []bool{true, false} { // first what counts
		for i := range e.Reports {
			if r := &e.Reports[i]; (r.Member != nil) == lists {
				add("source", "%s", r.describe(now))
			}
		}
	}
	if len(e.Reports) == 0 {
		add("source", "none")
	}
	add("probe", "%s", describeProbe(e.Probe, now))
	if decided := &e.Endpoint; decided.Verdict == 0 {
		add("decision", "none for this address")
	} else {
		add("decision", "%s, by rule %s: %s", decided.Verdict, decided.Rule, decided.Reason)
	}
	add("current", "%s", e.Current)
	switch {
	case e.State == Paused:
		add("would be", "%s", ListedBackend(&e.Endpoint))
	case e.State == Rejected && !e.FollowsProbes:
		add("desired", "nothing is written")
	default:
		add("desired", "%s", ListedBackend(&e.Endpoint))
	}
	e.Conclusion, e.Advice = e.conclude()
}

// describe says what a source reports about the address.
func (r *SourceReport) describe(now time.Time) string {
	text := r.Name + ": "
	switch {
	case !r.EverSynced:
		return text + "not synced since start"
	case r.Member == nil:
		text += "does not list it"
	default:
		text += stateNames[r.Member.State] + " for " + formatAge(r.Member.Since, now) + ", as " + r.Member.Name
	}
	if !r.ObservedAt.IsZero() {
		text += fmt.Sprintf(" (observation %d, received %s ago)", r.Observation, formatAge(r.ObservedAt, now))
	}
	if r.Reason != "" {
		text += "; " + r.Reason
	}
	return text
}

var stateNames = [...]string{
	verdict.Unknown:  "in unknown state",
	verdict.Ready:    "ready",
	verdict.Draining: "draining",
	verdict.NotReady: "not ready",
}

func describeProbe(p *verdict.Probe, now time.Time) string {
	if p == nil {
		return "this address is not probed"
	}
	text := p.Status.String()
	if p.Status != verdict.Pending {
		text += " for " + formatAge(p.Since, now)
	}
	if p.Status == verdict.Failing && p.Detail != "" {
		text += ": " + p.Detail
	}
	if p.Status == verdict.Failing && !p.LastPassed.IsZero() { // what passes now has passed since the last decision, too
		text += "; last passed " + formatAge(p.LastPassed, now) + " ago"
	}
	return text
}

func formatAge(then, now time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}

// Causes returns the reported state and the probe status in a few words.
func (e *Explanation) Causes() string {
	report, probe := "no source lists it", ""
	if i := slices.IndexFunc(e.Reports, func(r SourceReport) bool { return r.Member != nil }); i >= 0 {
		report = e.Reports[i].Member.Name + " " + stateNames[e.Reports[i].Member.State]
	}
	if e.Probe != nil {
		probe = ", probe " + e.Probe.Status.String()
	}
	return report + probe
}

// conclude returns the outcome, and what to do about it.
func (e *Explanation) conclude() (conclusion, advice string) {
	listed := "do not list the address"
	if e.Desired != nil {
		listed = "list the address as " + e.Desired.String()
	}
	switch {
	case e.State == Paused:
		conclusion, advice = fmt.Sprintf("Service is paused; nothing is written. Its slices %s.", listed), e.Message
	case e.State == ReadOnly:
		conclusion = fmt.Sprintf("Service is not managed by this writer, which only publishes it. Its slices %s.", listed)
		return conclusion, ""
	case e.State == Rejected && e.FollowsProbes:
		conclusion, advice = fmt.Sprintf(
			"Service is rejected (%s); no endpoints are added, and failing ones still become not ready. Its slices %s.",
			e.Reason,
			listed,
		), e.Message
	case e.State == Rejected:
		conclusion, advice = fmt.Sprintf("Service is rejected (%s); nothing is written. Its slices %s.", e.Reason, listed), e.Message
	default:
		conclusion, advice = e.outcome()+".", e.advise()
	}
	if !e.Leading {
		conclusion += " This writer is a standby; the leader writes."
	}
	return conclusion, advice
}

// outcome describes what the decision means for the address.
func (e *Explanation) outcome() string {
	listed, sentence := "not listed", "Not listed"
	if e.Desired != nil {
		listed, sentence = "listed as "+e.Desired.String(), "Listed as "+e.Desired.String()
	}
	switch {
	case e.Endpoint.Verdict == 0 && e.Guard != nil:
		return fmt.Sprintf("Not listed: guard %s blocks all writes of this Service", e.Guard.Rule)
	case e.Endpoint.Verdict == 0:
		return "No source and no slice lists this address"
	case e.Endpoint.Rule == verdict.RuleAllowlist:
		return "Not allowed by the allowlist: " + listed
	case e.Endpoint.Verdict == verdict.StandBy:
		return "Not listed: source " + e.Endpoint.Source + " stands by, as the sources before it have enough ready endpoints"
	case e.Endpoint.Rule == verdict.RuleExpiry:
		return "Not listed: source " + e.Endpoint.Source + " has not been trusted for longer than expire-after"
	case e.Guard != nil && e.Desired != nil && e.Endpoint.Rule == verdict.RuleFloor:
		return sentence + " because no other endpoint would be ready"
	case e.Guard != nil:
		return fmt.Sprintf("Guard %s holds a change: still %s", e.Endpoint.Rule, listed)
	case e.Desired == nil && e.Endpoint.Verdict == verdict.Hold, e.Desired == nil && e.Endpoint.Verdict == verdict.Serve:
		return sentence + " yet: a new address needs a trusted source that lists it and a passing probe"
	case e.Endpoint.Verdict == verdict.Hold:
		return "Unchanged: " + listed
	default:
		return sentence + " by source and probe"
	}
}

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
				return fmt.Sprintf(
					"Source %s has not synced since this writer started, so it may list the address. Check the link to its inventory.",
					w.Name,
				)
			}
		}
		return "Query the inventory of the source that should list it: slicefeed-inventory explain NODE shows why a node is omitted. " +
			"Also check the node selector of the Service."
	case e.Probe != nil && e.Probe.Status == verdict.Failing:
		return fmt.Sprintf(
			"The probe fails: %s. Check the backend at this address and the network between writer and backend.",
			e.Probe.Detail,
		)
	case e.Probe != nil && e.Probe.Status == verdict.Pending:
		return "The probe status is pending. Try again in a moment."
	case !report.Connected, e.Endpoint.Rule == verdict.RuleTrust:
		reason := cmp.Or(report.Reason, "its last synced membership is older than MAX_STALENESS")
		return fmt.Sprintf("Source %s is not trusted: %s. Check its inventory and the link to it.", report.Name, reason)
	case member.State == verdict.NotReady:
		return fmt.Sprintf(
			"Node %s is not ready in the secured cluster. Check the node; slicefeed-inventory explain %s shows its state.",
			member.Name,
			member.Name,
		)
	case member.State == verdict.Draining:
		return "Node " + member.Name + " is draining in the secured cluster. No action is needed unless this is unexpected."
	case member.State == verdict.Unknown:
		return fmt.Sprintf("The inventory of source %s reports a state that this version does not know. Update the writer.", report.Name)
	default:
		return ""
	}
}

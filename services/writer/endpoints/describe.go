package endpoints

import (
	"fmt"
	"strings"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// describe puts an explanation into sentences.
func (e *Explanation) describe() (conclusion, advice string) {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	switch e.State {
	case Paused:
		say("The Service is paused: nothing is written, and its slices %s.", e.listedState(e.Desired))
		advice = e.Message
	case Rejected:
		if e.FollowsProbes {
			say("The Service is refused (%s): nothing is added, and its probes go on taking out dead endpoints. Its slices %s.", e.Reason, e.listedState(e.Desired))
		} else {
			say("The Service is refused (%s): nothing is written, and its slices %s.", e.Reason, e.listedState(e.Desired))
		}
		advice = e.Message
	default:
		say("%s.", e.outcome())
		advice = e.advise()
	}
	if !e.Leading {
		said = append(said, "This writer does not lead: it decides, and another one writes.")
	}
	return strings.Join(said, " "), advice
}

func (e *Explanation) listedState(b *Backend) string {
	if b == nil {
		return "do not list the address"
	}
	return "list the address as " + DescribeConditions(b.Conditions)
}

// DescribeConditions says what an endpoint's conditions mean.
func DescribeConditions(c verdict.Conditions) string {
	switch {
	case c.Ready:
		return "ready"
	case c.Serving:
		return "draining"
	default:
		return "out"
	}
}

// outcome says what a decision makes of the address.
func (e *Explanation) outcome() string {
	listed := "not listed"
	if e.Desired != nil {
		listed = "listed as " + DescribeConditions(e.Desired.Conditions)
	}
	switch {
	case e.Endpoint.Verdict == 0:
		return "Nobody speaks of this address: no source of the Service lists it, and its slices do not either"
	case e.Endpoint.Rule == verdict.RuleFence:
		return "The fence keeps it out: " + listed
	case e.Guard != nil && e.Desired != nil && e.Endpoint.Rule == verdict.RuleFloor:
		return "It is " + listed + " since nothing else would be ready"
	case e.Guard != nil:
		return fmt.Sprintf("The guard %s holds a change back: it is %s, as it was", e.Endpoint.Rule, listed)
	case e.Desired == nil && e.Endpoint.Verdict == verdict.Hold, e.Desired == nil && e.Endpoint.Verdict == verdict.Serve:
		return "It is " + listed + " yet: an address is new until a source that is trusted lists it and a probe of it has passed"
	case e.Endpoint.Verdict == verdict.Hold:
		return "It stays as it was: " + listed
	default:
		return "By the words of source and probe it is " + listed
	}
}

// advise says what to do about an address that is not listed as ready.
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
			if !w.Heard {
				return fmt.Sprintf("Source %s was not heard since this writer started, so it may have the address: look at the link to its inventory.", w.Name)
			}
		}
		return "Ask the inventory of the source that should have it: slicefeed-inventory explain NODE says why a node is not told. " +
			"Is the Service's node selector, if it has one, as it should be?"
	case e.Probe != nil && e.Probe.Health == verdict.Failing:
		return fmt.Sprintf("The probe fails: %s. Is there something that answers at this address, and may this writer reach it?", e.Probe.Detail)
	case e.Probe != nil && e.Probe.Health == verdict.Unjudged:
		return "It is being probed: ask again in a moment."
	case !report.Connected:
		return fmt.Sprintf("Source %s is not believed at present, %s: look at its inventory and the link to it.", report.Name, report.Reason)
	case member.State == verdict.NotReady:
		return fmt.Sprintf("The secured cluster does not vouch for %s: look at that node there, slicefeed-inventory explain %s shows what is seen of it.", member.Name, member.Name)
	case member.State == verdict.Draining:
		return member.Name + " is about to leave the secured cluster: nothing is to be done, unless it is not meant to."
	case member.State == verdict.Unknown:
		return fmt.Sprintf("The inventory of source %s tells a state that this version does not know: update the writer.", report.Name)
	default:
		return ""
	}
}

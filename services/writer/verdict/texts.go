package verdict

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// All that a decision says to people is here, without numbers that change by themselves.

var reportNames = [...]string{
	Unknown:  "a state unknown to this version",
	Ready:    "READY",
	Draining: "DRAINING",
	NotReady: "NOT_READY",
	unlisted: "not listed",
}

var statusNames = [...]string{
	probe.Pending:  "pending",
	probe.Passing:  "passing",
	probe.Failing:  "failing",
	uncorroborated: "failing",
	notProbed:      "off",
}

// Reason explains the decision on one address: what its source reports, and the status of its probe.
type Reason struct {
	Source string
	Report State
	Why    string // the report does not count, or the address is not allowed; or what else it reports
	Probe  probe.Health
	Detail string // of the probe
}

func (r Reason) String() string {
	if r.Report == disallowed {
		return fmt.Sprintf("source %s: not allowed, %s", r.Source, r.Why)
	}
	report := r.Why
	if report == "" {
		report = reportNames[r.Report]
	}
	if r.Detail != "" {
		return fmt.Sprintf("source %s: %s, probe: %s (%s)", r.Source, report, statusNames[r.Probe], r.Detail)
	}
	return fmt.Sprintf("source %s: %s, probe: %s", r.Source, report, statusNames[r.Probe])
}

// message is what a guard reports: in its format, [1] is the source, [2] how many endpoints it holds, and [3] why.
type message struct {
	rule   Rule
	format string
}

var (
	addressesDenied = message{RuleAllowlist, "Source %[1]s: %[2]d {address is|addresses are} not allowed, such as %[3]s."}
	allDenied       = message{RuleAllowlist, "No endpoint is allowed, such as %[3]s: nothing is written."}
	sourceNotSynced = message{RuleInitialSync, "Source %[1]s has not synced; its %[2]d {endpoint is|endpoints are} kept."}
	sourceEmpty     = message{
		RuleEmpty,
		"Source %[1]s reports no usable nodes; its %[2]d {endpoint is|endpoints are} kept until that is confirmed.",
	}
	sourceNotTrusted = message{RuleTrust, "Source %[1]s is %[3]s; its %[2]d {endpoint is|endpoints are} kept."}
	portsUnusable    = message{
		RuleTrust, "Ports of source %[1]s cannot be used: %[3]s. %[2]d {endpoint keeps|endpoints keep} the ports that their slices list.",
	}
	failuresIgnored = message{
		RulePanic,
		"No probe of this Service passes: failures are ignored and %[2]d {endpoint stays|endpoints stay} in use.",
	}
	sourceExpired = message{RuleExpiry, "Source %[1]s is not trusted for %[3]s; its %[2]d {endpoint is|endpoints are} removed."}
	tierInUse     = message{
		RuleFailover,
		"Source %[1]s: %[2]d {endpoint is|endpoints are} in use, as those before it have fewer than %[3]s ready.",
	}
	lastKept = message{
		RuleFloor, "No endpoint of this Service would be ready, as all are draining or no longer listed: %[2]d {is|are} kept ready.",
	}
	departuresHeld = message{RuleShrink, "Source %[1]s takes out %[2]d more ready {endpoint|endpoints} %[3]s: still ready."}
)

// plural finds what depends on how many endpoints there are.
var plural = regexp.MustCompile(`{([^|]*)\|([^}]*)}`)

// note reports a guard that holds something.
func (e *evaluation) note(m message, source string, held int, why string) {
	form := "$2"
	if held == 1 {
		form = "$1"
	}
	if held > 0 {
		text := fmt.Sprintf(plural.ReplaceAllString(m.format, form), source, held, why)
		e.decision.Guards = append(e.decision.Guards, Guard{Rule: m.rule, Source: source, Held: held, Message: text})
	}
}

// sortGuards sorts what was reported by GuardOrder, then by source.
func (e *evaluation) sortGuards() {
	slices.SortStableFunc(e.decision.Guards, func(a, b Guard) int {
		return slices.Index(GuardOrder, a.Rule) - slices.Index(GuardOrder, b.Rule)
	})
}

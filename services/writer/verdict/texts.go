package verdict

import (
	"fmt"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/display"
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
	rule              Rule
	format, one, many string
}

var (
	addressesDenied = message{RuleAllowlist, "Source %[1]s: %[2]s not allowed, such as %[3]s.", "address is", "addresses are"}
	allDenied       = message{RuleAllowlist, "No endpoint is allowed, such as %[3]s: nothing is written.", "", ""}
	sourceNotSynced = message{RuleInitialSync, "Source %[1]s has not synced; its %[2]s kept.", "endpoint is", "endpoints are"}
	sourceEmpty     = message{
		RuleEmpty,
		"Source %[1]s reports no usable nodes (%[3]s so far); its %[2]s kept.",
		"endpoint is",
		"endpoints are",
	}
	sourceNotTrusted = message{RuleTrust, "Source %[1]s is %[3]s; its %[2]s kept.", "endpoint is", "endpoints are"}
	portsUnusable    = message{
		RuleTrust,
		"Ports of source %[1]s cannot be used: %[3]s. %[2]s the ports that their slices list.",
		"endpoint keeps",
		"endpoints keep",
	}
	failuresIgnored = message{
		RulePanic,
		"No probe of this Service passes: failures are ignored and %[2]s in use.",
		"endpoint stays",
		"endpoints stay",
	}
	sourceExpired = message{RuleExpiry, "Source %[1]s is not trusted for %[3]s; its %[2]s removed.", "endpoint is", "endpoints are"}
	tierInUse     = message{
		RuleFailover,
		"Source %[1]s: %[2]s in use, as those before it have fewer than %[3]s ready.",
		"endpoint is",
		"endpoints are",
	}
	lastKept = message{
		RuleFloor, "No endpoint of this Service would be ready, as all are draining or no longer listed: %[2]s kept ready.", "is", "are",
	}
	departuresHeld = message{RuleShrink, "Source %[1]s takes out %[2]s %[3]s: still ready.", "more ready endpoint", "more ready endpoints"}
)

// note reports a guard that holds something.
func (e *evaluation) note(m message, source string, held int, why string) {
	if held > 0 {
		text := fmt.Sprintf(m.format, source, display.Count(held, m.one, m.many), why)
		e.decision.Guards = append(e.decision.Guards, Guard{Rule: m.rule, Source: source, Held: held, Message: text})
	}
}

// sortGuards sorts what was reported by GuardOrder, then by source.
func (e *evaluation) sortGuards() {
	slices.SortStableFunc(e.decision.Guards, func(a, b Guard) int {
		return slices.Index(GuardOrder, a.Rule) - slices.Index(GuardOrder, b.Rule)
	})
}

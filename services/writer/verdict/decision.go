package verdict

import (
	"net/netip"
	"time"
)

// Verdict is what to do with one address.
type Verdict uint8

// The verdicts.
const (
	Serve Verdict = iota + 1
	Drain
	Unready
	Remove
	Hold
	StandBy // not listed, but probed: its failover tier is not needed
)

func (v Verdict) String() string {
	return [...]string{"none", Serve: "serve", Drain: "drain", Unready: "unready", Remove: "remove", Hold: "hold", StandBy: "standby"}[v]
}

// Rule names what decided on an endpoint: a guard, or the table.
type Rule string

// The rules.
const (
	RuleAllowlist   Rule = "allowlist"
	RuleInitialSync Rule = "initial-sync"
	RulePanic       Rule = "panic"
	RuleEmpty       Rule = "empty"
	RuleTrust       Rule = "trust"
	RuleTable       Rule = "table"
	RuleExpiry      Rule = "expiry"
	RuleFailover    Rule = "failover"
	RuleFloor       Rule = "floor"
	RuleShrink      Rule = "shrink"
)

// GuardOrder is the order of Decision.Guards.
var GuardOrder = []Rule{RuleAllowlist, RuleInitialSync, RulePanic, RuleEmpty, RuleTrust, RuleExpiry, RuleFailover, RuleFloor, RuleShrink}

// Endpoint is the decision on one address.
type Endpoint struct {
	Address    netip.Addr
	Source     string
	Zone       string
	Hostname   string
	Ports      Ports
	Others     []Ports // probed too: those that it would get once they pass, or those that it is still listed with
	Verdict    Verdict
	Conditions Conditions
	Listed     bool   // whether it belongs into the slices
	Held       bool   // a guard makes it differ from what its source reports and its probe asks for
	Rule       Rule   // that decided
	Reason     Reason // the source's report and the probe status
}

// Guard is a guard that holds something now. One (Rule, Source) in consecutive decisions is one episode,
// however its numbers change.
type Guard struct {
	Rule    Rule
	Source  string // empty: the whole target
	Held    int    // how many endpoints it holds, or denies
	Message string // what was seen and what is done about it, in one short sentence
}

// Decision is what to write, why, and when to decide again.
type Decision struct {
	// Write is false when nothing may be written at all, because the allowlist would take every current endpoint.
	// Endpoints then repeat the current ones.
	Write     bool
	Endpoints []Endpoint // sorted by address; those not Listed are here for their reasons
	Guards    []Guard    // in the order of GuardOrder, then by source
	// Panic is whether endpoints fail and none passes, so that no failure counts. AnyPassing is whether a probe of this
	// target passes, and NonePassingSince since when none does though the target has endpoints that are probed; zero: one does.
	Panic, AnyPassing bool
	NonePassingSince  time.Time
	// CannotProbe is whether an endpoint in use is pending because it cannot be probed.
	CannotProbe bool
	Wake        time.Time // decide again then at the latest; zero: only on a change
}

// finish completes the decision and what the next one needs to know.
func (e *evaluation) finish() (Memory, Decision) {
	d := &e.decision
	d.Write = true
	e.sortGuards()
	for i := range e.sources {
		s := &e.sources[i]
		if s.distrust == "" {
			e.wakeAt(s.MembershipSyncedAt.Add(e.input.Limits.MaxStaleness + 1))
		}
		if s.suppressedBy == &sourceEmpty && s.memory.empty.count > 0 {
			e.wakeAt(s.memory.empty.at.Add(emptyGap))
		}
		e.memory.sources = append(e.memory.sources, s.memory)
	}
	for _, r := range e.rows {
		r.result.Held = e.differsByGuard(r)
		e.rememberAddress(r)
	}
	return e.memory, *d
}

// differsByGuard reports whether an address would be listed otherwise if no guard held it.
func (e *evaluation) differsByGuard(r *row) bool {
	switch out := r.result; out.Rule {
	case RuleTable, RuleInitialSync, RuleFailover:
		return false
	case RuleExpiry:
		return r.dropped
	case RuleAllowlist:
		return r.deniedBy != noSource
	case RuleEmpty, RuleTrust:
		if r.owner == noSource { // it would be removed if all sources counted
			return true
		}
		otherwise, conditions := r.apply(table[r.reported][r.status])
		listed := e.isListed(r, otherwise)
		return listed != out.Listed || listed && conditions != out.Conditions
	}
	return true // an output guard
}

func (e *evaluation) wakeAt(at time.Time) {
	if at.After(e.now) && (e.decision.Wake.IsZero() || at.Before(e.decision.Wake)) {
		e.decision.Wake = at
	}
}

// Earliest returns the earlier of two times; zero is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

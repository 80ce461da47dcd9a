package source

import (
	"fmt"
	"slices"
)

// Step is one decision on the way from what a source reports about a node to what is published.
type Step struct {
	Stage    string // one of the Stage constants
	Question string // what was decided
	Result   StepResult
	Detail   string // what it was decided by
}

// The stages of an explanation, in their order.
const (
	StageSource      = "source"
	StageEligibility = "eligibility"
	StageState       = "state"
	StageMatch       = "match"
	StageAddress     = "address"
	StageClaim       = "claim"
)

// StepResult is how a step ended.
type StepResult uint8

// The results. Skipped: the step was not reached, or did not matter.
const (
	Note StepResult = iota
	Passed
	Failed
	Skipped
)

// Trace records the steps of a decision. A decider that gets nil records nothing and must not build
// the arguments of a step either: `if trace != nil { trace.Add(…) }`.
type Trace struct{ Steps []Step }

// Add records a step.
func (t *Trace) Add(result StepResult, stage, question, detail string, args ...any) {
	t.Steps = append(t.Steps, Step{Stage: stage, Question: question, Result: result, Detail: fmt.Sprintf(detail, args...)})
}

// Has reports whether a step of the stage has been recorded, with any of these results if there are any.
func (t *Trace) Has(stage string, results ...StepResult) bool {
	return slices.ContainsFunc(t.Steps, func(s Step) bool {
		return s.Stage == stage && (len(results) == 0 || slices.Contains(results, s.Result))
	})
}

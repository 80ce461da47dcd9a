// Package report is what the reports of both components have in common: how a problem is worded, ordered and
// fixed, and how a report is printed. It guarantees that a problem says the same wherever a person meets it.
// It does not decide what is a problem: the function Problems of each component does.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
)

// maxMessage is the length of a problem's message, in characters.
const maxMessage = 100

// NewProblem returns a problem with the advice for its reason. A message that is too long is cut off.
func NewProblem(level reportv1.Level, reason, object, format string, args ...any) *reportv1.Problem {
	message := fmt.Sprintf(format, args...)
	if utf8.RuneCountInString(message) > maxMessage {
		message = string([]rune(message)[:maxMessage-1]) + "…"
	}
	return &reportv1.Problem{Level: level, Reason: reason, Object: object, Message: message, Advice: advice[reason]}
}

// Sort puts the most severe problems first, and otherwise keeps their order.
func Sort(all []*reportv1.Problem) {
	slices.SortStableFunc(all, func(a, b *reportv1.Problem) int { return cmp.Compare(b.GetLevel(), a.GetLevel()) })
}

// Worst returns the most severe of some problems, or nil.
func Worst(all []*reportv1.Problem) (worst *reportv1.Problem) {
	for _, p := range all {
		if p.GetLevel() > worst.GetLevel() {
			worst = p
		}
	}
	return worst
}

// IsHealthy reports whether there is nothing that a person should look at.
func IsHealthy(all []*reportv1.Problem) bool {
	return Worst(all).GetLevel() <= reportv1.Level_LEVEL_NOTE
}

// advice says how to fix the problems of a reason. Reasons that need nothing done have none.
var advice = map[string]string{}

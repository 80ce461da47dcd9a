package preflight

import (
	"errors"
	"fmt"
	"slices"
)

// Finding is the result for one of the items of a check.
type Finding struct {
	Name     string // of the item
	Observed string
	Err      error // a failure or a Warning
}

// maxFindings bounds the lines about the findings of one check.
const maxFindings = 20

// groupError is the result of a check of many items.
type groupError struct {
	summary  string
	err      error     // of the summary's own line
	findings []Finding // that have a line of their own
	prefix   string    // of the names of these lines
}

func (g *groupError) Error() string { return g.summary }

// Summarize returns the findings about the items of a check as the result of its Run: one line says how
// many pass, and each that fails or warns has its own line. The check fails if no item passes. A single
// finding has only one line. The prefix is put before the names of these lines.
func Summarize(prefix string, findings []Finding, describe func(passed []string) string) (string, error) {
	if len(findings) == 1 {
		return findings[0].Observed, findings[0].Err
	}
	var passed []string
	var failed, warned []Finding
	for _, f := range findings {
		switch {
		case f.Err != nil && !isWarning(f.Err):
			failed = append(failed, f)
			continue
		case f.Err != nil:
			warned = append(warned, f)
		}
		passed = append(passed, f.Name)
	}
	group := &groupError{summary: describe(passed), findings: slices.Concat(failed, warned), prefix: prefix}
	switch {
	case len(group.findings) == 0:
		return group.summary, nil
	case len(passed) == 0:
		group.err = errors.New(group.summary)
	}
	return "", group
}

// printFindings prints a line for each finding, and one for those beyond maxFindings.
func (p *printer) printFindings(prefix string, findings []Finding) {
	if more := len(findings) - maxFindings; more > 0 {
		rest := Finding{Name: "others", Err: fmt.Errorf("%d more with problems; fix those above first", more)}
		if isWarning(findings[maxFindings].Err) {
			rest.Err = Warning("%v", rest.Err)
		}
		findings = append(slices.Clone(findings[:maxFindings]), rest)
	}
	for _, f := range findings {
		p.fitName(prefix + f.Name)
	}
	for _, f := range findings {
		p.printResult(prefix+f.Name, f.Observed, f.Err)
	}
}

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
)

// groupTimeout bounds a check that makes many requests.
const groupTimeout = time.Minute

// finding is the outcome for one item of a group: what was observed, or a warning or failure.
type finding struct{ name, detail, warning, failure string }

func (f finding) result() (string, error) {
	switch {
	case f.failure != "":
		return "", errors.New(f.failure)
	case f.warning != "":
		return "", preflight.Warning("%s", f.warning)
	default:
		return f.detail, nil
	}
}

// maxGroupLines bounds the lines about one group's findings.
const maxGroupLines = 20

// checkGroup is a check of many items: one line summarizes how many pass, and each that fails or
// warns has its own line. It fails if no item passes. A single item has only one line.
type checkGroup struct {
	preflight.Check // without Run

	linePrefix string // before the name of a finding on its own line
	collect    func(context.Context) ([]finding, error)
	summarize  func(passed []string, all int) string
}

func (g checkGroup) toCheck() preflight.Check {
	var failed, warned []finding
	c := g.Check
	c.Run = func(ctx context.Context) (string, error) {
		all, err := g.collect(ctx)
		switch {
		case err != nil:
			return "", err
		case len(all) == 1:
			return all[0].result()
		}
		var passed []string
		for _, f := range all {
			if f.failure != "" {
				failed = append(failed, f)
				continue
			}
			passed = append(passed, f.name)
			if f.warning != "" {
				warned = append(warned, f)
			}
		}
		detail := g.summarize(passed, len(all))
		if len(all) > 0 && len(passed) == 0 {
			return "", errors.New(detail)
		}
		return detail, nil
	}
	c.FollowUps = func() []preflight.Check { return g.findingChecks(slices.Concat(failed, warned)) }
	return c
}

// findingChecks returns a line for each finding, and one for those beyond maxGroupLines.
func (g checkGroup) findingChecks(findings []finding) []preflight.Check {
	if more := len(findings) - maxGroupLines; more > 0 {
		rest := finding{name: "others", warning: fmt.Sprintf("%d more with problems; fix those above first", more)}
		if findings[maxGroupLines].failure != "" {
			rest.failure = rest.warning
		}
		findings = append(slices.Clone(findings[:maxGroupLines]), rest)
	}
	all := make([]preflight.Check, len(findings))
	for i, f := range findings {
		all[i] = preflight.Check{Name: g.linePrefix + f.name, Run: func(context.Context) (string, error) { return f.result() }}
	}
	return all
}

// abbreviate lists a few names and the number of the others.
func abbreviate(names []string) string {
	const maxNames = 3
	if len(names) <= maxNames+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

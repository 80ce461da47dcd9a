package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
)

// groupTimeout is how long a check may take that asks for many things.
const groupTimeout = time.Minute

// finding is what there is to say of one of many: what was seen if all is well, else a
// warning or a failure.
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

// checkGroup is a check of many things: one line says how many of them work, and each that is not
// fine has a line of its own. It fails if none works. Of a single thing its one line says all.
type checkGroup struct {
	preflight.Check // but for what it does

	linePrefix string // comes before the name of a finding, on its own line
	collect    func(context.Context) ([]finding, error)
	summarize  func(work []string, all int) string
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

// findingChecks are one for each finding, the failing ones first, and if there are too many, one for the rest.
func (g checkGroup) findingChecks(findings []finding) []preflight.Check {
	if more := len(findings) - maxGroupLines; more > 0 {
		rest := finding{name: "others", warning: fmt.Sprintf("%d more are not fine: mend those above first", more)}
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

// abbreviate names a few of many.
func abbreviate(names []string) string {
	const maxNames = 3
	if len(names) <= maxNames+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

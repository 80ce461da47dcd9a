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

// manyPatience is how long a check may take that asks for many things.
const manyPatience = time.Minute

// finding is what there is to say of one of many: what was seen if all is well, else a
// warning or a failure.
type finding struct{ name, saw, warning, failure string }

func (f finding) result() (string, error) {
	switch {
	case f.failure != "":
		return "", errors.New(f.failure)
	case f.warning != "":
		return "", preflight.Warning("%s", f.warning)
	default:
		return f.saw, nil
	}
}

// mostLines bounds the lines about one group's findings.
const mostLines = 20

// group is a check of many things: one line says how many of them work, and each that is not
// fine has a line of its own. It fails if none works. Of a single thing its one line says all.
type group struct {
	preflight.Check // but for what it does

	each    string // comes before the name of a finding, on its own line
	find    func(context.Context) ([]finding, error)
	summary func(work []string, all int) string
}

func (g group) check() preflight.Check {
	var failing, doubtful []finding
	c := g.Check
	c.Run = func(ctx context.Context) (string, error) {
		all, err := g.find(ctx)
		switch {
		case err != nil:
			return "", err
		case len(all) == 1:
			return all[0].result()
		}
		var work []string
		for _, f := range all {
			if f.failure != "" {
				failing = append(failing, f)
				continue
			}
			work = append(work, f.name)
			if f.warning != "" {
				doubtful = append(doubtful, f)
			}
		}
		saw := g.summary(work, len(all))
		if len(all) > 0 && len(work) == 0 {
			return "", errors.New(saw)
		}
		return saw, nil
	}
	c.Then = func() []preflight.Check { return g.lines(slices.Concat(failing, doubtful)) }
	return c
}

// lines are one for each finding, the failing ones first, and if there are too many, one for the rest.
func (g group) lines(findings []finding) []preflight.Check {
	if more := len(findings) - mostLines; more > 0 {
		rest := finding{name: "others", warning: fmt.Sprintf("%d more are not fine: mend those above first", more)}
		if findings[mostLines].failure != "" {
			rest.failure = rest.warning
		}
		findings = append(slices.Clone(findings[:mostLines]), rest)
	}
	all := make([]preflight.Check, len(findings))
	for i, f := range findings {
		all[i] = preflight.Check{Name: g.each + f.name, Run: func(context.Context) (string, error) { return f.result() }}
	}
	return all
}

// some names a few of many.
func some(names []string) string {
	const few = 3
	if len(names) <= few+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

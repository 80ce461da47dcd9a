package house

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/lab/probes"
	"github.com/slicefeed/slicefeed/lab/sim"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// The tests of each package hold a guard's Event and metric. These are the places that only people read.
func TestEachGuardIsExplainedAndHasAHistory(t *testing.T) {
	histories := ""
	names, err := filepath.Glob(filepath.Join(root, "services/writer/verdict/testdata/histories/*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, name := range names {
		histories += read(t, name)
	}
	glossary := regexp.MustCompile(`(?m)^\| guard \|.*$`).FindString(read(t, filepath.Join(root, "docs/start/glossary.md")))
	contract := regexp.MustCompile(`(?s)message Guard \{.*?;`).
		FindString(read(t, filepath.Join(root, "proto/slicefeed/writer/v1/writer.proto")))
	for _, rule := range verdict.GuardOrder {
		guard := string(rule)
		for place, explained := range map[string]bool{
			"the list of SlicefeedGuardActive in docs/operate/alerts.md": strings.Contains(read(t, filepath.Join(root, "docs/operate/alerts.md")), "\n- `"+guard+"`: "),
			"the table of docs/operate/runbooks/endpoints-are-wrong.md":  strings.Contains(read(t, filepath.Join(root, "docs/operate/runbooks/endpoints-are-wrong.md")), "`"+guard+"`"),
			"the table of docs/use/guards.md":                            strings.Contains(read(t, filepath.Join(root, "docs/use/guards.md")), "\n| `"+guard+"` |"),
			"the row guard of docs/start/glossary.md":                    namesWord(glossary, guard),
			"the comment on rule in message Guard of writer.proto":       namesWord(contract, guard),
			"a decision in services/writer/verdict/testdata/histories":   strings.Contains(histories, "guard "+guard+" "),
			"Rules in lab/sim/coverage.go":                               slices.Contains(sim.Rules, guard),
		} {
			if !explained {
				t.Errorf("the guard %s is missing in %s", guard, place)
			}
		}
	}
}

func TestEachProbeModeIsDocumentedAndMeasured(t *testing.T) {
	page := read(t, filepath.Join(root, "docs/use/probes.md"))
	demo := regexp.MustCompile(`probe is "ping": want (.*) or (.*)\.`).FindStringSubmatch(read(t, filepath.Join(root, "docs/start/try.md")))
	if demo == nil {
		t.Fatal("docs/start/try.md does not quote the Event about a probe mode")
	}
	for _, mode := range probe.Modes() {
		if !slices.Contains(append(strings.Split(demo[1], ", "), demo[2]), mode.String()) {
			t.Errorf("the mode %s is not in the demo's output in docs/start/try.md", mode)
		}
		if !regexp.MustCompile("(?m)^\\| `" + mode.String() + "`( \\(default\\))? \\|").MatchString(page) {
			t.Errorf("the mode %s has no row in the table of modes in docs/use/probes.md", mode)
		}
		if mode != probe.Off && !slices.ContainsFunc(probes.Ways, func(w probes.Way) bool { return w.Mode == mode }) {
			t.Errorf("the mode %s is not in Ways of lab/probes, which measure how soon a failure is noticed", mode)
		}
	}
}

// namesWord reports whether a text has this word between spaces or punctuation.
func namesWord(text, word string) bool {
	return regexp.MustCompile(`[ (]` + regexp.QuoteMeta(word) + `[ ,.)]`).MatchString(text)
}

package house

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// read returns a file of the checkout.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// find returns the files of the checkout below top whose names end with suffix, without hidden folders.
func find(t *testing.T, top, suffix string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && len(entry.Name()) > 2 && entry.Name()[0] == '.' && entry.Name() != ".github" {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, suffix) {
			path, err = filepath.Rel(root, path)
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

var declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)

// testsOf returns the names of the tests of each folder below top.
func testsOf(t *testing.T, top string) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	for _, path := range find(t, top, "_test.go") {
		for _, m := range declaration.FindAllStringSubmatch(read(t, path), -1) {
			tests[filepath.Dir(path)] = append(tests[filepath.Dir(path)], m[1])
		}
	}
	return tests
}

var (
	testName   = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	testLinked = regexp.MustCompile(`\[((?:Test|Fuzz|Benchmark)[A-Z]\w+)\]\(([^)]+)\)`)
)

func TestEveryTestThatAPageNamesExists(t *testing.T) {
	tests := testsOf(t, "")
	all := slices.Concat(slices.Collect(maps.Values(tests))...)
	found := 0
	for _, page := range find(t, "", ".md") {
		text := read(t, page)
		for _, name := range testName.FindAllString(text, -1) {
			found++
			if !slices.Contains(all, name) {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
		for _, m := range testLinked.FindAllStringSubmatch(text, -1) {
			if dir := filepath.Join(filepath.Dir(page), m[2]); !slices.Contains(tests[dir], m[1]) {
				t.Errorf("%s: there is no %s in %s", page, m[1], dir)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found: are tests still named as they were?", found)
	}
}

// table returns the rows of the tables of a page that have this title in the given column (the last one: -1).
func table(page, title string, column int) (rows [][]string) {
	in := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) < 2:
			in = false
		case cells[(column+len(cells))%len(cells)] == title:
			in = true
		case in && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}

func TestEveryPromiseNamesItsTests(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range table(read(t, "docs/proof/guarantees.md"), "shown by", -1) {
		if !testLinked.MatchString(row[len(row)-1]) {
			t.Errorf("no test shows %q", row[0])
		}
		if seen[row[0]] {
			t.Errorf("promised twice: %q", row[0])
		}
		seen[row[0]] = true
	}
	if len(seen) < 30 {
		t.Errorf("only %d rows were found: does their last column still say \"shown by\"?", len(seen))
	}
}

// Each row of the tables of what happens when a source fails is the name of a test's part.
func TestEveryRowOfWhatHappensIsATest(t *testing.T) {
	var tests strings.Builder
	for _, path := range slices.Concat(find(t, "services", "_test.go"), find(t, "lab", "_test.go")) {
		tests.WriteString(read(t, path))
	}
	found := 0
	for _, page := range find(t, "docs", ".md") {
		for _, row := range table(read(t, page), "what happens", 0) {
			found++
			if name := strconv.Quote(strings.ReplaceAll(row[0], "`", "")); !strings.Contains(tests.String(), name) {
				t.Errorf("%s: no test has the name of the row %s", page, name)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d rows were found: do the tables still begin with \"what happens\"?", found)
	}
}

var (
	runOption = regexp.MustCompile(`-run '([\w|]+)'`)
	directory = regexp.MustCompile(`\./[\w./]+\w`)
	program   = regexp.MustCompile(`(?m)(?:^|[ (@])((?:\.ci|tools|deploy)/[a-z/.-]*[a-z])`)
	target    = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)
)

func TestTheMakefileAndTheWorkflowsRunWhatExists(t *testing.T) {
	makefile, patterns := read(t, "Makefile"), 0
	for line := range strings.Lines(makefile) {
		if selected := runOption.FindStringSubmatch(line); selected != nil {
			var names []string
			for _, dir := range directory.FindAllString(line, -1) {
				names = append(names, slices.Concat(slices.Collect(maps.Values(testsOf(t, dir)))...)...)
			}
			for pattern := range strings.SplitSeq(selected[1], "|") {
				patterns++
				if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, pattern) }) {
					t.Errorf("no test has %q in its name, which is selected by: %s", pattern, strings.TrimSpace(line))
				}
			}
		}
	}
	if patterns == 0 {
		t.Error("no pattern was found: does the Makefile still select tests by -run '...'?")
	}
	files := append(find(t, ".github/workflows", ".yaml"), "Makefile", "CONTRIBUTING.md", "README.md")
	for _, file := range files {
		text := read(t, file)
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", file, m[1])
			}
		}
		for _, m := range program.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

var (
	metric   = regexp.MustCompile(`\bslicefeed_[a-z0-9_]+`)
	grouping = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
	runbook  = regexp.MustCompile(`runbook_url: \S+/blob/main/(\S+)`)
)

func TestAlertsAndDashboardsKnowMetricsAndKeepClustersApart(t *testing.T) {
	metrics, found := read(t, "docs/reference/metrics.md"), 0
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		for _, component := range []string{"inventory", "writer"} {
			path := filepath.Join("deploy/slicefeed-"+component, file)
			text := read(t, path)
			for _, name := range metric.FindAllString(text, -1) {
				found++
				histogram := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
				if !strings.Contains(metrics, "\n| `"+name+"` |") && !strings.Contains(metrics, "\n| `"+histogram+"` | histogram |") {
					t.Errorf("%s: there is no metric %s", path, name)
				}
			}
			// One Thanos or Mimir may have the series of several clusters.
			for _, m := range grouping.FindAllStringSubmatch(text, -1) {
				if !regexp.MustCompile(`\bcluster\b`).MatchString(m[1]) {
					t.Errorf("%s: %q merges clusters", path, m[0])
				}
			}
			for _, m := range runbook.FindAllStringSubmatch(text, -1) {
				if err := leads(filepath.Join(root, "README.md"), m[1]); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d names of metrics were found", found)
	}
}

// The decision table is the core of the product, and people read it on the page.
func TestThePageOfTheDecisionTableFitsTheCode(t *testing.T) {
	names := map[string]string{
		"Ready": "READY", "Draining": "DRAINING", "NotReady": "NOT_READY", "unlisted": "not listed",
		"Unknown": "unknown state", "suppressed": "suppressed", "disallowed": "not allowed",
	}
	page := read(t, "docs/design/decision-rules.md")
	rows := regexp.MustCompile(`(?m)^\t(\w+): +\{(\w+(?:, \w+)*)\},`).FindAllStringSubmatch(read(t, "services/writer/verdict/table.go"), -1)
	found := 0
	for _, m := range rows {
		if names[m[1]] == "" {
			continue
		}
		found++
		cells := strings.Split(strings.ToLower(strings.ReplaceAll(m[2], "Hold", "as is")), ", ")
		if row := "| " + names[m[1]] + " | " + strings.Join(cells, " | ") + " |"; !strings.Contains(page, row) {
			t.Errorf("docs/design/decision-rules.md has no row %s", row)
		}
	}
	if found != len(names) {
		t.Errorf("found %d rows of the table in verdict, want %d", found, len(names))
	}
}

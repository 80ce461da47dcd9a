package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

const page = "../../../docs/guarantees.md"

var (
	only   = flag.String("rows", "", "play only the rows whose part or name has this in it, or one of these with | in between")
	update = flag.Bool("update", false, "render the last whole run into the page")
)

func TestMain(m *testing.M) {
	if os.Getenv(sceneEnv) != "" {
		pair.Main(hand{})
	}
	os.Exit(m.Run())
}

// hand is the process of a scene.
type hand struct{}

func (hand) Run() int {
	if err := stagehand(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// With SLICEFEED_FAULTS=1 all rows are played, or those that -rows tells, and their figures go into the
// report, and the page that shows it. A row that fails has none.
func TestFaults(t *testing.T) {
	rows, record := Rows(), os.Getenv("SLICEFEED_FAULTS") != ""
	scenes := sideBySide(t)
	switch {
	case *only != "":
		rows = slices.DeleteFunc(rows, func(r Row) bool {
			return !slices.ContainsFunc(strings.Split(*only, "|"), func(some string) bool { return strings.Contains(r.Part+": "+r.Name, some) })
		})
	case !record:
		scenes = 1
		rows = slices.DeleteFunc(rows, func(r Row) bool { return !slices.Contains(smoke, r.Name) })
	}
	begun, n := time.Now(), 0
	good := map[string]Result{}
	err := company(t.Context(), scenes, rows, func(p played) {
		n++
		r := p.Result
		t.Logf("%s: %s: %d requests, lost %+v, truth %d ms after the change, %d ms after the lift, %d writes, %d and %d MiB",
			r.Part, r.Name, r.Requests, r.Lost, r.AfterChangeMS, r.AfterLiftMS, r.Writes, r.InventoryMiB, r.WriterMiB)
		if p.Error != "" {
			t.Errorf("%s: %s: %s", r.Part, r.Name, p.Error)
			return
		}
		good[r.Name] = r
	})
	if err != nil {
		t.Error(err)
	}
	if n != len(rows) {
		t.Errorf("%d of %d rows were played", n, len(rows))
	}
	if !record {
		return
	}
	var before Report
	if *only != "" {
		if before, err = ReadReport(File); err != nil {
			t.Fatal(err)
		}
	} else {
		before = Report{Scenes: scenes, TookS: int(time.Since(begun).Seconds())}
	}
	before.Commit = commit(t)
	before.Date, before.Go = begun.UTC().Format(time.DateOnly), runtime.Version()
	before.Kubernetes = required(t, "../../upstream/go.mod", "k8s.io/kubernetes")
	before.Toxiproxy = required(t, "../../go.mod", "github.com/Shopify/toxiproxy/v2")
	report := before.With(good)
	if err := report.Write(File); err != nil {
		t.Fatal(err)
	}
	render(t, report)
}

// render puts the report's table into the page.
func render(t *testing.T, report Report) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text, err := report.Render(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sideBySide is how many scenes there are at a time.
func sideBySide(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLICEFEED_FAULTS_SCENES")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SLICEFEED_FAULTS_SCENES is %q: expected a number", text)
	}
	return n
}

// commit names what is played, so that a reader of the page sees how old its figures are.
func commit(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		t.Fatalf("git describe: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// required is the version of a module that a go.mod requires.
func required(t *testing.T, file, module string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), module+" "); ok {
			version, _, _ = strings.Cut(version, " ")
			return version
		}
	}
	t.Fatalf("%s does not require %s", file, module)
	return ""
}

package allocations

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	root  = "../../.."
	file  = "testdata/allocations.txt"
	renew = "go test ./lab/bench/allocations -run TestNoPath -update"
)

var update = flag.Bool("update", false, "keep the figures of now")

// The benchmarks run as many operations as it takes for what happens once to be lost in them, and
// without the race detector, which allocates by itself, whatever this test was built with.
func TestNoPathAllocatesMoreThanItDid(t *testing.T) {
	now := run(t, benchmarked(t)...)
	if *update {
		var b bytes.Buffer
		if err := now.Write(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before, err := Read(f, file)
	if err != nil {
		t.Fatal(err)
	}
	complaints, savings := Compare(before, now)
	if len(complaints) > 0 {
		t.Errorf(
			"%s\nIf that is meant, keep the figures of now, and say in the commit what they are for:\n%s",
			strings.Join(complaints, "\n"),
			renew,
		)
	}
	if len(savings) > 0 {
		t.Logf("less than before; %s keeps it so:\n%s", renew, strings.Join(savings, "\n"))
	}
}

// benchmarked are the packages that have benchmarks. Those are in a file of that name.
func benchmarked(t *testing.T) (packages []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "services"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "bench_test.go" {
			packages = append(packages, "./"+filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+"/")))
		}
		return err
	})
	if err != nil || len(packages) == 0 {
		t.Fatal("no benchmarks: ", err)
	}
	return packages
}

func run(t *testing.T, packages ...string) Figures {
	t.Helper()
	args := append([]string{"test", "-race=false", "-count=1", "-run=^$", "-bench=.", "-benchtime=20x", "-benchmem", "-cpu=1"}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	figures, err := Read(bytes.NewReader(out), "go test")
	if err != nil {
		t.Fatal(err)
	}
	return figures
}

const printed = `goos: linux
pkg: example.org/planner
cpu: of today
BenchmarkMake/endpoints=10     20    1725 ns/op   1000 B/op   100 allocs/op
BenchmarkCurrentEndpoints                  20    1725 ns/op      0 B/op     0 allocs/op
PASS
ok  	example.org/planner	2.063s
`

func read(t *testing.T, text string) Figures {
	t.Helper()
	f, err := Read(strings.NewReader(text), "text")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOnlyWhatGrowsBeyondTheToleranceIsComplainedOf(t *testing.T) {
	for _, row := range []struct {
		name, was, is       string
		complaints, savings []string
	}{
		{"nothing", "1000 B/op   100 allocs/op", "1000 B/op   100 allocs/op", nil, nil},
		{"time is nobody's business", "1725 ns/op   1000", "99999 ns/op   1000", nil, nil},
		{"within the tolerance", "1000 B/op   100 allocs/op", "1164 B/op   105 allocs/op", nil, nil},
		{
			"an allocation too many", "100 allocs/op", "106 allocs/op",
			[]string{"example.org/planner Make/endpoints=10: 106 allocs/op, before 100 (+6 %; up to 105 is let pass)"},
			nil,
		},
		{
			"a byte too many", "1000 B/op", "1165 B/op",
			[]string{"example.org/planner Make/endpoints=10: 1165 B/op, before 1000 (+16.5 %; up to 1164 is let pass)"},
			nil,
		},
		{
			"the first allocation", "0 B/op     0 allocs/op", "8 B/op     1 allocs/op",
			[]string{"example.org/planner CurrentEndpoints: 1 allocs/op, before 0 (none were needed; up to 0 is let pass)"},
			nil,
		},
		{"less", "100 allocs/op", "90 allocs/op", nil, []string{"example.org/planner Make/endpoints=10: 90 allocs/op, before 100"}},
		{
			"another name", "BenchmarkCurrentEndpoints ", "BenchmarkRead ",
			[]string{"example.org/planner Read: there is no figure of before", "example.org/planner CurrentEndpoints: there is no such benchmark any more"},
			nil,
		},
		{
			"no report of allocations", "   0 B/op     0 allocs/op", "",
			[]string{"example.org/planner CurrentEndpoints: it does not say its allocs/op", "example.org/planner CurrentEndpoints: it does not say its B/op"},
			nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			complaints, savings := Compare(read(t, printed), read(t, strings.Replace(printed, row.was, row.is, 1)))
			if diff := cmp.Diff(row.complaints, complaints); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.savings, savings); diff != "" {
				t.Errorf("savings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsKeptIsReadAgain(t *testing.T) {
	want := read(t, printed)
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	complaints, savings := Compare(want, read(t, b.String()))
	if len(complaints)+len(savings) > 0 || strings.Contains(b.String(), "ns/op") || strings.Contains(b.String(), "cpu:") {
		t.Errorf("%v %v\n%s", complaints, savings, b.String())
	}
}

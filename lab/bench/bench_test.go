package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/bench/report"
)

// TestMain runs `lab bench` when it is called so, with sections that measure nothing: each section is a process of its
// own, and scripts rely on the exit code of the whole.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "bench" {
		os.Exit(m.Run())
	}
	goal := func(figure float64) report.Measure {
		return func(context.Context, report.Env) (report.Report, error) {
			return report.Report{Goals: []report.Goal{{Text: "writes", Figure: figure, AtMost: 1}}}, nil
		}
	}
	sections = []section{
		{name: "broken", measure: func(context.Context, report.Env) (report.Report, error) {
			return report.Report{}, errors.New("no API server")
		}},
		{name: "missed", measure: goal(2)},
		{name: "met", title: "Another one", measure: goal(1)},
	}
	lab := &cobra.Command{Use: "lab", SilenceUsage: true}
	lab.AddCommand(Command())
	if err := lab.ExecuteContext(context.Background()); err != nil {
		os.Exit(1)
	}
}

func TestExitCodeSaysWhetherAllGoalsAreMet(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		only string
		code int
		says []string
	}{
		{"met", 0, []string{"writes", "Measured", "met"}},
		{"missed", 1, []string{"missed a goal: writes is 2, want at most 1", "section missed failed"}},
		{"broken", 1, []string{"broken was not measured: no API server"}},
		{"missed,met", 1, []string{"Another one", "missed a goal"}},
		{"broken,met", 1, []string{"Another one", "broken was not measured"}},
		{"unknown", 1, []string{`unknown section "unknown"`, "broken, missed, met"}},
	} {
		t.Run(tt.only, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "bench", "--quick", "--to", t.TempDir()+"/bench.txt", "--only", tt.only)
			out, err := cmd.CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, text := range tt.says {
				if !strings.Contains(string(out), text) {
					t.Errorf("the output lacks %q", text)
				}
			}
			if t.Failed() {
				t.Logf("\n%s", out)
			}
		})
	}
}

// Package bench measures the pair as ratios against baselines of the same run, since times by themselves say more about
// the machine than about the code. Each section is a process of its own, one after the other, so that none inherits
// another's heap, sockets or namespaces.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/bench/propagation"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/load"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/probes"
)

// section is one measurement.
type section struct {
	name    string
	title   string
	measure report.Measure
}

// sections lists them in the order in which they are measured.
var sections = []section{
	{"propagation", "Propagation: Node patch in one API server to EndpointSlice event in the other", propagation.Run},
	{"fanout", "Fan-out: one change to all subscribers, and all of them at once", load.MeasureFanout},
	{"detection", "Detection: 10,000 targets, each probed every 2 s", probes.MeasureDetection},
}

// page is where the report is, below the repository's root.
const page = ".bin/bench.txt"

// Command returns the subcommand of lab.
func Command() *cobra.Command {
	var only []string
	quick, to := false, ""
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the pair against baselines of the same run",
		Long: "Measure the pair against baselines of the same run, print the figures, and write them to " + page + ".\n" +
			"A missed goal is an error.\n\nSections: " + strings.Join(names(), ", "),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, only, quick, to)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "measure these sections")
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less")
	cmd.Flags().StringVar(&to, "to", "", "file for the report, instead of "+page)
	cmd.AddCommand(sectionCommand())
	return cmd
}

// sectionCommand measures one section in a process of its own, for run: progress goes to standard error, the report to
// standard output.
func sectionCommand() *cobra.Command {
	quick := false
	cmd := &cobra.Command{
		Use:    "section NAME",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.Index(names(), args[0])
			if i < 0 {
				return fmt.Errorf("unknown section %q", args[0])
			}
			measured, err := sections[i].measure(cmd.Context(), report.Env{Out: cmd.ErrOrStderr(), Quick: quick})
			if err != nil {
				return fmt.Errorf("%s was not measured: %w", args[0], err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), measured)
			return measured.Check()
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less")
	return cmd
}

func run(cmd *cobra.Command, only []string, quick bool, to string) error {
	ctx := cmd.Context()
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("unknown section %q in --only; want some of %s", name, strings.Join(names(), ", "))
		}
	}
	root, err := pair.Root()
	if err != nil {
		return err
	}
	file, err := os.Create(cmp.Or(to, filepath.Join(root, page)))
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // a report that could not be written is on the terminal
	out := io.MultiWriter(cmd.OutOrStdout(), file)
	with := "quick"
	if !quick {
		with = dependencies(ctx)
	}
	fmt.Fprintf(out, "Measured %s at %s, on %s, %s.\n", time.Now().UTC().Format("2006-01-02 15:04"), sourceVersion(ctx, root),
		figures.Machine(), with)
	var failed []error
	for _, s := range sections {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		fmt.Fprintf(out, "\n%s\n\n", s.title)
		if err := s.run(ctx, out, cmd.ErrOrStderr(), quick); err != nil {
			failed = append(failed, fmt.Errorf("section %s failed, see above: %w", s.name, err))
			fmt.Fprintf(out, "FAILED: %v\n", err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// run measures the section in a process of its own.
func (s section) run(ctx context.Context, out, progress io.Writer, quick bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "bench", "section", s.name, fmt.Sprintf("--quick=%t", quick))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it has processes of its own to end
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's interrupt reaches it through us, once
	cmd.Stdout, cmd.Stderr = out, progress
	return cmd.Run()
}

func names() []string {
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
	return all
}

// sourceVersion is stamped as the Makefile does.
func sourceVersion(ctx context.Context, root string) string {
	text, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "an unknown version"
	}
	return strings.TrimSpace(string(text))
}

// dependencies names those that the figures depend on most, with their versions.
func dependencies(ctx context.Context) string {
	var all []string
	if programs, err := controlplane.Build(ctx, io.Discard); err == nil {
		text, _ := exec.CommandContext(ctx, programs.KubeAPIServer, "--version").Output()
		all = append(all, "kube-apiserver "+strings.TrimSpace(strings.TrimPrefix(string(text), "Kubernetes ")))
	}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if slices.Contains([]string{"google.golang.org/grpc", "k8s.io/client-go"}, m.Path) {
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return strings.Join(all, ", ")
}

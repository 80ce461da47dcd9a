// Package bench measures the pair as ratios against baselines of the same run, since times
// by themselves say more about the machine than about the code. Each section is a process of
// its own, one after the other, so that none inherits another's heap, sockets or namespaces.
package bench

import (
	"bytes"
	"context"
	"encoding/gob"
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

	"github.com/slicefeed/slicefeed/lab/bench/churn"
	"github.com/slicefeed/slicefeed/lab/bench/propagation"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/bench/rest"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/load"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/probes"
)

// section is a page of the bench. about is how long it takes on two quiet cores.
type section struct {
	name    string
	title   string
	about   time.Duration
	measure report.Measure
}

// sections lists them in the order in which they are measured.
var sections = []section{
	{"propagation", "Propagation: Node patch in one API server to EndpointSlice event in the other", 8 * time.Minute, propagation.Run},
	{"churn", "Churn: what a change of a Service's endpoints costs its API server", time.Minute, churn.Run},
	{"fanout", "Fan-out: one change to all subscribers, and all of them at once", 90 * time.Second, load.MeasureFanout},
	{"exports", "Exported Services: one change among 200", 210 * time.Second, propagation.RunExports},
	{"rest", "At rest", 5 * time.Minute, rest.Run},
	{"detection", "Detection: 10,000 targets, each probed every 2 s", 165 * time.Second, probes.MeasureDetection},
}

// pages is the directory of the pages, below the repository's root.
const pages = "docs/proof/performance"

// Command returns the subcommand of lab.
func Command() *cobra.Command {
	var only []string
	quick := false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the pair against baselines of the same run",
		Long: "Measure the pair against baselines of the same run, print the figures, and write a page for each section into\n" +
			pages + ". A missed goal is an error.\n\nSections: " + strings.Join(names(), ", "),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), only, quick)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "measure these sections")
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less, and write no page")
	cmd.AddCommand(sectionCommand())
	return cmd
}

// sectionCommand measures one section in a process of its own, for run.
func sectionCommand() *cobra.Command {
	file, quick := "", false
	cmd := &cobra.Command{
		Use:    "section NAME",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.Index(names(), args[0])
			if i < 0 {
				return fmt.Errorf("unknown section %q", args[0])
			}
			parts, err := sections[i].measure(cmd.Context(), report.Env{Out: cmd.OutOrStdout(), Quick: quick})
			if err != nil {
				return err
			}
			var encoded bytes.Buffer
			if err := gob.NewEncoder(&encoded).Encode(parts); err != nil {
				return err
			}
			return os.WriteFile(file, encoded.Bytes(), 0o600)
		},
	}
	cmd.Flags().StringVar(&file, "to", "", "file for the parts")
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less")
	return cmd
}

func run(ctx context.Context, out io.Writer, only []string, quick bool) error {
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("unknown section %q in --only; want some of %s", name, strings.Join(names(), ", "))
		}
	}
	root, err := pair.Root()
	if err != nil {
		return err
	}
	version := sourceVersion(ctx, root) // before this run changes a page
	chosen := slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return len(only) > 0 && !slices.Contains(only, s.name) })
	var measured []*report.Section
	for i, s := range chosen {
		fmt.Fprintf(out, "\n[%d of %d] %s, about %s\n", i+1, len(chosen), s.name, about(s, quick))
		one := s.run(ctx, out, quick)
		fmt.Fprintf(out, "\n%s", one)
		measured = append(measured, one)
		if ctx.Err() != nil {
			return errors.Join(report.Check(measured), ctx.Err())
		}
	}
	fmt.Fprintf(out, "\n%s", report.Goals(measured))
	if quick {
		fmt.Fprintln(out, "\nquick: no page was written")
		return report.Check(measured)
	}
	return errors.Join(report.Check(measured), save(ctx, out, filepath.Join(root, pages), version, measured))
}

// save writes the pages of the sections that were measured; those of others stay.
func save(ctx context.Context, out io.Writer, dir, version string, measured []*report.Section) error {
	dependencies, err := dependencies(ctx)
	if err != nil {
		return err
	}
	for _, s := range measured {
		if s.Err != nil {
			continue
		}
		s.Origin = fmt.Sprintf("at %s, on %s, %s", version, figures.Machine(), dependencies)
		if err := s.Save(dir); err != nil {
			return err
		}
		fmt.Fprintf(out, "wrote %s/%s.md\n", pages, s.Name)
	}
	return nil
}

// run measures the section in a process of its own.
func (s section) run(ctx context.Context, out io.Writer, quick bool) *report.Section {
	start := time.Now()
	parts, err := s.child(ctx, out, quick)
	return &report.Section{Name: s.name, Title: s.title, Time: start, Took: time.Since(start), Parts: parts, Err: err}
}

func (s section) child(ctx context.Context, out io.Writer, quick bool) (parts []*report.Part, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "slicefeed-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	file := filepath.Join(dir, s.name)
	last := &lastLine{}
	cmd := exec.CommandContext(ctx, self, "bench", "section", s.name, "--to", file, fmt.Sprintf("--quick=%t", quick))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it has processes of its own to end
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's interrupt reaches it through us, once
	cmd.Stdout, cmd.Stderr = out, io.MultiWriter(out, last)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, last.text)
	}
	encoded, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parts, gob.NewDecoder(bytes.NewReader(encoded)).Decode(&parts)
}

// lastLine keeps the last line that was written.
type lastLine struct{ text string }

func (t *lastLine) Write(p []byte) (int, error) {
	if lines := strings.Split(strings.TrimSpace(string(p)), "\n"); lines[len(lines)-1] != "" {
		t.text = lines[len(lines)-1]
	}
	return len(p), nil
}

func about(s section, quick bool) string {
	if quick {
		return "half a minute"
	}
	return s.about.String()
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
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// dependencies names those that the figures depend on most, with their versions.
func dependencies(ctx context.Context) (string, error) {
	programs, err := controlplane.Build(ctx, io.Discard)
	if err != nil {
		return "", err
	}
	text, err := exec.CommandContext(ctx, programs.KubeAPIServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("get the version of %s: %w", programs.KubeAPIServer, err)
	}
	all := []string{"kube-apiserver " + strings.TrimSpace(strings.TrimPrefix(string(text), "Kubernetes "))}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if slices.Contains([]string{"google.golang.org/grpc", "k8s.io/client-go"}, m.Path) {
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return strings.Join(all, ", "), nil
}

// Package bench measures the pair as ratios against baselines of the same run, since times
// by themselves say more about the machine than about the code. Each section is a process of
// its own, one after the other, so that none inherits another's heap, sockets or namespaces.
package bench

import (
	"context"
	"encoding/json"
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

	"github.com/slicefeed/slicefeed/lab/bench/against"
	"github.com/slicefeed/slicefeed/lab/bench/churn"
	"github.com/slicefeed/slicefeed/lab/bench/fanout"
	"github.com/slicefeed/slicefeed/lab/bench/growth"
	"github.com/slicefeed/slicefeed/lab/bench/model"
	"github.com/slicefeed/slicefeed/lab/bench/probes"
	"github.com/slicefeed/slicefeed/lab/bench/propagation"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/bench/rest"
	"github.com/slicefeed/slicefeed/lab/bench/services"
	"github.com/slicefeed/slicefeed/lab/bench/storms"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// section is a part of the bench. about is how long it takes on two quiet cores.
type section struct {
	name    string
	about   time.Duration
	measure report.Measure
}

// sections are all, in the order in which they are measured and told.
var sections = []section{
	{"propagation", 2 * time.Minute, propagation.Run},
	{"against", 3 * time.Minute, against.Run},
	{"churn", 2 * time.Minute, churn.Run},
	{"services", 90 * time.Second, services.Run},
	{"fanout", time.Minute, fanout.Run},
	{"storms", time.Minute, storms.Run},
	{"growth", 4 * time.Minute, growth.Run},
	{"probes", 165 * time.Second, probes.Run},
	{"rest", 5 * time.Minute, rest.Run},
	{model.Name, 2 * time.Minute, model.Run},
}

// Where the whole run is kept, below the repository's root.
const (
	results = "lab/bench/results/latest.json"
	page    = "docs/performance.md"
)

// Command returns the subcommand of lab.
func Command() *cobra.Command {
	var only []string
	quick := false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the pair against baselines of the same run",
		Long: "Measure the pair against baselines of the same run, print what was found, and keep it in\n" +
			results + " and " + page + ".\n\nSections: " + strings.Join(names(), ", "),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), only, quick)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "measure these sections, and keep what the others found before")
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less, and keep nothing")
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
				return fmt.Errorf("no section is called %s", args[0])
			}
			found, err := sections[i].measure(cmd.Context(), report.Env{Out: cmd.OutOrStdout(), Quick: quick})
			if err != nil {
				return err
			}
			return figures.Save(file, found)
		},
	}
	cmd.Flags().StringVar(&file, "to", "", "file for what was found")
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less")
	return cmd
}

func run(ctx context.Context, out io.Writer, only []string, quick bool) error {
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--only=%s: no section is called so; there are %s", name, strings.Join(names(), ", "))
		}
	}
	root, err := pair.Root()
	if err != nil {
		return err
	}
	whole, err := report.Load(filepath.Join(root, results))
	if err != nil {
		return err
	}
	programs, err := controlplane.Build(ctx, out)
	if err != nil {
		return err
	}
	versions, err := versions(ctx, programs)
	if err != nil {
		return err
	}

	chosen := slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return len(only) > 0 && !slices.Contains(only, s.name) })
	version := version(ctx, root) // before this run changes the page
	var found []*report.Section
	var failed error
	for i, s := range chosen {
		fmt.Fprintf(out, "\n[%d of %d] %s, about %s\n", i+1, len(chosen), s.name, about(s, quick))
		section, err := s.apart(ctx, out, quick)
		section.Version = version
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		fmt.Fprintf(out, "\n%s", section)
		found = append(found, section)
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	whole.Take(names(), figures.Machine(), versions, found)
	fmt.Fprintf(out, "\n%s", (&report.Report{Sections: found}).Goals())
	if quick {
		fmt.Fprintln(out, "\nquick: nothing was kept")
		return failed
	}
	if err := whole.Save(filepath.Join(root, results), filepath.Join(root, page)); err != nil {
		return errors.Join(failed, err)
	}
	if err := model.Save(root, whole); err != nil {
		return errors.Join(failed, err)
	}
	fmt.Fprintf(out, "\nkept in %s, %s and %s\n", results, page, model.Page)
	return failed
}

// apart measures the section in a process of its own.
func (s section) apart(ctx context.Context, out io.Writer, quick bool) (*report.Section, error) {
	began := time.Now()
	found, err := s.child(ctx, out, quick)
	if err != nil {
		found = &report.Section{Title: s.name, Error: err.Error()}
	}
	found.Name, found.Time, found.Took = s.name, began.UTC().Truncate(time.Second), time.Since(began)
	return found, err
}

func (s section) child(ctx context.Context, out io.Writer, quick bool) (*report.Section, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "slicefeed-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	file := filepath.Join(dir, s.name+".json")
	said := &tail{}
	cmd := exec.CommandContext(ctx, self, "bench", "section", s.name, "--to", file, fmt.Sprintf("--quick=%t", quick))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it has processes of its own to end
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's interrupt reaches it by us, once
	cmd.Stdout, cmd.Stderr = out, io.MultiWriter(out, said)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.line)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := &report.Section{}
	return found, json.Unmarshal(text, found)
}

// tail is the last line that was written.
type tail struct{ line string }

func (t *tail) Write(p []byte) (int, error) {
	if lines := strings.Split(strings.TrimSpace(string(p)), "\n"); lines[len(lines)-1] != "" {
		t.line = lines[len(lines)-1]
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

// version is the sources', as the Makefile stamps it.
func version(ctx context.Context, root string) string {
	said, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(said))
}

// versions are of what the figures depend on most.
func versions(ctx context.Context, programs controlplane.Programs) (map[string]string, error) {
	said, err := exec.CommandContext(ctx, programs.KubeAPIServer, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", programs.KubeAPIServer, err)
	}
	found := map[string]string{"kube-apiserver": strings.TrimSpace(strings.TrimPrefix(string(said), "Kubernetes "))}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if slices.Contains([]string{"google.golang.org/grpc", "k8s.io/client-go"}, m.Path) {
			found[m.Path] = m.Version
		}
	}
	return found, nil
}

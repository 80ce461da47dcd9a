// Package command implements the command line of both binaries: serve, check-config, version, and the
// commands that a component adds. It guarantees that all commands validate a configuration in the same
// way, and that no component runs with a credential of the other in its environment. It does not know
// what the components do.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Component is what differs between the two binaries. C is its configuration struct.
type Component[C any] struct {
	Name    string // of the binary
	Short   string // one sentence
	Version string
	Commit  string // of the build; may be empty

	// ForbiddenEnv are environment names of the other component's credentials. With one of them set,
	// this component does not start. This is a precaution, not a proof: see docs/design/security.md.
	ForbiddenEnv []string

	// CheckFiles reads the files that the settings name, and reports all problems, also while settings have problems.
	CheckFiles func(cfg *C, checks settings.FileChecks) error

	// Build creates the service from a valid configuration. It reads files, but makes no requests. Its
	// error is a configuration error.
	Build func(cfg *C, log *slog.Logger) (Service, error)

	// LogSettings returns the settings of serve's log.
	LogSettings func(cfg *C) LogSettings

	// Subcommands are additional commands with the configuration of serve.
	Subcommands []Subcommand[C]

	// Standalone are additional commands with their own settings.
	Standalone []StandaloneCommand

	environ []string // in which misspelled settings are found
}

// Subcommand is a command for people that has the configuration of serve.
type Subcommand[C any] struct {
	Use     string // name and arguments; optional ones come last: "status [FILTER]"
	Short   string // one sentence
	Example string // command lines, one per line
	Failure string // what exit code 1 means
	Run     func(ctx context.Context, call Invocation[C]) error
}

// Invocation is one call of a Subcommand.
type Invocation[C any] struct {
	Version string // of the component
	Config  *C
	Args    []string
	Format  Format    // of the result
	Out     io.Writer // for the result
	Err     io.Writer // for progress and warnings
}

// StandaloneCommand is a command for people with settings of its own, because they run it on their
// machines with their own credentials. NewStandalone creates one.
type StandaloneCommand func(getenv func(string) string) *cobra.Command

// NewStandalone returns a command whose settings are T.
func NewStandalone[T any](sub Subcommand[T]) StandaloneCommand {
	return func(getenv func(string) string) *cobra.Command { return Component[T]{}.newSubcommand(getenv, sub) }
}

// Service is what serve runs.
type Service interface {
	Run(ctx context.Context) error
}

// Main runs the command line and returns the exit code: 2 for an invalid configuration, 1 for any other
// error.
func (c Component[C]) Main(args []string, stdout, stderr io.Writer) int {
	c.environ = os.Environ()
	root := c.Command(os.Getenv)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := Execute(root)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
	}
	return settings.ExitCode(err)
}

// endTimeout is longer than serve needs to end while the API server responds, and shorter than the grace periods of the
// charts and of docker stop. Only tests change it.
var endTimeout = 9 * time.Second

// Execute executes a command line until it ends, or until endTimeout after SIGTERM or Ctrl-C: something may be under way
// that cannot be canceled. A second signal ends the process at once.
func Execute(root *cobra.Command) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		stop()
	}
	select {
	case err := <-ended:
		if err != nil && strings.Contains(err.Error(), context.Canceled.Error()) { // what was interrupted says nothing else
			err = errors.New("interrupted")
		}
		return err
	case <-time.After(endTimeout):
		return fmt.Errorf("something did not end within %s after the signal", endTimeout)
	}
}

// Command returns the binary's root command, which reads the environment through getenv.
func (c Component[C]) Command(getenv func(string) string) *cobra.Command {
	root := NewRoot(c.Name, c.Short, c.Version, c.Commit)
	setHelp(root, nil)
	root.AddCommand(
		c.withConfig(
			getenv,
			&cobra.Command{
				Use:         "serve",
				Short:       "Run until SIGTERM",
				Annotations: map[string]string{failureAnnotation: "the component could not go on"},
			},
			func(cmd *cobra.Command, cfg *C, _ []string) error {
				log := c.LogSettings(cfg).NewLogger(cmd.ErrOrStderr())
				captureGlobalLoggers(log)
				for _, warning := range settings.Misspelled(c.environ, cfg) {
					log.Warn("unknown variable in the environment", "warning", warning)
				}
				service, err := c.Build(cfg, log)
				if err != nil {
					return settings.NewConfigError(err)
				}
				log.Info("starting", "component", c.Name, "version", c.Version)
				defer context.AfterFunc(cmd.Context(), func() { log.Info("stopping", "component", c.Name) })()
				if err = service.Run(cmd.Context()); err == nil {
					log.Info("stopped", "component", c.Name)
				}
				return err
			},
		),
		c.newCheckConfig(getenv),
	)
	for _, sub := range c.Subcommands {
		root.AddCommand(c.newSubcommand(getenv, sub))
	}
	for _, standalone := range c.Standalone {
		root.AddCommand(standalone(getenv))
	}
	return root
}

// NewRoot returns a root command with the command version. Unknown commands and flags are invalid configurations.
func NewRoot(name, short, version, commit string) *cobra.Command {
	root := &cobra.Command{
		Use: name, Short: short, SilenceUsage: true, SilenceErrors: true, Version: versionText(name, version, commit),
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("{{.Version}}")
	// Without Args, cobra reports an unknown command itself, with exit code 1 instead of 2.
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		advice := cmd.CommandPath() + " --help lists all commands"
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			advice = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return settings.NewConfigError(fmt.Errorf("unknown command %q; %s", args[0], advice))
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return settings.NewConfigError(err) })
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print version, commit and Go version", Args: CheckArgs(nil),
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), root.Version) },
	})
	return root
}

func (c Component[C]) newCheckConfig(getenv func(string) string) *cobra.Command {
	check := &cobra.Command{Use: "check-config", Short: "Validate configuration and files; report all problems"}
	offline := check.Flags().Bool("offline", false, "do not read how to connect to a cluster, which a CI does not know")
	return c.withConfig(getenv, check, func(cmd *cobra.Command, cfg *C, _ []string) error {
		if !*offline {
			if _, err := c.Build(cfg, slog.New(slog.DiscardHandler)); err != nil {
				return settings.NewConfigError(err)
			}
		}
		fmt.Fprintln(cmd.OutOrStdout(), "configuration is valid")
		return nil
	})
}

func (c Component[C]) newSubcommand(getenv func(string) string, sub Subcommand[C]) *cobra.Command {
	format := Table
	cmd := c.withConfig(
		getenv,
		&cobra.Command{
			Use:         sub.Use,
			Short:       sub.Short,
			Example:     sub.Example,
			Annotations: map[string]string{failureAnnotation: sub.Failure},
		},
		func(cmd *cobra.Command, cfg *C, args []string) error {
			captureGlobalLoggers(slog.New(slog.DiscardHandler)) // libraries must not write into the result
			return sub.Run(
				cmd.Context(),
				Invocation[C]{Version: c.Version, Config: cfg, Args: args, Format: format, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()},
			)
		},
	)
	cmd.Flags().VarP(&format, "output", "o", "form of the result")
	return cmd
}

// withConfig adds the configuration's flags and a check of the arguments to a command.
func (c Component[C]) withConfig(
	getenv func(string) string,
	cmd *cobra.Command,
	run func(cmd *cobra.Command, cfg *C, args []string) error,
) *cobra.Command {
	cfg := new(C)
	settings.Register(cmd.Flags(), cfg)
	all := settings.List(cfg)
	setHelp(cmd, all)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Args = CheckArgs(strings.Fields(cmd.Use)[1:])
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Name() == "check-config" {
			for _, warning := range settings.Misspelled(c.environ, cfg) {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+warning)
			}
		}
		problems := []error{settings.Load(cmd.Flags(), getenv, cfg), c.checkForbiddenEnv(getenv)}
		if checks := cmd.Name() == "check-config"; checks || cmd.Name() == "serve" {
			offline, _ := cmd.Flags().GetBool("offline") // which serve does not have
			problems = append(problems, c.CheckFiles(cfg, settings.FileChecks{Strict: checks, Cluster: checks && !offline}))
		}
		if err := settings.NewConfigError(errors.Join(problems...)); err != nil {
			return err
		}
		return run(cmd, cfg, args)
	}
	return cmd
}

// CheckArgs returns a check of a command's arguments against their names. Optional ones are in brackets
// and come last.
func CheckArgs(names []string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				return settings.NewConfigError(fmt.Errorf("missing argument %s, want %s", name, cmd.UseLine()))
			}
		}
		if len(args) > len(names) {
			return settings.NewConfigError(fmt.Errorf("unexpected argument %q, want %s", args[len(names)], cmd.UseLine()))
		}
		return nil
	}
}

// checkForbiddenEnv returns an error that names the credentials of the other component in the
// environment.
func (c Component[C]) checkForbiddenEnv(getenv func(string) string) error {
	found := slices.DeleteFunc(slices.Clone(c.ForbiddenEnv), func(name string) bool { return getenv(name) == "" })
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s: credentials of the other component must not be set here; remove them", strings.Join(found, ", "))
}

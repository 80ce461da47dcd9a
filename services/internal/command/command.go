// Package command is the command line that both binaries share: serve, check-config and
// version, and what a half adds to them. It promises that all commands judge a configuration
// alike, and that neither half runs with the other half's credential in its environment.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/services/internal/logging"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Component is what makes one binary differ from the other. C is its configuration struct.
type Component[C any] struct {
	Name    string // of the binary
	Short   string // one sentence
	Version string
	Commit  string // that it was built from; may be empty

	// ForbiddenEnv are environment names of the other half's credentials: with one of them set,
	// this half does not start. A guard rail, not a proof: see docs/architecture.md.
	ForbiddenEnv []string

	// Build makes the service from a valid configuration: it reads files, but asks nobody.
	// Its error is one of configuration.
	Build func(cfg *C, log *slog.Logger) (Service, error)

	// Subcommands are commands of this half alone, with the configuration of serve.
	Subcommands []Subcommand[C]

	// Standalone are commands of this half alone, with settings of their own.
	Standalone []StandaloneCommand
}

// Subcommand is a command for people, with the configuration of serve.
type Subcommand[C any] struct {
	Use   string // its name, then what its arguments are: "explain NODE"; those that may be left out come last: "status [NODE]"
	Short string // one sentence
	Run   func(ctx context.Context, call Invocation[C]) error
}

// Invocation is what was asked of an Extra.
type Invocation[C any] struct {
	Config *C
	Args   []string
	Out    io.Writer // the answer
	Err    io.Writer // what there is to say on the way
}

// StandaloneCommand is a command for people with settings of its own: it runs where they are, with what
// is theirs. Make one with NewStandalone.
type StandaloneCommand struct {
	newCommand func(getenv func(string) string) *cobra.Command
}

// NewStandalone makes a command whose settings are T. Use and run are as in an Extra.
func NewStandalone[T any](use, short string, run func(ctx context.Context, call Invocation[T]) error) StandaloneCommand {
	return StandaloneCommand{func(getenv func(string) string) *cobra.Command {
		return Component[T]{}.newSubcommand(getenv, Subcommand[T]{Use: use, Short: short, Run: run})
	}}
}

// Service is what serve runs.
type Service interface {
	Run(ctx context.Context) error
}

// Main runs the command line and returns the exit code: 2 for a configuration that cannot
// work, 1 for any other error.
func (h Component[C]) Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	root := h.Command(os.Getenv)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", h.Name, err)
	}
	return settings.ExitCode(err)
}

// Command is the binary's command, reading its environment from getenv.
func (h Component[C]) Command(getenv func(string) string) *cobra.Command {
	root := &cobra.Command{
		Use: h.Name, Short: h.Short, SilenceUsage: true, SilenceErrors: true,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2,
	}
	// Without Args cobra reports an unknown command itself, as an error that is none of configuration.
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return settings.FlagError(unknownCommandError(cmd, args[0]))
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return settings.FlagError(err) })
	root.AddCommand(
		h.withConfig(getenv, &cobra.Command{Use: "serve", Short: "Run until SIGTERM"},
			func(cmd *cobra.Command, cfg *C, _ []string) error {
				log := logging.New(cmd.ErrOrStderr(), slog.LevelInfo)
				logging.CaptureGlobalLoggers(log)
				service, err := h.buildService(cfg, log)
				if err != nil {
					return err
				}
				log.Info("starting", "half", h.Name, "version", h.Version)
				return service.Run(cmd.Context())
			}),
		h.withConfig(getenv, &cobra.Command{Use: "check-config", Short: "Say everything that is wrong with the configuration and its files, and exit"},
			func(cmd *cobra.Command, cfg *C, _ []string) error {
				if _, err := h.buildService(cfg, slog.New(slog.DiscardHandler)); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "the configuration can work")
				return nil
			}),
		&cobra.Command{Use: "version", Short: "Print the version, the commit and the version of Go", Args: checkArgs(nil), Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", h.Name, h.Version)
			if h.Commit != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "commit %s\n", h.Commit)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
		}},
	)
	for _, x := range h.Subcommands {
		root.AddCommand(h.newSubcommand(getenv, x))
	}
	for _, tool := range h.Standalone {
		root.AddCommand(tool.newCommand(getenv))
	}
	return root
}

func (h Component[C]) newSubcommand(getenv func(string) string, x Subcommand[C]) *cobra.Command {
	return h.withConfig(getenv, &cobra.Command{Use: x.Use, Short: x.Short},
		func(cmd *cobra.Command, cfg *C, args []string) error {
			logging.CaptureGlobalLoggers(slog.New(slog.DiscardHandler)) // libraries' words would run into the answer
			return x.Run(cmd.Context(), Invocation[C]{Config: cfg, Args: args, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
		})
}

// withConfig gives a command the flags of the configuration, and the arguments that its Use names.
func (h Component[C]) withConfig(getenv func(string) string, cmd *cobra.Command, run func(cmd *cobra.Command, cfg *C, args []string) error) *cobra.Command {
	cfg := new(C)
	settings.Register(cmd.Flags(), cfg)
	cmd.Args = checkArgs(strings.Fields(cmd.Use)[1:])
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(settings.Load(cmd.Flags(), getenv, cfg), h.checkForbiddenEnv(getenv)); err != nil {
			return err
		}
		return run(cmd, cfg, args)
	}
	return cmd
}

// checkArgs checks those of a command against their names; optional ones are in brackets and come last.
func checkArgs(wanted []string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for i, name := range wanted {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				return settings.FlagError(fmt.Errorf("%s is missing: want %s", name, cmd.UseLine()))
			}
		}
		if len(args) > len(wanted) {
			return settings.FlagError(fmt.Errorf("unexpected argument %q: want %s", args[len(wanted)], cmd.UseLine()))
		}
		return nil
	}
}

func unknownCommandError(root *cobra.Command, name string) error {
	advice := root.CommandPath() + " --help lists all"
	if near := root.SuggestionsFor(name); len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q: %s", name, advice)
}

func (h Component[C]) buildService(cfg *C, log *slog.Logger) (Service, error) {
	service, err := h.Build(cfg, log)
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	return service, nil
}

// checkForbiddenEnv says which credentials of the other half this one was handed.
func (h Component[C]) checkForbiddenEnv(getenv func(string) string) error {
	var found []string
	for _, name := range h.ForbiddenEnv {
		if getenv(name) != "" {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w:\n- %s: a credential of the other half is in this one's environment; "+
		"%s refuses to run with it, since the two must never meet: remove it here",
		settings.ErrConfiguration, strings.Join(found, ", "), h.Name)
}

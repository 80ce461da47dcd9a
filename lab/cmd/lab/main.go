// Command lab runs Slicefeed against stand-ins for the outside world.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/bench"
	"github.com/slicefeed/slicefeed/lab/demo"
	"github.com/slicefeed/slicefeed/lab/load/bare"
	"github.com/slicefeed/slicefeed/lab/mutants"
)

// commands lists the subcommands. Those that need more than a few lines live in packages
// of their own, each with a Command function.
func commands() []*cobra.Command {
	return []*cobra.Command{bare.Command(), bench.Command(), buildCommand(), demo.Command(), mutants.Command()}
}

func main() {
	root := &cobra.Command{
		Use:           "lab",
		Short:         "Run Slicefeed against real control planes and stand-ins for the rest of the world",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestASignalEndsWhatCannotBeCanceled(t *testing.T) {
	defer func(was time.Duration) { endTimeout = was }(endTimeout)
	endTimeout = 100 * time.Millisecond
	released := make(chan struct{})
	defer close(released)
	for want, run := range map[string]func(context.Context) error{
		"did not end within 100ms": func(context.Context) error { <-released; return nil },
		"interrupted":              func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("list nodes: %w", ctx.Err()) },
	} {
		started, ended := make(chan struct{}), make(chan error)
		root := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
			close(started)
			return run(cmd.Context())
		}}
		root.SetArgs(nil)
		go func() { ended <- Execute(root) }()
		<-started
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canceled") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

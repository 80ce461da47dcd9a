package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// waitInterval is how often WaitHealthy asks. A writer allows ten calls per second.
const waitInterval = time.Second

// WaitHealthy calls check until it returns no problem, and writes each new problem to progress. It returns the error of
// check, or that of ctx when it is done, with the last problem.
func WaitHealthy(
	ctx context.Context,
	progress io.Writer,
	check func(ctx context.Context) (problem string, err error),
) (last string, err error) {
	deadline, _ := ctx.Deadline()
	err = wait.PollUntilContextCancel(ctx, waitInterval, true, func(ctx context.Context) (healthy bool, err error) {
		problem, err := check(ctx)
		problem = display.Sanitize(problem)
		// The last call may have failed because the time is over: then the one before says more.
		if problem != "" && problem != last && (last == "" || time.Now().Before(deadline)) {
			last = problem
			fmt.Fprintf(progress, "waiting: %s\n", last)
		}
		return problem == "", err
	})
	return last, err
}

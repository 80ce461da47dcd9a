package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// WaitSettings are the settings of wait.
type WaitSettings struct {
	Settings

	Timeout time.Duration `flag:"timeout" default:"5m" min:"1s" max:"24h" flagonly:"true" help:"how long to wait"`
}

// waitHealthy returns when the writer reports the Service as healthy: managed, written as decided, with a ready endpoint
// and without a guard that holds anything. It goes on while the writer does not respond, because it may be starting.
func waitHealthy(ctx context.Context, q request) error {
	name := q.service.GetNamespace() + "/" + q.service.GetService()
	startedAt := time.Now()
	var target *writerv1.ListedTarget
	problem, err := command.WaitHealthy(ctx, q.err, func(ctx context.Context) (_ string, err error) {
		var problems []string
		target, problems, err = q.findProblems(ctx)
		return strings.Join(problems, "; "), err
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s is not healthy after %s: %s", name, time.Since(startedAt).Round(time.Second), problem)
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(
		q.out,
		"%s is healthy: %d ready, %d draining, %d not ready\n",
		name,
		target.GetReady(),
		target.GetDraining(),
		target.GetNotReady(),
	)
	return err
}

// findProblems returns what keeps the Service from being healthy. Its error is one that waiting does not change.
func (q *request) findProblems(ctx context.Context) (target *writerv1.ListedTarget, problems []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	targets, err := q.writer.ListTargets(ctx, &writerv1.ListTargetsRequest{Services: []*writerv1.ServiceSelector{q.service}})
	if err != nil {
		final := []codes.Code{codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented}
		if failure, _ := status.FromError(err); !slices.Contains(final, failure.Code()) {
			return nil, []string{q.describeFailure(failure)}, nil
		}
		return nil, nil, err
	}
	if reason := targets.GetStatus().GetReason(); reason != "" {
		return nil, []string{"the writer is not ready: " + display.Sanitize(reason)}, nil
	}
	if len(targets.GetTargets()) != 1 {
		return nil, []string{
			"it is not a target of this writer; check its label slicefeed.dev/class, and that the writer watches its namespace",
		}, nil
	}
	target = targets.GetTargets()[0]
	if target.GetTarget().GetState() != writerv1.TargetState_TARGET_STATE_MANAGED {
		problems = append(problems, display.Sanitize(describeState(target.GetTarget())))
	}
	if target.GetReady() == 0 {
		problems = append(problems, "no ready endpoints")
	}
	if n := target.GetOutOfSync(); n > 0 {
		problems = append(problems, display.Count(int(n), "address", "addresses")+" out of sync")
	}
	if n := targets.GetStatus().GetHeld(); n > 0 {
		problems = append(problems, q.describeHeld(ctx, n))
	}
	return target, problems, nil
}

// describeHeld names the guards that hold changes, if the caller may see them.
func (q *request) describeHeld(ctx context.Context, held uint32) string {
	details, err := listDetails(ctx, *q)
	if err != nil || len(details.GetGuards()) == 0 {
		return display.Count(int(held), "change", "changes") + " held by guards"
	}
	var guards []string
	for _, g := range details.GetGuards() {
		guards = append(guards, display.Sanitize(describeGuard(g)))
	}
	return strings.Join(guards, "; ")
}

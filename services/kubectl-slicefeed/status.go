package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
)

func newStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the status of both components, problems first",
		Example: "  kubectl slicefeed status --secured-context blue --consuming-context green",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			components, err := o.components(inventory, writer)
			if err != nil {
				return err
			}
			var problems []error
			for _, c := range components {
				if err := c.printStatus(cmd.Context(), cmd.OutOrStdout()); err != nil {
					problems = append(problems, err)
				}
			}
			return errors.Join(problems...)
		},
	}
}

// printStatus prints the status page of one Pod. Its error says that it could not, or that the page has problems.
func (c *component) printStatus(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pod, err := c.connect(ctx)
	if err != nil {
		return err
	}
	page, err := statuspage.Fetch(ctx, c.name, pod.address, "")
	if err != nil {
		return fmt.Errorf("%s: %w", pod, err)
	}
	fmt.Fprintf(out, "%s:\n", display.Sanitize(pod.String()))
	if err := statuspage.NewTerminal(out).Write(out, page); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if page.Summary.Severity != statuspage.OK {
		return fmt.Errorf("%s: problems found", c.name)
	}
	return nil
}

func newWaitCommand(o *options) *cobra.Command {
	timeout := 5 * time.Minute
	cmd := &cobra.Command{
		Use:     "wait NAMESPACE/SERVICE",
		Short:   "Wait until the writer reports a Service as healthy",
		Example: "  kubectl slicefeed wait web/shop --timeout 2m",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject, err := parseSubject(args[0])
			if err != nil || subject.service == nil {
				return usageError{fmt.Errorf("%q: want NAMESPACE/SERVICE, such as web/shop", args[0])}
			}
			components, err := o.components(writer)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return waitHealthy(ctx, cmd.ErrOrStderr(), args[0], components[0].summary)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return cmd
}

// waitHealthy returns nil when the summary of the Service is OK, and an error with the last problem when ctx is done.
func waitHealthy(ctx context.Context, progress io.Writer, service string, summary func(context.Context, string) (statuspage.Line, error)) error {
	problem, err := command.WaitHealthy(ctx, progress, func(ctx context.Context) (string, error) {
		line, err := summary(ctx, service)
		if err == nil && line.Severity == statuspage.OK {
			return "", nil
		}
		if err != nil {
			line.Text = err.Error()
		}
		return line.Text, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not healthy: %s", service, problem)
	}
	return nil
}

// summary returns the leading writer's summary of a Service.
func (c *component) summary(ctx context.Context, service string) (statuspage.Line, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pod, err := c.connect(ctx)
	if err != nil {
		return statuspage.Line{}, err
	}
	page, err := statuspage.Fetch(ctx, c.name, pod.address, service)
	if err != nil {
		return statuspage.Line{}, err
	}
	return page.Summary, nil
}

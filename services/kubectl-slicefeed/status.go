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
	var format command.Format
	cmd := &cobra.Command{
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
			pages := []*statuspage.Page{}
			for _, c := range components {
				pod, page, err := c.page(cmd.Context(), "")
				if err != nil {
					problems = append(problems, err)
					continue
				}
				if page.Summary.Severity != statuspage.OK {
					problems = append(problems, fmt.Errorf("%s: problems found", c.name))
				}
				if pages = append(pages, page); format.IsTable() {
					problems = append(problems, printPage(cmd.OutOrStdout(), pod, page))
				}
			}
			if !format.IsTable() {
				problems = append(problems, format.Write(cmd.OutOrStdout(), struct {
					Pages []*statuspage.Page `json:"pages"`
				}{pages}))
			}
			return errors.Join(problems...)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

// page returns the status page of one Pod, if possible of the leading writer, and says which Pod that is. With a filter
// it is limited to that name.
func (c *component) page(ctx context.Context, filter string) (pod string, page *statuspage.Page, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.connect(ctx)
	if err != nil {
		return "", nil, err
	}
	if page, err = statuspage.Fetch(ctx, c.name, conn.address, filter); err != nil {
		return "", nil, fmt.Errorf("%s: %w", conn, err)
	}
	return conn.String(), page, nil
}

func printPage(out io.Writer, pod string, page *statuspage.Page) error {
	fmt.Fprintf(out, "%s:\n", display.Sanitize(pod))
	if err := statuspage.NewTerminal(out).Write(out, page); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
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
			return waitHealthy(ctx, cmd.ErrOrStderr(), args[0], components[0].page)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return cmd
}

// waitHealthy returns nil when the page of the Service is OK, and an error with the last problem when ctx is done.
func waitHealthy(
	ctx context.Context,
	progress io.Writer,
	service string,
	page func(ctx context.Context, filter string) (pod string, page *statuspage.Page, err error),
) error {
	problem, err := command.WaitHealthy(ctx, progress, func(ctx context.Context) (string, error) {
		_, page, err := page(ctx, service)
		problem := ""
		if err != nil { // it may succeed later
			problem = err.Error()
		} else if page.Summary.Severity != statuspage.OK {
			problem = page.Summary.Text
		}
		return problem, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not healthy: %s", service, problem)
	}
	return nil
}

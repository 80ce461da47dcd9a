package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/slicefeed/slicefeed/services/internal/command"
)

func newLogsCommand(o *options) *cobra.Command {
	var follow bool
	var since time.Duration
	tail := int64(20)
	cmd := &cobra.Command{
		Use:     "logs",
		Short:   "Show the logs of all Pods of both components",
		Example: "  kubectl slicefeed logs --follow --since 10m",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			components, err := o.components(inventory, writer)
			if err != nil {
				return err
			}
			logOptions := &corev1.PodLogOptions{Follow: follow}
			if tail >= 0 {
				logOptions.TailLines = &tail
			}
			if since > 0 {
				seconds := int64(max(since.Round(time.Second), time.Second) / time.Second)
				logOptions.SinceSeconds = &seconds
			}
			return printLogs(cmd.Context(), cmd.OutOrStdout(), components, logOptions)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	cmd.Flags().DurationVar(&since, "since", 0, "only what is newer than this; all when unset")
	cmd.Flags().Int64Var(&tail, "tail", tail, "only this many last lines of each Pod; -1 for all")
	return cmd
}

// printLogs prints the logs of all Pods, each line after the Pod's name. One that cannot be read does not stop the
// others.
func printLogs(ctx context.Context, out io.Writer, components []*component, logOptions *corev1.PodLogOptions) error {
	var mu sync.Mutex
	var problems []error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, err)
	}
	var all sync.WaitGroup
	for _, c := range components {
		pods, err := c.pods(ctx)
		if err != nil {
			fail(err)
			continue
		}
		for _, pod := range pods {
			all.Go(func() {
				stream, err := c.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, logOptions).Stream(ctx)
				if err != nil {
					fail(fmt.Errorf("logs of Pod %s/%s in context %q: %w", pod.Namespace, pod.Name, c.context, err))
					return
				}
				defer stream.Close() //nolint:errcheck // only read
				lines := bufio.NewScanner(stream)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					mu.Lock()
					fmt.Fprintf(out, "%s %s\n", pod.Name, lines.Text())
					mu.Unlock()
				}
				if err := lines.Err(); err != nil && ctx.Err() == nil {
					fail(fmt.Errorf("logs of Pod %s/%s in context %q: %w", pod.Namespace, pod.Name, c.context, err))
				}
			})
		}
	}
	all.Wait()
	return errors.Join(problems...)
}

// newExecCommand returns the command that runs the command of the same name in a Pod of each component.
func newExecCommand(o *options, name, short string, where ...string) *cobra.Command {
	var format command.Format
	cmd := &cobra.Command{
		Use: name, Short: short, Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			components, err := o.components(where...)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			headings, program := out, []string{name}
			if !format.IsTable() { // then standard output has the components' documents alone
				headings, program = cmd.ErrOrStderr(), []string{name, "--output", format.String()}
			}
			var problems []error
			for _, c := range components {
				pods, err := c.pods(cmd.Context())
				if err == nil {
					fmt.Fprintf(headings, "%s in context %q, Pod %s/%s:\n", c.name, c.context, pods[0].Namespace, pods[0].Name)
					if format == command.YAML {
						fmt.Fprintln(out, "---")
					}
					err = c.exec(cmd.Context(), &pods[0], append([]string{"/" + c.name}, program...), out, cmd.ErrOrStderr())
				}
				if err != nil {
					problems = append(problems, fmt.Errorf("%s: %w", c.name, err))
				}
				fmt.Fprintln(headings)
			}
			return errors.Join(problems...)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

// exec runs a program in a Pod's first container.
func (c *component) exec(ctx context.Context, pod *corev1.Pod, program []string, stdout, stderr io.Writer) error {
	target := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: pod.Spec.Containers[0].Name, Command: program, Stdout: true, Stderr: true}, scheme.ParameterCodec).
		URL()
	websocket, err := remotecommand.NewWebSocketExecutor(c.config, "GET", target.String())
	if err != nil {
		return err
	}
	overSPDY, err := remotecommand.NewSPDYExecutor(c.config, "POST", target)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(websocket, overSPDY, needsSPDY)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
}

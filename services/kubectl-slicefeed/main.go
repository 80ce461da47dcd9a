// Command kubectl-slicefeed is a kubectl plugin for operators. It requests the reports of the inventories and the
// writers, each in its own cluster, and prints them one after the other.
//
// It uses the kubeconfig of the person who runs it and nothing else: it finds the Pods of each Deployment of a component
// and forwards a port of this machine to their debug listeners, as kubectl port-forward does. So it needs the rights to
// list Deployments, ReplicaSets and Pods, and to forward ports. It never reads a credential of a component and changes
// nothing.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Set by the linker.
var version, commit string

func main() {
	klog.SetOutput(os.Stderr)
	err := command.Execute(newCommand(os.Getenv))
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(os.Stderr, "kubectl slicefeed: %s\n", strings.TrimSpace(display.Sanitize(line)))
		}
	}
	os.Exit(settings.ExitCode(err))
}

// Names of the environment variables that stand for the flags of the contexts.
const (
	securedContextEnv   = "SLICEFEED_SECURED_CONTEXT"
	consumingContextEnv = "SLICEFEED_CONSUMING_CONTEXT"
)

func newCommand(getenv func(string) string) *cobra.Command {
	o := &options{getenv: getenv, forward: forward}
	root := command.NewRoot("kubectl-slicefeed", "Show what the inventory and the writer of Slicefeed do, and why",
		command.Version(version), command.Commit(commit))
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl slicefeed"}
	root.Long = root.Short + `.

Each component is looked for in the cluster that its context names, or is at an address that this machine reaches.
With no context, both are looked for in the current one; with one context or address, only that component.

Exit codes: 0 success; 1 there is a problem, or a component does not respond; 2 invalid flags or arguments.`
	o.addFlags(root.PersistentFlags())
	root.AddCommand(
		o.newReportCommand(&cobra.Command{
			Use: "status", Short: "Show the state of all inventories and writers, problems first",
			Example: "  kubectl slicefeed status --secured-context blue --consuming-context green",
		}),
		o.newReportCommand(&cobra.Command{
			Use: "explain FILTER", Short: "Show what both components know of a node, an address or a Service, and why",
			Example: "  kubectl slicefeed explain worker-4\n  kubectl slicefeed explain 10.0.1.14\n" +
				"  kubectl slicefeed explain web/shop\n  kubectl slicefeed explain web/shop/10.0.1.14 -o json",
		}),
		o.newWaitCommand(),
	)
	return root
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "your kubeconfig; as for kubectl when unset")
	flags.StringVar(&o.all.context, "context", "", "context of the cluster with both components")
	flags.StringVarP(&o.all.namespace, "namespace", "n", "", "namespace of both components; all when unset")
	flags.StringVar(&o.secured.context, "secured-context", "", "context of the cluster with the inventory [$"+securedContextEnv+"]")
	flags.StringVar(&o.consuming.context, "consuming-context", "", "context of the cluster with the writer [$"+consumingContextEnv+"]")
	flags.StringVar(&o.secured.namespace, "secured-namespace", "", "namespace of the inventory")
	flags.StringVar(&o.consuming.namespace, "consuming-namespace", "", "namespace of the writer")
	flags.StringSliceVar(&o.secured.addresses, "inventory-address", nil, "host:port of an inventory's debug listener, not in a cluster")
	flags.StringSliceVar(&o.consuming.addresses, "writer-address", nil, "host:port of a writer's debug listener, not in a cluster")
	flags.IntVar(&o.debugPort, "debug-port", 6060, "port of the components' DEBUG_ADDRESS in their Pods")
}

// newReportCommand returns a command that prints reports. Its argument is their filter.
func (o *options) newReportCommand(cmd *cobra.Command) *cobra.Command {
	format, watch := command.Table, false
	cmd.Flags().VarP(&format, "output", "o", "form of the result")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print it again every two seconds")
	cmd.Args = command.CheckArgs(strings.Fields(cmd.Use)[1:])
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return report.Repeat(cmd.Context(), watch, cmd.OutOrStdout(), func(out io.Writer) error {
			filter := strings.Join(args, "")
			answers, err := o.ask(cmd.Context(), filter, report.Inventory, report.Writer)
			if err != nil {
				return err
			}
			known := slices.ContainsFunc(answers, func(a answer) bool { return a.err != nil || !report.IsEmpty(a.Report.Report) })
			if filter != "" && !known {
				return fmt.Errorf("no component knows %s", filter)
			}
			return printAnswers(out, format, answers)
		})
	}
	return cmd
}

// printAnswers prints reports, and returns the errors of the components that sent none, and whether there are problems.
func printAnswers(out io.Writer, format command.Format, answers []answer) (err error) {
	problems := false
	for i := range answers {
		a := &answers[i]
		err = errors.Join(err, a.err)
		if a.Report.Report == nil {
			continue
		}
		problems = problems || report.Err(a.Report) != nil
		if format.IsTable() {
			fmt.Fprintf(out, "# %s\n", display.Sanitize(strings.TrimSuffix(a.Component+" "+a.Where+", Pod "+a.Pod, ", Pod ")))
			err = errors.Join(err, report.Write(out, a.Report.Report))
			fmt.Fprintln(out)
		}
	}
	if !format.IsTable() {
		err = errors.Join(err, format.Write(out, map[string]any{"reports": answers}))
	}
	if problems {
		err = errors.Join(err, report.ErrProblems)
	}
	return err
}

func (o *options) newWaitCommand() *cobra.Command {
	timeout := 5 * time.Minute
	cmd := &cobra.Command{
		Use:     "wait NAMESPACE/SERVICE",
		Short:   "Wait until a writer reports a Service as healthy",
		Example: "  kubectl slicefeed wait web/shop --timeout 2m",
		Args:    command.CheckArgs([]string{"NAMESPACE/SERVICE"}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if namespace, name, _ := strings.Cut(args[0], "/"); namespace == "" || name == "" || strings.Contains(name, "/") {
				return settings.NewConfigError(fmt.Errorf("%q: want NAMESPACE/SERVICE, such as web/shop", args[0]))
			}
			return o.wait(cmd.Context(), timeout, cmd.ErrOrStderr(), args[0])
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return cmd
}

// wait returns nil when a writer reports the Service and no problem of it. Else it returns what the last problem was. A
// call that has begun ends, so that its answer is not that the time is over.
func (o *options) wait(ctx context.Context, timeout time.Duration, progress io.Writer, service string) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(context.Context) (bool, error) {
		answers, err := o.ask(ctx, service, report.Writer)
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return false, err
		}
		problem := findProblem(answers)
		if problem != "" && problem != last {
			fmt.Fprintln(progress, "waiting: "+display.Sanitize(problem))
		}
		last = problem
		return problem == "", nil
	})
	if err != nil && last != "" && ctx.Err() == nil {
		return fmt.Errorf("%s is not healthy: %s", service, last)
	}
	return err
}

// findProblem returns what keeps a Service from being healthy, or nothing.
func findProblem(answers []answer) string {
	problem := "no writer has this Service: check its class label"
	for i := range answers {
		a := &answers[i]
		if a.err != nil {
			problem = a.err.Error()
			continue
		}
		if report.IsEmpty(a.Report.Report) {
			continue
		}
		if report.Err(a.Report.Report) == nil {
			return ""
		}
		worst := report.Worst(a.Report.GetProblems())
		return strings.TrimSpace(worst.GetMessage() + "; " + worst.GetAdvice())
	}
	return problem
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

func newExplainCommand(o *options) *cobra.Command {
	var format command.Format
	cmd := &cobra.Command{
		Use:   "explain NODE|NAMESPACE/SERVICE|ADDRESS",
		Short: "Explain a node, a Service or an address across both components",
		Example: "  kubectl slicefeed explain worker-4\n" +
			"  kubectl slicefeed explain web/shop -o json\n" +
			"  kubectl slicefeed explain 10.0.1.14",
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := parseSubject(args[0])
			if err != nil {
				return usageError{err}
			}
			names := []string{inventory, writer}
			if s.service != nil {
				names = []string{writer, inventory}
			}
			components, err := o.components(names...)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			r, err := connectAll(ctx, components, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			found, err := r.explain(ctx, s)
			if err != nil {
				return err
			}
			if err := found.write(cmd.OutOrStdout(), format); err != nil {
				return err
			}
			return found.check(s)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

// connectAll connects to a Pod of each component, and says to which.
func connectAll(ctx context.Context, components []*component, log io.Writer) (*reader, error) {
	r := &reader{}
	for _, c := range components {
		pod, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "# %s\n", display.Sanitize(pod.String()))
		if c.name == inventory {
			r.inventory = inventoryv1.NewInventoryOperatorServiceClient(pod)
			continue
		}
		r.writer = writerv1.NewWriterOperatorServiceClient(pod)
		r.listed = c.listedAddresses
	}
	return r, nil
}

// listedAddresses returns the addresses in all slices of a Service, whoever manages them.
func (c *component) listedAddresses(ctx context.Context, service *writerv1.ServiceSelector) (all []netip.Addr, err error) {
	label := discoveryv1.LabelServiceName
	name, ofImport := strings.CutSuffix(service.GetService(), importSuffix)
	if ofImport {
		label = "multicluster.kubernetes.io/service-name"
	}
	list, err := c.client.DiscoveryV1().
		EndpointSlices(service.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: label + "=" + name})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices in context %q: %w", c.context, err)
	}
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			for _, text := range endpoint.Addresses {
				if a, err := netip.ParseAddr(text); err == nil { // not the name of a slice of type FQDN
					all = append(all, a)
				}
			}
		}
	}
	return all, nil
}

var resultMarks = map[inventoryv1.StepResult]string{
	inventoryv1.StepResult_STEP_RESULT_PASSED:  "ok",
	inventoryv1.StepResult_STEP_RESULT_FAILED:  "no",
	inventoryv1.StepResult_STEP_RESULT_SKIPPED: "-",
}

// write writes the report in a format.
func (r *report) write(out io.Writer, format command.Format) error {
	if format.IsTable() {
		return r.writeTable(out)
	}
	return format.Write(out, struct {
		Nodes        []command.Message `json:"nodes"`
		Explanations []command.Message `json:"explanations"`
		Targets      []command.Message `json:"targets"`
		Endpoints    []command.Message `json:"endpoints"`
	}{command.Messages(r.nodes), command.Messages(r.steps), command.Messages(r.targets), command.Messages(r.endpoints)})
}

// writeTable writes the report for people.
func (r *report) writeTable(out io.Writer) error {
	var b bytes.Buffer
	printf := func(format string, args ...any) {
		for i, a := range args {
			if text, ok := a.(string); ok {
				args[i] = display.Sanitize(text)
			}
		}
		fmt.Fprintf(&b, format, args...)
	}
	for _, n := range r.steps {
		printf("Node %s\n", n.GetName())
		for _, step := range n.GetSteps() {
			printf("  %-2s  %s %s\n", resultMarks[step.GetResult()], step.GetQuestion(), step.GetDetail())
		}
		printf("%s\n\n", n.GetConclusion())
	}
	rows := len(r.steps) == 0 // of a Service
	for _, t := range r.targets {
		l := t.GetTarget()
		printf(
			"Service %s/%s: %s, %d ready, %d draining, %d not ready\n",
			l.GetNamespace(),
			l.GetService(),
			strings.ToLower(
				strings.TrimPrefix(l.GetTarget().GetState().String(), "TARGET_STATE_"),
			),
			l.GetReady(),
			l.GetDraining(),
			l.GetNotReady(),
		)
		if message := l.GetTarget().GetMessage(); message != "" {
			printf("  %s: %s\n", l.GetTarget().GetReason(), message)
		}
		for _, g := range t.GetGuards() {
			printf("  guard %s: %s\n", g.GetRule(), g.GetMessage())
		}
		if rows {
			r.writeRows(&b, l)
		} else {
			r.writeChains(printf, l)
		}
		printf("\n")
	}
	if rows {
		for _, n := range r.nodes {
			if reason := n.GetOmitted().
				GetReason(); n.GetOmitted() != nil &&
				reason != inventoryv1.OmissionReason_OMISSION_REASON_CONTROL_PLANE {
				printf("Node %s is omitted: %s\n", n.GetName(), n.GetOmitted().GetAdvice())
			}
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// writeChains writes how each endpoint of a Service was decided.
func (r *report) writeChains(printf func(format string, args ...any), t *writerv1.ListedTarget) {
	for _, e := range r.endpointsOf(t) {
		printf("  %s\n", e.GetAddress())
		for _, step := range e.GetSteps() {
			printf("    %-8s  %s\n", step.GetStage(), step.GetDetail())
		}
		printf("    %s\n", strings.TrimSpace(e.GetConclusion()+" "+e.GetAdvice()))
	}
}

func (r *report) endpointsOf(t *writerv1.ListedTarget) (its []*writerv1.ExplainEndpointResponse) {
	for _, e := range r.endpoints {
		if e.GetNamespace() == t.GetNamespace() && e.GetService() == t.GetService() {
			its = append(its, e)
		}
	}
	return its
}

// writeRows writes one line for each endpoint of a Service.
func (r *report) writeRows(out io.Writer, t *writerv1.ListedTarget) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tNODE\tLISTED\tDECISION\tREASON")
	for _, e := range r.endpointsOf(t) {
		node := "-"
		for _, s := range e.GetSources() {
			if s.GetListed() {
				node = s.GetMember()
			}
		}
		reason := cmp.Or(e.GetReason(), e.GetConclusion())
		if rule := e.GetRule(); rule != "" && rule != "table" {
			reason += " (guard " + rule + ")"
		}
		fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%s\t%s\n",
			e.GetAddress(),
			display.Sanitize(node),
			conditions(e.GetCurrent()),
			conditions(e.GetDesired()),
			display.Sanitize(reason),
		)
	}
	_ = table.Flush() // into memory
}

// conditions names the conditions of an endpoint; nil: it is not listed.
func conditions(b *writerv1.Backend) string {
	if b == nil {
		return "no"
	}
	return display.EndpointConditions(b.GetReady(), b.GetServing(), b.GetTerminating())
}

package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/duration"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// listing is the result of endpoints: messages of slicefeed.writer.v1.
type listing struct {
	Status  command.Message   `json:"status"`  // a WriterStatus
	Target  command.Message   `json:"target"`  // a ListedTarget
	Groups  []command.Message `json:"groups"`  // a Group for each port
	Details command.Message   `json:"details"` // a TargetDetails, or null if the caller is no operator
}

// listEndpoints prints the endpoints of a Service, its guards and the status of its sources.
func listEndpoints(ctx context.Context, q request) error {
	of := []*writerv1.ServiceSelector{q.service}
	targets, err := q.writer.ListTargets(ctx, &writerv1.ListTargetsRequest{Services: of})
	if err != nil {
		return err
	}
	if reason := targets.GetStatus().GetReason(); reason != "" {
		return errors.New("the writer is not ready: " + display.Sanitize(reason))
	}
	if len(targets.GetTargets()) != 1 {
		return fmt.Errorf(
			"%s/%s is not a target of this writer; check the label slicefeed.dev/class of the Service, and that the writer watches its namespace",
			q.service.GetNamespace(),
			q.service.GetService(),
		)
	}
	set, err := currentSet(ctx, q.writer, &writerv1.WatchEndpointsRequest{Services: of, GroupByPort: true})
	if err != nil {
		return err
	}
	details, err := listDetails(ctx, q)
	if err != nil {
		return err
	}
	target := targets.GetTargets()[0]
	if !q.format.IsTable() {
		var groups []*writerv1.Group
		for _, e := range set {
			if e.GetGroup() != nil {
				groups = append(groups, e.GetGroup())
			}
		}
		return q.format.Write(q.out, listing{
			Status: command.Message{Message: targets.GetStatus()}, Target: command.Message{Message: target},
			Groups: command.Messages(groups), Details: command.Message{Message: details},
		})
	}
	q.printRow(
		"",
		fmt.Sprintf(
			"%s/%s: %s, %s",
			target.GetNamespace(),
			target.GetService(),
			describeState(target.GetTarget()),
			roleName(targets.GetStatus().GetLeading()),
		),
	)
	q.printRow("ports", describePorts(target.GetTarget()))
	fmt.Fprintln(q.out)
	printBackends(q.out, set)
	fmt.Fprintf(q.out, "\n%d ready, %d draining, %d not ready\n\n", target.GetReady(), target.GetDraining(), target.GetNotReady())
	printStatus(q, details, targets.GetStatus())
	return nil
}

// listDetails returns the details of the target, or none for callers that are not operators.
func listDetails(ctx context.Context, q request) (*writerv1.TargetDetails, error) {
	details, err := q.operator.ListTargetDetails(ctx, &writerv1.ListTargetDetailsRequest{Services: []*writerv1.ServiceSelector{q.service}})
	switch {
	case status.Code(err) == codes.PermissionDenied:
		return nil, nil
	case err != nil:
		return nil, err
	case len(details.GetTargets()) == 0:
		return nil, nil // it has left since ListTargets
	}
	return details.GetTargets()[0], nil
}

// currentSet reads a stream up to its first synced message.
func currentSet(ctx context.Context, writer writerv1.WriterServiceClient, req *writerv1.WatchEndpointsRequest) ([]*writerv1.Entry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := writer.WatchEndpoints(ctx, req)
	if err != nil {
		return nil, err
	}
	var set []*writerv1.Entry
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if m.GetReset_() {
			set = nil
		}
		set = append(set, m.GetUpserts()...)
		if m.GetSynced() {
			if len(set) != int(m.GetCount()) {
				return nil, fmt.Errorf("incomplete response from the writer: want %d entries, got %d", m.GetCount(), len(set))
			}
			return set, nil
		}
	}
}

// printBackends prints the backends of the first port. Every port has the same ones, because decisions
// are made per address.
func printBackends(out io.Writer, set []*writerv1.Entry) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush() //nolint:errcheck // earlier writes to out have failed as well
	fmt.Fprintln(w, "ADDRESS\tSTATE\tZONE\tSOURCE")
	i := slices.IndexFunc(set, func(e *writerv1.Entry) bool { return e.GetGroup() != nil })
	if i < 0 {
		return
	}
	for _, b := range set[i].GetGroup().GetBackends() {
		state := verdict.Conditions{Ready: b.GetReady(), Serving: b.GetServing(), Terminating: b.GetTerminating()}
		fmt.Fprintf(
			w,
			"%s\t%s\t%s\t%s\n",
			display.Sanitize(b.GetAddress()),
			state,
			display.Sanitize(b.GetZone()),
			display.Sanitize(b.GetSource()),
		)
	}
	if n := set[i].GetGroup().GetOmitted(); n > 0 {
		fmt.Fprintf(w, "… and %d more\n", n)
	}
}

// printStatus prints what guards hold, and the sources that are not connected or not synced, even if no
// guard is active yet.
func printStatus(q request, details *writerv1.TargetDetails, status *writerv1.WriterStatus) {
	for _, g := range details.GetGuards() {
		q.printRow("guard", describeGuard(g))
	}
	if n := status.GetHeld(); n > 0 && details == nil {
		q.printRow("", fmt.Sprintf("changes held by guards: %d; only clients with role operator see the guards", n))
	}
	if details != nil {
		q.printRow("next decision", describeNextDecision(details.GetNextDecisionIn()))
	}
	for _, s := range status.GetSources() {
		if s.GetReason() != "" {
			q.printRow("source", s.GetName()+": "+s.GetReason())
		}
	}
}

const (
	textWidth  = 100 // columns
	labelWidth = 15
)

// printRow prints text from the writer behind a label, if it has one.
func (q *request) printRow(label, text string) {
	switch {
	case text == "":
	case label == "":
		fmt.Fprintln(q.out, display.Wrap(text, textWidth, 0))
	default:
		fmt.Fprintf(q.out, "%-*s%s\n", labelWidth, display.Sanitize(label)+":", display.Wrap(text, textWidth, labelWidth))
	}
}

func describeState(t *writerv1.Target) string {
	text := cmp.Or(endpoints.State(t.GetState()).String(), t.GetState().String()) // numbered as on the wire
	if t.GetMessage() != "" {
		text += " (" + t.GetReason() + ": " + t.GetMessage() + ")"
	}
	return text
}

func roleName(leading bool) string {
	if leading {
		return "as seen by the leader"
	}
	return "as seen by a standby"
}

func describePorts(t *writerv1.Target) string {
	var all []endpoints.Port
	for _, p := range t.GetPorts() {
		all = append(all, endpoints.Port{Name: p.GetName(), Protocol: p.GetProtocol(), Number: uint16(p.GetNumber())})
	}
	return endpoints.DescribePorts(all)
}

func describeGuard(g *writerv1.Guard) string {
	return endpoints.DescribeGuard(
		&verdict.Guard{Rule: verdict.Rule(g.GetRule()), Source: g.GetSource(), Held: int(g.GetHeld()), Message: g.GetMessage()},
	)
}

func describeNextDecision(in *durationpb.Duration) string {
	if in == nil {
		return "with the next change"
	}
	return "in " + duration.HumanDuration(in.AsDuration())
}

package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

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
		return fmt.Errorf("%s/%s is not a target of this writer; check the label slicefeed.dev/class of the Service, and that the writer watches its namespace",
			q.service.GetNamespace(), q.service.GetService())
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
	fmt.Fprintf(q.out, "%s/%s: %s, %s\n", target.GetNamespace(), target.GetService(), describeState(target.GetTarget()), roleName(targets.GetStatus().GetLeading()))
	fmt.Fprintf(q.out, "ports: %s\n\n", describePorts(target.GetTarget().GetPorts()))
	printBackends(q.out, set)
	fmt.Fprintf(q.out, "%d ready, %d draining, %d not ready\n", target.GetReady(), target.GetDraining(), target.GetNotReady())
	printStatus(q.out, details, targets.GetStatus())
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
	fmt.Fprintln(w, "ADDRESS\tSTATE\tZONE\tSOURCE")
	for _, e := range set {
		group := e.GetGroup()
		if group == nil {
			continue
		}
		for _, b := range group.GetBackends() {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", display.Sanitize(b.GetAddress()), describeConditions(b), display.Sanitize(b.GetZone()), display.Sanitize(b.GetSource()))
		}
		if n := group.GetOmitted(); n > 0 {
			fmt.Fprintf(w, "… and %d more\n", n)
		}
		break
	}
	_ = w.Flush() // earlier writes to out have failed as well
	fmt.Fprintln(out)
}

// printStatus prints what guards hold, and the sources that are not connected or not synced, even if no
// guard is active yet.
func printStatus(out io.Writer, details *writerv1.TargetDetails, status *writerv1.WriterStatus) {
	for _, g := range details.GetGuards() {
		fmt.Fprintf(out, "\n%s\n", display.Wrap(describeGuard(g)+": "+g.GetMessage(), textWidth, 2))
	}
	if n := status.GetHeld(); n > 0 && details == nil {
		fmt.Fprintf(out, "\nchanges held by guards: %d; only clients with role operator see the guards\n", n)
	}
	if in := details.GetNextDecisionIn(); in != nil {
		fmt.Fprintf(out, "next decision in %s\n", formatAge(in))
	}
	for _, s := range status.GetSources() {
		if s.GetReason() != "" {
			fmt.Fprintf(out, "\n%s\n", display.Wrap("source "+s.GetName()+": "+s.GetReason(), textWidth, 2))
		}
	}
}

func describeState(t *writerv1.Target) string {
	names := map[writerv1.TargetState]string{
		writerv1.TargetState_TARGET_STATE_MANAGED: "managed", writerv1.TargetState_TARGET_STATE_PAUSED: "paused",
		writerv1.TargetState_TARGET_STATE_REJECTED: "rejected",
	}
	text, ok := names[t.GetState()]
	if !ok {
		text = t.GetState().String()
	}
	if t.GetMessage() != "" {
		text += " (" + display.Sanitize(t.GetReason()) + ": " + display.Sanitize(t.GetMessage()) + ")"
	}
	return text
}

func roleName(leading bool) string {
	if leading {
		return "as seen by the leader"
	}
	return "as seen by a standby"
}

func describePorts(all []*writerv1.Port) string {
	if len(all) == 0 {
		return "none"
	}
	var parts []string
	for _, p := range all {
		text := fmt.Sprintf("%d/%s", p.GetNumber(), display.Sanitize(p.GetProtocol()))
		if p.GetName() != "" {
			text = display.Sanitize(p.GetName()) + " " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

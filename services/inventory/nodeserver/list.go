package nodeserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostText bounds what one word of an explanation says, in bytes.
const mostText = 1024

// ListNodes returns the nodes of the client's view once, and to operators those left out, with
// the reasons for each on demand.
func (s *Server) ListNodes(ctx context.Context, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, ok := s.cfg.Identify(ctx)
	if !ok {
		return nil, errUnknown
	}
	if req.GetExplain() && !client.Operator {
		return nil, status.Error(codes.PermissionDenied, "explanations are for clients with the role of operator")
	}
	store := s.cfg.Stores.Acquire(client.View)
	all := store.All()
	s.cfg.Stores.Release(store, time.Now())
	if !all.Synced && !client.Operator {
		return nil, status.Error(codes.Unavailable, "the inventory has not completed its first look")
	}
	asked := map[string]bool{}
	for _, name := range req.GetNames() {
		asked[name] = true
	}
	wanted := func(name string) bool { return len(asked) == 0 || asked[name] }

	now := time.Now()
	list := &inventoryv1.ListNodesResponse{Status: wireStatus(all.Status, now), Digest: all.At.Digest[:]}
	if all.Synced {
		list.Cursor = &inventoryv1.Cursor{Epoch: all.At.Epoch, Revision: all.At.Revision}
	}
	for _, e := range all.Upserts {
		if !wanted(e.Node.Name) {
			continue
		}
		n := wireNode(e, now)
		if client.Operator {
			n.ProviderId, n.ServerId = bounded(e.Node.ProviderID), bounded(e.Node.ServerID)
		}
		list.Nodes = append(list.Nodes, n)
	}
	if client.Operator {
		list.Omitted = slices.DeleteFunc(s.omitted(client.View), func(o *inventoryv1.OmittedNode) bool { return !wanted(o.GetName()) })
	}
	if req.GetExplain() {
		list.Explanations = s.explain(req.GetNames(), client.View)
	}
	return list, nil
}

// explain gives the whole chain for each of the names, up to what the view makes of it.
func (s *Server) explain(names []string, view feed.View) []*inventoryv1.NodeExplanation {
	outside := map[string]bool{}
	for _, n := range s.cfg.Stores.Outside(view) {
		outside[n.Name] = true
	}
	all := make([]*inventoryv1.NodeExplanation, 0, len(names))
	for _, name := range names {
		e, _ := s.cfg.Explain(name)
		w := &inventoryv1.NodeExplanation{Name: name}
		for _, step := range e.Steps {
			w.Steps = append(w.Steps, wireStep(step))
		}
		if outside[name] {
			w.Steps = append(w.Steps, wireStep(roster.Step{
				Stage: stageView, Question: "Does this client's view select it?", Result: roster.Failed,
				Saw: fmt.Sprintf("its labels do not match the node selector %q", view.Selector),
			}))
			e.Verdict += " This client is not told of it: its view does not select the node."
		}
		w.Conclusion = bounded(e.Verdict)
		all = append(all, w)
	}
	return all
}

// stageView is the stage of an explanation that only this side of the feed knows.
const stageView = "view"

func wireStep(s roster.Step) *inventoryv1.ExplanationStep {
	return &inventoryv1.ExplanationStep{
		Stage: s.Stage, Question: bounded(s.Question), Result: inventoryv1.StepResult(s.Result), Detail: bounded(s.Saw),
	}
}

func bounded(text string) string { return stream.Text(text, mostText) }

// omitted are the nodes that the roster leaves out, and those that the view does.
func (s *Server) omitted(view feed.View) []*inventoryv1.OmittedNode {
	var all []*inventoryv1.OmittedNode
	for _, o := range s.cfg.Omitted() {
		all = append(all, &inventoryv1.OmittedNode{
			// The name may be what it is left out for.
			Name: stream.Text(o.Name, inventoryv1.MaxNameLength), Reason: inventoryv1.OmissionReason(o.Reason),
			Advice: bounded(o.Advice), ProviderId: bounded(o.ProviderID),
		})
	}
	for _, n := range s.cfg.Stores.Outside(view) {
		all = append(all, &inventoryv1.OmittedNode{
			Name: n.Name, Reason: inventoryv1.OmissionReason_OMISSION_REASON_NOT_SELECTED, ProviderId: bounded(n.ProviderID),
			Advice: "The node is in the inventory, and the node selector of this client's view (" + view.Selector.String() +
				") does not match its labels: change either, or ask as another client.",
		})
	}
	slices.SortFunc(all, func(a, b *inventoryv1.OmittedNode) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

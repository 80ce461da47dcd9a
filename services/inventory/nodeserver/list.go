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
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxTextLength limits the texts of an explanation, in bytes.
const maxTextLength = 1024

// ListNodes returns the nodes of the client's view. To operators it also returns the omitted nodes, and
// on request an explanation of each node by name.
func (s *Server) ListNodes(ctx context.Context, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, ok := s.cfg.Identify(ctx)
	if !ok {
		return nil, errUnknownClient
	}
	if req.GetExplain() && !client.Operator {
		return nil, status.Error(codes.PermissionDenied, "explanations require the operator role")
	}
	store := s.cfg.Stores.Acquire(client.View)
	update := store.Snapshot()
	s.cfg.Stores.Release(store, time.Now())
	if !update.Synced && !client.Operator {
		return nil, status.Error(codes.Unavailable, "inventory has published nothing yet")
	}
	requested := map[string]bool{}
	for _, name := range req.GetNames() {
		requested[name] = true
	}
	isRequested := func(name string) bool { return len(requested) == 0 || requested[name] }

	now := time.Now()
	list := &inventoryv1.ListNodesResponse{Status: encodeStatus(update.Status, now), Digest: update.At.Digest[:]}
	if update.Synced {
		list.Cursor = &inventoryv1.Cursor{Epoch: update.At.Epoch, Revision: update.At.Revision}
	}
	for _, e := range update.Upserts {
		if !isRequested(e.Node.Name) {
			continue
		}
		n := encodeNode(e, now)
		if client.Operator {
			n.ProviderId, n.ServerId = truncate(e.Node.ProviderID), truncate(e.Node.ServerID)
		}
		list.Nodes = append(list.Nodes, n)
	}
	if client.Operator {
		list.Omitted = slices.DeleteFunc(s.listOmitted(client.View), func(o *inventoryv1.OmittedNode) bool { return !isRequested(o.GetName()) })
	}
	if req.GetExplain() {
		list.Explanations = s.explainNodes(req.GetNames(), client.View)
	}
	return list, nil
}

// explainNodes returns the roster's explanation for each name, followed by the effect of the view.
func (s *Server) explainNodes(names []string, view feed.View) []*inventoryv1.NodeExplanation {
	notInView := map[string]bool{}
	for _, n := range s.cfg.Stores.NotInView(view) {
		notInView[n.Name] = true
	}
	all := make([]*inventoryv1.NodeExplanation, 0, len(names))
	for _, name := range names {
		e, _ := s.cfg.Explain(name)
		explanation := &inventoryv1.NodeExplanation{Name: name}
		for _, step := range e.Steps {
			explanation.Steps = append(explanation.Steps, encodeStep(step))
		}
		if notInView[name] {
			explanation.Steps = append(explanation.Steps, encodeStep(source.Step{
				Stage: stageView, Question: "Does this client's view select it?", Result: source.Failed,
				Detail: fmt.Sprintf("node labels do not match the node selector %q", view.Selector),
			}))
			e.Conclusion += " Omitted for this client: its view does not select the node."
		}
		explanation.Conclusion = truncate(e.Conclusion)
		all = append(all, explanation)
	}
	return all
}

// stageView is the stage of the steps that nodeserver adds to the roster's explanation.
const stageView = "view"

func encodeStep(s source.Step) *inventoryv1.ExplanationStep {
	return &inventoryv1.ExplanationStep{
		Stage: s.Stage, Question: truncate(s.Question), Result: inventoryv1.StepResult(s.Result), Detail: truncate(s.Detail),
	}
}

func truncate(text string) string { return stream.TruncateText(text, maxTextLength) }

// listOmitted returns the nodes that the roster omits and those that the view does not select.
func (s *Server) listOmitted(view feed.View) []*inventoryv1.OmittedNode {
	var all []*inventoryv1.OmittedNode
	for _, o := range s.cfg.Omitted() {
		all = append(all, &inventoryv1.OmittedNode{
			// A name that is too long can be the reason why a node is omitted.
			Name: stream.TruncateText(o.Name, inventoryv1.MaxNameLength), Reason: inventoryv1.OmissionReason(o.Reason),
			Advice: truncate(o.Advice), ProviderId: truncate(o.ProviderID),
		})
	}
	for _, n := range s.cfg.Stores.NotInView(view) {
		all = append(all, &inventoryv1.OmittedNode{
			Name: n.Name, Reason: inventoryv1.OmissionReason_OMISSION_REASON_NOT_SELECTED, ProviderId: truncate(n.ProviderID),
			Advice: "The node selector of this client's view (" + view.Selector.String() +
				") does not match the labels of the node. Change either, or use another client.",
		})
	}
	slices.SortFunc(all, func(a, b *inventoryv1.OmittedNode) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

package nodeserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ListNodes returns the nodes of the client's view once, and to operators those left out.
func (s *Server) ListNodes(ctx context.Context, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, ok := s.cfg.Identify(ctx)
	if !ok {
		return nil, errUnknown
	}
	all := s.cfg.Stores.For(client.View).All()
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
			n.ProviderId, n.ServerId = e.Node.ProviderID, e.Node.ServerID
		}
		list.Nodes = append(list.Nodes, n)
	}
	if client.Operator {
		list.Omitted = slices.DeleteFunc(s.omitted(client.View), func(o *inventoryv1.OmittedNode) bool { return !wanted(o.GetName()) })
	}
	return list, nil
}

// omitted are the nodes that the roster leaves out, and those that the view does.
func (s *Server) omitted(view feed.View) []*inventoryv1.OmittedNode {
	var all []*inventoryv1.OmittedNode
	for _, o := range s.cfg.Omitted() {
		all = append(all, &inventoryv1.OmittedNode{
			Name: o.Name, Reason: inventoryv1.OmissionReason(o.Reason), Advice: o.Advice, ProviderId: o.ProviderID,
		})
	}
	for _, n := range s.cfg.Stores.Outside(view) {
		all = append(all, &inventoryv1.OmittedNode{
			Name: n.Name, Reason: inventoryv1.OmissionReason_OMISSION_REASON_NOT_SELECTED, ProviderId: n.ProviderID,
			Advice: "The node is in the inventory, and the node selector of this client's view (" + view.Selector.String() +
				") does not match its labels: change either, or ask as another client.",
		})
	}
	slices.SortFunc(all, func(a, b *inventoryv1.OmittedNode) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

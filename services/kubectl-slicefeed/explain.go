package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

// subject is what explain explains. Exactly one field is set.
type subject struct {
	node    string
	address netip.Addr
	service *writerv1.ServiceSelector
}

// importSuffix ends the writer's name of a ServiceImport: shop.serviceimport.
const importSuffix = ".serviceimport"

func parseSubject(text string) (subject, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return subject{address: a.Unmap()}, nil
	}
	if namespace, service, ok := strings.Cut(text, "/"); ok {
		name := strings.TrimSuffix(service, importSuffix)
		if len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Label(name)) > 0 {
			return subject{}, fmt.Errorf("%q: want NAMESPACE/SERVICE, such as web/shop", text)
		}
		return subject{service: &writerv1.ServiceSelector{Namespace: namespace, Service: service}}, nil
	}
	if len(validation.IsDNS1123Subdomain(text)) > 0 {
		return subject{}, fmt.Errorf("%q: want the name of a node, NAMESPACE/SERVICE, or an address", text)
	}
	return subject{node: text}, nil
}

// reader reads what the components know. Either client may be nil: its component is not asked.
type reader struct {
	inventory inventoryv1.InventoryOperatorServiceClient
	writer    writerv1.WriterOperatorServiceClient
	// listed returns the addresses that the slices of a Service list.
	listed func(ctx context.Context, service *writerv1.ServiceSelector) ([]netip.Addr, error)
}

// report is what the components know of a subject.
type report struct {
	nodes     []*inventoryv1.NodeDetails
	steps     []*inventoryv1.NodeExplanation      // of a node; none for a Service
	targets   []*writerv1.TargetDetails           // those that the endpoints belong to
	endpoints []*writerv1.ExplainEndpointResponse // by Service, then address
}

// maxExplained limits the endpoints of one report: each is a request.
const maxExplained = 1000

var errTooMany = fmt.Errorf("more than %d endpoints to explain; name a node or an address", maxExplained)

// explain returns the report on a subject.
func (r *reader) explain(ctx context.Context, s subject) (*report, error) {
	result := &report{}
	all, err := r.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, n := range all {
		published := nodeAddresses(n)
		if s.service != nil || n.GetName() == s.node || slices.Contains(published, s.address) {
			result.nodes = append(result.nodes, n)
			addresses = append(addresses, published...)
		}
	}
	if s.service == nil {
		if result.steps, err = r.explainNodes(ctx, s, result.nodes); err != nil {
			return nil, err
		}
	}
	if s.address.IsValid() {
		addresses = []netip.Addr{s.address}
	}
	if r.writer == nil {
		return result, nil
	}
	if result.targets, err = r.listTargets(ctx, s.service); err != nil {
		return nil, err
	}
	if s.service != nil {
		listed, err := r.listed(ctx, s.service)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, listed...)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return result, r.explainEndpoints(ctx, result, slices.Compact(addresses), s.service != nil)
}

// explainNodes returns the explanation of the named node, or of those that have the address.
func (r *reader) explainNodes(ctx context.Context, s subject, nodes []*inventoryv1.NodeDetails) ([]*inventoryv1.NodeExplanation, error) {
	request := &inventoryv1.ExplainNodesRequest{}
	if s.node != "" {
		request.Names = []string{s.node} // also one that the source does not know
	} else {
		for _, n := range nodes {
			request.Names = append(request.Names, n.GetName())
		}
	}
	if r.inventory == nil || len(request.GetNames()) == 0 {
		return nil, nil
	}
	response, err := r.inventory.ExplainNodes(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("explain nodes: %w", err)
	}
	return response.GetExplanations(), nil
}

// explainEndpoints adds the explanation of each address in each target. If only some of the targets concern an
// address, it drops the others.
func (r *reader) explainEndpoints(ctx context.Context, result *report, addresses []netip.Addr, all bool) error {
	if len(result.targets)*len(addresses) > maxExplained {
		return errTooMany
	}
	concerned := result.targets[:0]
	for _, target := range result.targets {
		var of []*writerv1.ExplainEndpointResponse
		for _, a := range addresses {
			e, err := r.writer.ExplainEndpoint(ctx, &writerv1.ExplainEndpointRequest{
				Namespace: target.GetTarget().GetNamespace(), Service: target.GetTarget().GetService(), Address: a.String(),
			})
			switch {
			case status.Code(err) == codes.NotFound: // it is no target any more
				continue
			case err != nil:
				return fmt.Errorf("explain endpoint: %w", err)
			}
			if all || concerns(e) {
				of = append(of, e)
			}
		}
		if all || len(of) > 0 {
			concerned, result.endpoints = append(concerned, target), append(result.endpoints, of...)
		}
	}
	result.targets = concerned
	return nil
}

// concerns reports whether a source reports the address for the Service, or its slices list it.
func concerns(e *writerv1.ExplainEndpointResponse) bool {
	reported := slices.ContainsFunc(e.GetSources(), func(s *writerv1.SourceReport) bool { return s.GetListed() })
	return reported || e.GetCurrent() != nil || e.GetDesired() != nil
}

func (r *reader) listNodes(ctx context.Context) (all []*inventoryv1.NodeDetails, err error) {
	if r.inventory == nil {
		return nil, nil
	}
	for token := ""; ; {
		page, err := r.inventory.ListNodeDetails(ctx, &inventoryv1.ListNodeDetailsRequest{PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		all = append(all, page.GetNodes()...)
		if token = page.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// listTargets returns all targets, or the named one.
func (r *reader) listTargets(ctx context.Context, service *writerv1.ServiceSelector) (all []*writerv1.TargetDetails, err error) {
	request := &writerv1.ListTargetDetailsRequest{}
	if service != nil {
		request.Services = []*writerv1.ServiceSelector{service}
	}
	for {
		page, err := r.writer.ListTargetDetails(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list targets: %w", err)
		}
		all = append(all, page.GetTargets()...)
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	if service != nil && len(all) == 0 {
		return nil, fmt.Errorf("%s/%s is not a target of the writer; check its label slicefeed.dev/class, and that the writer watches its namespace",
			service.GetNamespace(), service.GetService())
	}
	return all, nil
}

// nodeAddresses returns the addresses of a node that is published.
func nodeAddresses(n *inventoryv1.NodeDetails) (all []netip.Addr) {
	for _, text := range n.GetPublished().GetAddresses() {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// check returns an error if something of the report is not as people want it.
func (r *report) check(s subject) error {
	for _, n := range r.nodes {
		if n.GetOmitted() != nil && s.service == nil {
			return errors.New("the node is not published")
		}
	}
	if s.node != "" && len(r.steps) > 0 && len(r.nodes) == 0 {
		return errors.New("the source has no such node")
	}
	if s.address.IsValid() && len(r.nodes)+len(r.endpoints) == 0 {
		return errors.New("no node and no Service has the address")
	}
	for _, e := range r.endpoints {
		if e.GetDesired() != nil && !e.GetDesired().GetReady() {
			return errors.New("an endpoint is not ready")
		}
	}
	for _, t := range r.targets {
		if s.service != nil && t.GetTarget().GetReady() == 0 {
			return errors.New("the Service has no ready endpoint")
		}
	}
	return nil
}

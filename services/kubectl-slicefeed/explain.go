package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

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

	askedInventory bool // else no node is known
}

// maxExplained limits the endpoints of one report: each is a request.
const maxExplained = 1000

var errTooMany = fmt.Errorf("more than %d endpoints to explain; name a node or an address", maxExplained)

// explain returns the report on a subject.
func (r *reader) explain(ctx context.Context, s subject) (*report, error) {
	result := &report{askedInventory: r.inventory != nil}
	sets, err := r.listSets(ctx, s.service)
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for i := range sets {
		sets[i].keep(s)
		result.nodes = append(result.nodes, sets[i].nodes...)
		for _, n := range sets[i].nodes {
			addresses = append(addresses, nodeAddresses(n)...)
		}
	}
	if s.service == nil {
		if result.steps, err = r.explainNodes(ctx, s, sets); err != nil {
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

// explainNodes returns the explanation of the named node, or of those that have the address. Each set has only the nodes
// that the subject concerns.
func (r *reader) explainNodes(ctx context.Context, s subject, sets []nodeSet) (all []*inventoryv1.NodeExplanation, err error) {
	for _, set := range sets {
		request := &inventoryv1.ExplainNodesRequest{Service: set.service}
		for _, n := range set.nodes {
			request.Names = append(request.Names, n.GetName())
		}
		if s.node != "" && set.service == "" {
			request.Names = []string{s.node} // also one that the source does not know
		}
		if len(request.GetNames()) == 0 {
			continue
		}
		response, err := r.inventory.ExplainNodes(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("explain nodes: %w", err)
		}
		all = append(all, response.GetExplanations()...)
	}
	return all, nil
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

// nodeSet has the nodes of a set of the inventory.
type nodeSet struct {
	service string // whose endpoints they are, as namespace/name; empty: the inventory exports no Services
	nodes   []*inventoryv1.NodeDetails
}

// keep drops the nodes that the subject does not concern.
func (set *nodeSet) keep(s subject) {
	set.nodes = slices.DeleteFunc(set.nodes, func(n *inventoryv1.NodeDetails) bool {
		return s.service == nil && n.GetName() != s.node && !slices.Contains(nodeAddresses(n), s.address)
	})
}

// listSets returns the sets of the inventory: the only one, or one for each exported Service that the targets use.
func (r *reader) listSets(ctx context.Context, target *writerv1.ServiceSelector) ([]nodeSet, error) {
	if r.inventory == nil {
		return nil, nil
	}
	nodes, err := r.listNodes(ctx, "", time.Time{})
	switch {
	case err == nil:
		return []nodeSet{{nodes: nodes}}, nil
	case status.Code(err) != codes.InvalidArgument: // an inventory that exports Services rejects a request without one
		return nil, err
	case r.writer == nil:
		return nil, fmt.Errorf("%w; give the context of the writer too, which knows the Services in use", err)
	}
	all, err := r.listTargets(ctx, target)
	if err != nil {
		return nil, err
	}
	var sets []nodeSet
	waitUntil := time.Now().Add(observationTimeout)
	for _, service := range exportedServices(all) {
		nodes, err := r.listNodes(ctx, service, waitUntil)
		if err != nil {
			return nil, err
		}
		sets = append(sets, nodeSet{service, nodes})
	}
	return sets, nil
}

// exportedServices returns the exported Services that targets use, sorted. The writer names such a source by its own name
// and that of the Service: blue/shop/web.
func exportedServices(all []*writerv1.TargetDetails) (services []string) {
	for _, target := range all {
		for _, source := range target.GetSources() {
			if _, service, ok := strings.Cut(source, "/"); ok {
				services = append(services, service)
			}
		}
	}
	slices.Sort(services)
	return slices.Compact(services)
}

// How long explain waits for the first observation of exported Services that no other client of this Pod uses, and the
// time between its requests.
const (
	observationTimeout = 5 * time.Second
	observationPoll    = 200 * time.Millisecond
)

// listNodes returns the nodes of a set. Until the time it waits for its first observation.
func (r *reader) listNodes(ctx context.Context, service string, waitUntil time.Time) (all []*inventoryv1.NodeDetails, err error) {
	for token := ""; ; {
		page, err := r.inventory.ListNodeDetails(ctx, &inventoryv1.ListNodeDetailsRequest{PageToken: token, Service: service})
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		if page.GetCursor() == nil && time.Now().Before(waitUntil) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(observationPoll):
			}
			continue
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
		return nil, fmt.Errorf(
			"%s/%s is not a target of the writer; check its label slicefeed.dev/class, and that the writer watches its namespace",
			service.GetNamespace(),
			service.GetService(),
		)
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
	if s.node != "" && r.askedInventory && len(r.nodes) == 0 {
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

package reconciler

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// currentEndpoints are what the owned slices of a target list. Most changes concern one slice of many, so it keeps what
// each one lists.
type currentEndpoints struct {
	rule    string                       // of the ports
	owned   []*discoveryv1.EndpointSlice // which are never altered in place
	bySlice map[*discoveryv1.EndpointSlice][]verdict.CurrentEndpoint
	list    []verdict.CurrentEndpoint // sorted by address
}

// read returns what the owned ones of these slices list. Of an address that is listed twice it returns the one that the
// planner would keep.
func (c *currentEndpoints) read(desired planner.Desired, existing []*discoveryv1.EndpointSlice, ports portRule) []verdict.CurrentEndpoint {
	if ports.text != c.rule {
		*c = currentEndpoints{rule: ports.text}
	}
	owned := desired.OwnedSlices(existing)
	if slices.Equal(owned, c.owned) {
		return c.list
	}
	bySlice := make(map[*discoveryv1.EndpointSlice][]verdict.CurrentEndpoint, len(owned))
	list := make([]verdict.CurrentEndpoint, 0, len(c.list))
	for _, slice := range owned {
		listed, known := c.bySlice[slice]
		if !known {
			listed = endpointsOf(desired, slice, ports)
		}
		bySlice[slice] = listed
		list = append(list, listed...)
	}
	byAddress := func(a, b verdict.CurrentEndpoint) int { return a.Address.Compare(b.Address) }
	if !slices.IsSortedFunc(list, byAddress) {
		slices.SortStableFunc(list, byAddress)
	}
	list = slices.CompactFunc(list, func(a, b verdict.CurrentEndpoint) bool { return a.Address == b.Address })
	c.owned, c.bySlice, c.list = owned, bySlice, list
	return list
}

// endpointsOf returns what a slice lists.
func endpointsOf(desired planner.Desired, slice *discoveryv1.EndpointSlice, ports portRule) []verdict.CurrentEndpoint {
	source := targets.SourceOf(slice)
	of, unusable := ports.portsOf(source, targets.ListedPorts(slice))
	listed := desired.EndpointsOf(slice)
	all := make([]verdict.CurrentEndpoint, len(listed))
	for i, e := range listed {
		all[i] = verdict.CurrentEndpoint{
			Address: e.Address, Source: source, Zone: e.Zone, Hostname: e.Hostname,
			Conditions: verdict.Conditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
			Ports:      of, Portless: unusable != "" && of.Text == "",
		}
	}
	return all
}

// ListedEndpoints converts what a decision lists to input of the planner, and returns the port groups. It is the last
// gate before a write: a port that is not allowed for its source is left out, and an endpoint without another one, too.
func ListedEndpoints(
	decided []verdict.Endpoint,
	allows func(source string, port uint16) bool,
) ([]planner.Endpoint, map[string][]discoveryv1.EndpointPort) {
	list, groups := make([]planner.Endpoint, 0, len(decided)), map[string][]discoveryv1.EndpointPort{}
	for i := range decided {
		e := &decided[i]
		if !e.Listed {
			continue
		}
		group := e.Source + " " + e.Ports.Text
		ports, known := groups[group]
		if !known {
			ports = slices.DeleteFunc(targets.ParsePorts(e.Ports.Text), func(p discoveryv1.EndpointPort) bool {
				return !allows(e.Source, uint16(*p.Port))
			})
			groups[group] = ports
		}
		if len(ports) == 0 && e.Ports.Text != "" {
			continue
		}
		list = append(list, planner.Endpoint{
			Address:     e.Address,
			Group:       e.Source,
			Zone:        e.Zone,
			Hostname:    e.Hostname,
			PortGroup:   group,
			Ready:       e.Conditions.Ready,
			Serving:     e.Conditions.Serving,
			Terminating: e.Conditions.Terminating,
		})
	}
	return list, groups
}

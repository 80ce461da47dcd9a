package planner

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Adjust plans only what becomes of the endpoints that the slices list: those desired get their
// conditions, the others leave. It adds nothing, neither a slice nor an endpoint, and leaves ports,
// labels and owners as they are. It is for a Service that cannot be served as it is now. Only d's
// naming fields and its Endpoints matter.
func Adjust(d Desired, existing []*discoveryv1.EndpointSlice) (plan Plan) {
	desired := make(map[netip.Addr]*Endpoint, len(d.Endpoints))
	for i := range d.Endpoints {
		desired[d.Endpoints[i].Address] = &d.Endpoints[i]
	}
	for _, slice := range d.ours(existing) {
		if d.unseen(slice) {
			continue
		}
		changed, list := false, make([]discoveryv1.Endpoint, 0, len(slice.Endpoints))
		for i := range slice.Endpoints {
			is := slice.Endpoints[i].DeepCopy()
			addr, ok := address(is)
			want := desired[addr]
			if !ok || want == nil {
				changed = true
				continue
			}
			was := readBack(addr, is, "")
			if was.Ready != want.Ready || was.Serving != want.Serving || was.Terminating != want.Terminating {
				changed, is.Conditions = true, written(want).Conditions
			}
			list = append(list, *is)
		}
		if changed {
			out := slice.DeepCopy()
			out.ManagedFields, out.Endpoints = nil, list // see render
			plan.Update = append(plan.Update, out)
		}
	}
	return plan
}

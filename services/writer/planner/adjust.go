package planner

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// AdjustExisting plans changes for a rejected Service. It changes only endpoints that the slices list now:
// those in d.Endpoints get the conditions given there, the others are removed. It adds neither slices nor
// endpoints, and leaves ports, labels and owners unchanged. Only d's naming fields and its Endpoints matter.
func AdjustExisting(d Desired, existing []*discoveryv1.EndpointSlice) (plan Plan) {
	desired := make(map[netip.Addr]*Endpoint, len(d.Endpoints))
	for i := range d.Endpoints {
		desired[d.Endpoints[i].Address] = &d.Endpoints[i]
	}
	for _, slice := range d.ownedSlices(existing) {
		if d.isForOtherService(slice) {
			continue
		}
		changed, list := false, make([]discoveryv1.Endpoint, 0, len(slice.Endpoints))
		for i := range slice.Endpoints {
			updated := slice.Endpoints[i].DeepCopy()
			addr, ok := firstAddress(updated)
			want := desired[addr]
			if !ok || want == nil {
				changed = true
				continue
			}
			current := fromAPI(addr, updated, "")
			if current.Ready != want.Ready || current.Serving != want.Serving || current.Terminating != want.Terminating {
				changed, updated.Conditions = true, toAPI(want).Conditions
			}
			list = append(list, *updated)
		}
		if changed {
			out := slice.DeepCopy()
			out.ManagedFields, out.Endpoints = nil, list // see renderSlice
			plan.Update = append(plan.Update, out)
		}
	}
	return plan
}

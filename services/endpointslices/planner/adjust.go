package planner

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdjustExisting plans changes for a rejected Service. It changes only endpoints that the slices list now:
// those in d.Endpoints get the conditions given there, the others are removed. It adds neither slices nor
// endpoints, and leaves ports, labels and owners unchanged. What it writes has no other fields of endpoints than those
// that Compute writes, and no hints. Only d's naming fields and its Endpoints matter.
func AdjustExisting(d Desired, existing []*discoveryv1.EndpointSlice) (plan Plan) {
	desired := make(map[address]*Endpoint, len(d.Endpoints))
	for i := range d.Endpoints {
		desired[d.Endpoints[i].key()] = &d.Endpoints[i]
	}
	for _, slice := range d.OwnedSlices(existing) {
		if !d.Names(slice) {
			continue
		}
		changed, list := false, make([]discoveryv1.Endpoint, 0, len(slice.Endpoints))
		for i := range slice.Endpoints {
			updated := slice.Endpoints[i].DeepCopy()
			addr, ok := firstAddress(slice, i)
			want := desired[addr]
			if !ok || want == nil {
				changed = true
				continue
			}
			updated.Addresses, updated.DeprecatedTopology, updated.Hints = updated.Addresses[:1], nil, nil // see Endpoint
			updated.NodeName, updated.TargetRef = optional(want.NodeName), want.TargetRef.DeepCopy()
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

// Withdraw plans the deletion of what this writer certainly wrote for an object that it no longer manages. What is being
// deleted already is emptied: it may wait for a finalizer. Only d's naming fields, its owner and its labels of
// the instance matter.
func Withdraw(d Desired, existing []*discoveryv1.EndpointSlice) (plan Plan) {
	for _, slice := range WithdrawnSlices(d, existing) {
		if isTerminating(slice) {
			plan.Update = appendEmptied(plan.Update, slice)
			continue
		}
		plan.Delete = append(plan.Delete, slice)
	}
	return plan
}

// WithdrawnSlices returns the slices that Withdraw deletes or empties. That is less than what Compute repairs: a slice
// whose label names another object may belong to that one by now.
func WithdrawnSlices(d Desired, existing []*discoveryv1.EndpointSlice) (all []*discoveryv1.EndpointSlice) {
	isOwner := func(owner metav1.OwnerReference) bool { return owner.UID == d.Owner.UID }
	for _, slice := range d.OwnedSlices(existing) {
		owned, unnamed := slices.ContainsFunc(slice.OwnerReferences, isOwner), slice.Labels[d.nameLabel()] == ""
		ofOther := !owned && slices.ContainsFunc(slice.OwnerReferences, d.isOwnerKind)
		left := !isTerminating(slice) || len(slice.Endpoints) > 0
		if left && containsAll(slice.Labels, d.InstanceLabels) && (d.Names(slice) && !ofOther || unnamed && owned) {
			all = append(all, slice)
		}
	}
	return all
}

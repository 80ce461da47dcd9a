package applier

import (
	"errors"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// errAnswered marks errors that may concern one slice alone: the API server answered, and not that it is overloaded.
var errAnswered = errors.New("failed")

// progress is how far a plan has been carried out.
type progress struct {
	listing  []*discoveryv1.EndpointSlice // the slices that list the Service's endpoints by now
	rejected []*discoveryv1.EndpointSlice // those that could not be written
}

func newProgress(order *Order) *progress {
	p := &progress{}
	for _, slice := range order.Current {
		if order.Desired.Owns(slice) && order.Desired.Names(slice) {
			p.listing = append(p.listing, slice)
		}
	}
	return p
}

// mustWait reports whether a write needs one that was rejected. That is so if it removes an endpoint that was to move, or
// takes the last ready one of a family, unless its probe fails.
func (p *progress) mustWait(name string, written *discoveryv1.EndpointSlice) bool {
	if len(p.rejected) == 0 {
		return false
	}
	var all planner.Desired // whatever their groups are
	missing, after := all.EndpointsOf(p.rejected...), all.EndpointsOf(replace(p.listing, name, written)...)
	for _, before := range all.EndpointsOf(p.listing...) {
		now, listed := find(after, before)
		_, moves := find(missing, before)
		last := before.Ready && !now.Ready && anyReady(missing, before.Family()) && !anyReady(after, before.Family())
		if !listed && moves || last && (!listed || now.Serving) {
			return true
		}
	}
	return false
}

// replace returns the slices with one of them as it is now; nil: it is gone.
func replace(all []*discoveryv1.EndpointSlice, name string, now *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	others := slices.DeleteFunc(slices.Clone(all), func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
	if now != nil {
		others = append(others, now)
	}
	return others
}

// find returns the endpoint of the same address in a list that is sorted by it.
func find(all []planner.Endpoint, like planner.Endpoint) (e planner.Endpoint, found bool) {
	at, found := slices.BinarySearchFunc(all, like, planner.Endpoint.Compare)
	if !found {
		return e, false
	}
	return all[at], true
}

// anyReady reports whether an endpoint of a family is ready.
func anyReady(all []planner.Endpoint, family discoveryv1.AddressType) bool {
	return slices.ContainsFunc(all, func(e planner.Endpoint) bool { return e.Ready && e.Family() == family })
}

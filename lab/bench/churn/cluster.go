package churn

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cost is what is sent to an API server.
type cost struct {
	writes int
	bytes  int // of the objects as protobuf, without their names, which each chooses for itself
	pods   int // bytes that only Pods' endpoints have, on top of those
}

func (c *cost) add(other cost) {
	c.writes += other.writes
	c.bytes += other.bytes
	c.pods += other.pods
}

// size is what counts of a slice that is sent.
func size(slice *discoveryv1.EndpointSlice) int {
	nameless := *slice
	nameless.Name, nameless.GenerateName = "", ""
	return nameless.Size()
}

// cluster is the slices of one Service as an API server would keep them. A slice in it is
// never altered, only replaced, so a copy of the list is a copy of the cluster.
type cluster struct {
	slices  []*discoveryv1.EndpointSlice
	version int
}

func (c *cluster) copy() *cluster {
	return &cluster{slices: slices.Clone(c.slices), version: c.version}
}

func (c *cluster) find(name string) int {
	return slices.IndexFunc(c.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
}

// put creates a slice, or replaces the one of its name.
func (c *cluster) put(slice *discoveryv1.EndpointSlice) {
	c.version++
	slice.ResourceVersion = strconv.Itoa(100000 + c.version) // as long as those of a cluster that has lived
	if at := c.find(slice.Name); at >= 0 {
		c.slices[at] = slice
		return
	}
	slice.UID = types.UID(fmt.Sprintf("7d2f6e1a-9c34-4b58-8f0e-%012d", c.version))
	c.slices = append(c.slices, slice)
}

func (c *cluster) remove(name string) {
	if at := c.find(name); at >= 0 {
		c.slices = slices.Delete(c.slices, at, at+1)
	}
}

// conditions are what consumers find, by address: ready, serving, terminating.
func (c *cluster) conditions() map[netip.Addr][3]bool {
	found := map[netip.Addr][3]bool{}
	for _, slice := range c.slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			found[netip.MustParseAddr(e.Addresses[0])] = [3]bool{*e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating}
		}
	}
	return found
}

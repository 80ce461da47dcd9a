// States prints every kind of state that the writer leaves in EndpointSlices, also those
// between two writes of a plan: a JSON object of lists of slices.
package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

var states = map[string][]*discoveryv1.EndpointSlice{}

func main() {
	settled("all ready", ready(1), ready(2))
	settled("one drains", ready(1), drain(2))
	settled("one is out", ready(1), out(2))
	settled("ready, draining and out", ready(1), drain(2), out(3))
	settled("all drain", drain(1), drain(2))
	settled("one drains, one is out", drain(1), out(2))
	settled("all are out", out(1), out(2))
	settled("the floor keeps one, the rest drain", ready(1), drain(2), drain(3))
	settled("both families", ready(1), six(ready(2)))

	emptied := settled("", ready(1))
	emptied.step("an empty slice")

	blue := func(e planner.Endpoint) planner.Endpoint { e.Source = "blue"; return e }
	for name, move := range map[string][2]planner.Endpoint{
		"stays ready":    {ready(1), blue(ready(1))},
		"drains":         {ready(1), blue(drain(1))},
		"goes out":       {ready(1), blue(out(1))},
		"comes back":     {out(1), blue(ready(1))},
		"keeps draining": {drain(1), blue(drain(1))},
	} {
		c := settled("", move[0], ready(2))
		c.step("a move: "+name, move[1], ready(2))
	}
	joined := service()
	joined.desired.MaxPerSlice = 2
	joined.step("", ready(1), ready(2), ready(3), ready(4))
	joined.step("two slices become one", ready(2), ready(4))

	handOvers()

	if err := json.NewEncoder(os.Stdout).Encode(states); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// handOvers adds every state of a Service of two addresses whose class changes, by what the slices
// of the old class and those of the new one list of each: ready, draining, out or nothing.
func handOvers() {
	listings := map[string][]planner.Endpoint{}
	for a, first := range lists(1) {
		for b, second := range lists(2) {
			listings[a+b] = slices.Concat(first, second)
		}
	}
	for before, old := range listings {
		for after, current := range listings {
			next := service()
			next.desired.ManagedBy, next.desired.FirstName = "slicefeed-next", "shop-next"
			next.step("", current...)
			states["classes "+before+" "+after] = slices.Concat(settled("", old...).slices, next.slices)
		}
	}
}

// lists are the ways to list one address.
func lists(n byte) map[string][]planner.Endpoint {
	return map[string][]planner.Endpoint{"R": {ready(n)}, "D": {drain(n)}, "O": {out(n)}, "-": nil}
}

// The words of the verdict, as conditions.
func ready(n byte) planner.Endpoint { return endpoint(n, true, true, false) }
func drain(n byte) planner.Endpoint { return endpoint(n, false, true, true) }
func out(n byte) planner.Endpoint   { return endpoint(n, false, false, false) }

func endpoint(n byte, ready, serving, terminating bool) planner.Endpoint {
	return planner.Endpoint{Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Ready: ready, Serving: serving, Terminating: terminating}
}

func six(e planner.Endpoint) planner.Endpoint {
	four := e.Address.As4()
	e.Address = netip.AddrFrom16([16]byte{0xfd, 15: four[3]})
	return e
}

// cluster is a Service and the slices that its plans have left.
type cluster struct {
	desired planner.Desired
	slices  []*discoveryv1.EndpointSlice
}

func service() *cluster {
	return &cluster{desired: planner.Desired{
		Namespace: "web", Service: "shop", FirstName: "shop", ManagedBy: "slicefeed-default",
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6},
		Ports:    []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}},
	}}
}

func settled(name string, endpoints ...planner.Endpoint) *cluster {
	c := service()
	c.step("", endpoints...)
	if name != "" {
		states[name] = slices.Clone(c.slices)
	}
	return c
}

// step carries a plan out, write by write, and notes the state after each.
func (c *cluster) step(name string, endpoints ...planner.Endpoint) {
	c.desired.Endpoints = endpoints
	plan := planner.Compute(c.desired, c.slices)
	write := 0
	note := func() {
		write++
		switch {
		case name != "" && plan.Writes() > 1:
			states[fmt.Sprintf("%s, after write %d of %d", name, write, plan.Writes())] = slices.Clone(c.slices)
		case name != "":
			states[name] = slices.Clone(c.slices)
		}
	}
	named := func(name string) int {
		return slices.IndexFunc(c.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
	}
	for _, slice := range plan.Create {
		c.slices = append(c.slices, slice)
		note()
	}
	for _, slice := range plan.Update {
		c.slices[named(slice.Name)] = slice
		note()
	}
	for _, slice := range plan.Delete {
		at := named(slice.Name)
		c.slices = slices.Delete(slices.Clone(c.slices), at, at+1)
		note()
	}
}

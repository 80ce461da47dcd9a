// Proxychoice says to which endpoints kube-proxy's own code would send. It reads states of
// a Service from standard input, a JSON list of lists of EndpointSlices, and answers with
// a list for each: every choice that was seen, since kube-proxy goes through the slices in the
// order of a map.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/kubernetes/pkg/proxy"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "proxychoice:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var states [][]*discoveryv1.EndpointSlice
	if err := json.NewDecoder(in).Decode(&states); err != nil {
		return fmt.Errorf("read the states: %w", err)
	}
	choices := make([][][]string, len(states))
	for i, state := range states {
		for range 40 {
			choices[i] = append(choices[i], choose(state))
		}
		slices.SortFunc(choices[i], slices.Compare)
		choices[i] = slices.CompactFunc(choices[i], slices.Equal)
	}
	return json.NewEncoder(out).Encode(choices)
}

// service is what CategorizeEndpoints asks of one: policy Cluster, as Slicefeed requires.
type service struct{ proxy.ServicePort }

func (service) UsesClusterEndpoints() bool { return true }
func (service) UsesLocalEndpoints() bool   { return false }
func (service) String() string             { return "service" }

// choose lists where kube-proxy would send, of both families.
func choose(state []*discoveryv1.EndpointSlice) []string {
	chosen := []string{}
	for _, family := range []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol} {
		same := func(info *proxy.BaseEndpointInfo, _ *proxy.ServicePortName) proxy.Endpoint { return info }
		tracker := proxy.NewEndpointsChangeTracker(family, "node", same, nil)
		for _, slice := range state {
			tracker.EndpointSliceUpdate(slice, false)
		}
		all := proxy.EndpointsMap{}
		all.Update(tracker)
		for _, endpoints := range all {
			usable, _, _, _ := proxy.CategorizeEndpoints(endpoints, service{}, "node", nil)
			for _, e := range usable {
				chosen = append(chosen, e.String())
			}
		}
	}
	slices.SortFunc(chosen, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return chosen
}

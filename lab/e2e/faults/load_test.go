package faults

import (
	"net/http"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestACallerKeepsItsConnectionWhileItsEndpointServes(t *testing.T) {
	yes, no := true, false
	here := netip.MustParseAddr("10.0.1.1")
	listed := func(ready, serving, terminating *bool) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{here.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating},
		}}}}
	}
	open := caller{keep: true, to: here, http: &http.Client{}}
	worn, fresh, closed := open, open, open
	worn.used, fresh.keep, closed.http = keeps, false, nil
	for _, row := range []struct {
		name   string
		caller caller
		now    []*discoveryv1.EndpointSlice
		may    bool
	}{
		{"while it is ready", open, listed(&yes, &yes, &no), true},
		{"while it drains", open, listed(&no, &yes, &yes), true},
		{"not when it is out", open, listed(&no, &no, &no), false},
		{"not when it is gone", open, nil, false},
		{"not after many requests, so that it chooses again", worn, listed(&yes, &yes, &no), false},
		{"not if it never keeps one", fresh, listed(&yes, &yes, &no), false},
		{"not if there is none", closed, listed(&yes, &yes, &no), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.caller.may(row.now); got != row.may {
				t.Errorf("got %v, want %v", got, row.may)
			}
		})
	}
}

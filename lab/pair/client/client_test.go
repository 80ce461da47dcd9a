package client

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestAttributesFailures(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	died := func(from, to float64) Truth {
		death := Death{From: at(from), Bound: 3 * time.Second}
		if to > 0 {
			death.To = at(to)
		}
		return Truth{Known: true, Name: "a", Deaths: []Death{death}}
	}
	fails := errors.New("refused")
	for _, row := range []struct {
		name  string
		truth Truth
		by    string
		err   error
		want  kind
	}{
		{"a success is fine", died(1, 0), "a", nil, fine},
		{"an answer of another backend is a wrong slice", Truth{Known: true, Name: "a"}, "b", nil, wrong},
		{"an address that never had a backend is a wrong slice", Truth{}, "", fails, wrong},
		{"dead for less than the bound", died(8, 0), "", fails, justDied},
		{"dead for just the bound", died(7, 0), "", fails, justDied},
		{"dead for longer than the bound is a wrong slice", died(6.9, 0), "", fails, wrong},
		{"died while the request was under way", died(10.5, 0), "", fails, justDied},
		{"came back while the request was under way, long after the bound", died(1, 10.5), "", fails, wrong},
		{"a death that was over says nothing", died(1, 9), "", fails, other},
		{"a death that came later says nothing", died(11.5, 0), "", fails, other},
		{"a living backend that fails is nobody's slice", Truth{Known: true, Name: "a"}, "", fails, other},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, example := judge(row.truth, at(10), at(11), row.by, row.err)
			if got != row.want {
				t.Errorf("got %d (%s), want %d", got, example, row.want)
			}
			if (got == wrong || got == other) != (example != "") {
				t.Errorf("kind %d has the example %q", got, example)
			}
		})
	}
}

func TestChoosesAsKubeProxyWould(t *testing.T) {
	yes, no, port := true, false, int32(80)
	type is = discoveryv1.EndpointConditions
	for _, row := range []struct {
		name string
		all  []is // of 10.0.0.1, 10.0.0.2, …
		want []string
	}{
		{"any of the ready ones", []is{{Ready: &yes}, {Ready: &no}, {Ready: &yes}}, []string{"10.0.0.1", "10.0.0.3"}},
		{"what is not said counts as ready", []is{{}, {Ready: &no}}, []string{"10.0.0.1"}},
		{"none that drains while one is ready", []is{{Ready: &no, Serving: &yes, Terminating: &yes}, {Ready: &yes}}, []string{"10.0.0.2"}},
		{"those that drain when none is ready", []is{{Ready: &no, Serving: &yes, Terminating: &yes}, {Ready: &no, Serving: &no, Terminating: &yes}}, []string{"10.0.0.1"}},
		{"none that serves without terminating", []is{{Ready: &no, Serving: &yes, Terminating: &no}}, nil},
		{"none when there is none", nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: &port}}}
			for i, conditions := range row.all {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}).String()}, Conditions: conditions,
				})
			}
			chosen := map[string]bool{}
			for range 200 {
				if one, ok := Choose([]*discoveryv1.EndpointSlice{slice}); ok {
					chosen[one.Addr().String()] = true
				}
			}
			if len(chosen) != len(row.want) {
				t.Errorf("chose %v, want %v", chosen, row.want)
			}
			for _, address := range row.want {
				if !chosen[address] {
					t.Errorf("never chose %s", address)
				}
			}
		})
	}
}

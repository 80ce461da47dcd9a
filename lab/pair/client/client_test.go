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
	alive := Truth{Known: true, Name: "a"}
	refused := Request{Began: at(10), Ended: at(11), To: netip.MustParseAddr("10.0.1.1"), Err: errors.New("refused")}
	answered, misled, unlisted := refused, refused, Request{Began: at(10), Ended: at(10)}
	answered.Err, answered.AnsweredBy = nil, "a"
	misled.Err, misled.AnsweredBy = nil, "b"
	for _, row := range []struct {
		name     string
		request  Request
		truth    Truth
		allDead  bool
		from, to float64 // no writes
		want     Cause
	}{
		{name: "a success is fine", request: answered, truth: died(1, 0), want: Fine},
		{name: "an answer of another backend is a wrong slice", request: misled, truth: alive, want: Wrong},
		{name: "an address that never had a backend is a wrong slice", request: refused, want: Wrong},
		{name: "dead for less than the bound", request: refused, truth: died(8, 0), want: JustDied},
		{name: "dead for just the bound", request: refused, truth: died(7, 0), want: JustDied},
		{name: "dead for longer than the bound is a wrong slice", request: refused, truth: died(6.9, 0), want: Wrong},
		{name: "dead for longer than the bound, as all are", request: refused, truth: died(6.9, 0), allDead: true, want: JustDied},
		{name: "died while the request was under way", request: refused, truth: died(10.5, 0), want: JustDied},
		{name: "came back meanwhile, long after the bound", request: refused, truth: died(1, 10.5), want: Wrong},
		{name: "a death that was over says nothing", request: refused, truth: died(1, 9), want: Other},
		{name: "a death that came later says nothing", request: refused, truth: died(11.5, 0), want: Other},
		{name: "a living backend that fails is nobody's slice", request: refused, truth: alive, want: Other},
		{name: "none listed, one alive", request: unlisted, want: Wrong},
		{name: "none listed, none alive", request: unlisted, allDead: true, want: JustDied},
		{name: "died while no writer could write", request: refused, truth: died(5, 0), from: 4, to: 9, want: JustDied},
		{name: "died just before", request: refused, truth: died(3, 0), from: 4, to: 9, want: JustDied},
		{name: "died long before", request: refused, truth: died(0.5, 0), from: 4, to: 9, want: Wrong},
		{name: "died meanwhile, written too late", request: refused, truth: died(3, 0), from: 2, to: 6, want: Wrong},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := Judge{Truth: func(netip.Addr) Truth { return row.truth }, AnyAlive: func(time.Time) bool { return !row.allDead }}
			if row.to > 0 {
				j.NoWritesFrom, j.NoWritesTo = at(row.from), at(row.to)
			}
			got, why := j.Cause(row.request)
			if got != row.want || (got == Wrong || got == Other) != (why != "") {
				t.Errorf("got %d (%s), want %d", got, why, row.want)
			}
		})
	}
	late := Judge{Allowance: time.Second}
	if got, want := late.due(Death{From: start, Bound: 3 * time.Second}), start.Add(4*time.Second); !got.Equal(want) {
		t.Errorf("detection of a death is due at %s, want %s", got, want)
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

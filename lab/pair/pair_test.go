package pair

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
)

func TestAListingIsWholeFromItsFirstPageToTheLAN(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const base = "/cloudapi/v6/datacenters/" + Datacenter
	const first, second, lan = base + "/servers?depth=3&offset=0&limit=1000", base + "/servers?depth=3&offset=49&limit=1000", base + "/lans/2?depth=0"
	for _, row := range []struct {
		name   string
		urls   []string
		before int // how many of them came before
		failed int // which of them failed, from 1
		want   int
	}{
		{name: "a whole listing", urls: []string{first, second, lan}, want: 2},
		{name: "nothing yet"},
		{name: "one that is not at its end", urls: []string{first, second}},
		{name: "one that began before does not count", urls: []string{first, second, lan}, before: 1},
		{name: "the one after it does", urls: []string{first, second, lan, first, lan}, before: 1, want: 1},
		{name: "one that failed on its way does not count", urls: []string{first, second, lan}, failed: 2},
		{name: "the end of one that failed does not count as that of another", urls: []string{first, second, lan, first}, failed: 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			var requests []ionosapi.Request
			for i, url := range row.urls {
				r := ionosapi.Request{At: begun.Add(time.Duration(i)), URL: url, Status: http.StatusOK}
				if i < row.before {
					r.At = begun.Add(-1)
				}
				if i+1 == row.failed {
					r.Status = http.StatusServiceUnavailable
				}
				requests = append(requests, r)
			}
			if got := listed(requests, begun); got != row.want {
				t.Errorf("%d pages, want %d", got, row.want)
			}
		})
	}
}

func TestConditionsSayWhatAnEndpointIs(t *testing.T) {
	yes, no := true, false
	slice := &discoveryv1.EndpointSlice{}
	add := func(address string, ready, serving, terminating *bool) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating},
		})
	}
	add("10.0.1.1", &yes, &yes, &no)
	add("10.0.1.2", &no, &yes, &yes)
	add("10.0.1.3", &no, &no, &no)
	add("10.0.1.4", &yes, &yes, nil) // we never leave one out
	add("10.0.1.5", &yes, &yes, &no)
	add("10.0.1.5", &yes, &yes, &no)
	all := []*discoveryv1.EndpointSlice{slice}

	at := netip.MustParseAddr
	want := map[netip.Addr]Condition{
		at("10.0.1.1"): Ready, at("10.0.1.2"): Draining, at("10.0.1.3"): Out, at("10.0.1.4"): Odd, at("10.0.1.5"): Odd,
	}
	if diff := cmp.Diff(want, Conditions(all), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if !Are(Ready, at("10.0.1.1"))(all) || !Are(Absent, at("10.0.1.9"))(all) || Are(Ready, at("10.0.1.1"), at("10.0.1.2"))(all) {
		t.Error("Are does not tell them apart")
	}
	if AreJust(Ready, at("10.0.1.1"))(all) {
		t.Error("AreJust overlooks the others")
	}
}

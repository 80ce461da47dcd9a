package rest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
)

func TestAListingIsOnePageMoreWhereTheLastOneIsFull(t *testing.T) {
	for servers, want := range map[int]int{0: 1, 100: 1, 999: 1, 1000: 2, 1998: 2, 1999: 3, 5000: 6} {
		if got := pages(servers); got != want {
			t.Errorf("%d servers: %d pages, want %d", servers, got, want)
		}
	}
}

func TestRequestsToTheCloudAreToldApart(t *testing.T) {
	start := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	var all []ionosapi.Request
	for i, url := range []string{"/d/servers?offset=0&limit=9", "/d/servers?offset=8&limit=9", "/d/lans/2?depth=0", "/d/servers?offset=0&limit=9", "/d", "/d/lans/2"} {
		all = append(all, ionosapi.Request{At: start.Add(time.Duration(i) * time.Second), URL: url})
	}
	want := listings{begun: 1, pages: 2, lans: 1, others: 1}
	if diff := cmp.Diff(
		want,
		cloudRequests(all, start.Add(time.Second), start.Add(4*time.Second)),
		cmp.AllowUnexported(listings{}),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

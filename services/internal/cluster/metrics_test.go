package cluster

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
)

// fakeAPIServer is an API server that responds by path, or not at all.
type fakeAPIServer map[string]int

func (a fakeAPIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	status, ok := a[r.URL.Path]
	if !ok {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
}

func TestCountsRequestsByVerbAndCode(t *testing.T) {
	reg := prometheus.NewRegistry()
	cluster := &rest.Config{Transport: fakeAPIServer{"/api/v1/nodes": 200, "/forbidden": 403, "/unknown-status": 799}}
	Observe(cluster, "component", reg)
	transport, err := rest.TransportFor(cluster)
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []struct{ method, url string }{
		{"GET", "http://api/api/v1/nodes?limit=1"},
		{"GET", "http://api/api/v1/nodes?watch=true&resourceVersion=7"},
		{"GET", "http://api/api/v1/nodes?watch=1"},
		{"PUT", "http://api/forbidden"},
		{"POST", "http://api/unknown-status"},
		{"BREW", "http://api/unknown-status"},
		{"DELETE", "http://api/unreachable"},
	} {
		resp, err := transport.RoundTrip(httptest.NewRequest(request.method, request.url, nil))
		if err == nil {
			resp.Body.Close()
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP slicefeed_component_api_requests_total Number of requests to the cluster's API server, by verb and HTTP status code; error: no response.
# TYPE slicefeed_component_api_requests_total counter
slicefeed_component_api_requests_total{code="200",verb="get"} 1
slicefeed_component_api_requests_total{code="200",verb="watch"} 2
slicefeed_component_api_requests_total{code="403",verb="put"} 1
slicefeed_component_api_requests_total{code="other",verb="post"} 1
slicefeed_component_api_requests_total{code="other",verb="other"} 1
slicefeed_component_api_requests_total{code="error",verb="delete"} 1
`), "slicefeed_component_api_requests_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(reg, "slicefeed_component_api_request_duration_seconds"); n != 5 {
		t.Errorf("durations of %d verbs, want those of all but the watch", n)
	}
}

// Package apicalls counts what a half asks of its cluster's API server and what becomes of it.
// It promises bounded labels and one count for each request that was sent; it refuses to alter
// any. Rejected: client-go's own hooks, which are the process's and can be set once, so that
// neither a registry can be injected nor two be told apart in a test.
package apicalls

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// Observe has all requests of a half's clients of this configuration counted. Call it before
// anything else wraps the transport: what is held back there was never sent.
func Observe(cluster *rest.Config, half string, reg prometheus.Registerer) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: half, Name: "api_requests_total",
			Help: "Requests to the cluster's API server, by verb and HTTP status code; error: no answer.",
		}, []string{"verb", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "slicefeed", Subsystem: half, Name: "api_request_duration_seconds",
			Help:    "Time from a request to the cluster's API server to the headers of its answer, by verb. Watches are not in it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"verb"}),
	}
	reg.MustRegister(m.requests, m.duration)
	for _, verb := range []string{"get", "watch"} { // what both halves do, from the start on
		m.requests.WithLabelValues(verb, "200")
	}
	m.duration.WithLabelValues("get")
	cluster.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{next: next, metrics: m} })
}

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

type counted struct {
	*metrics

	next http.RoundTripper
}

// RoundTrip sends a request and counts it.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := c.next.RoundTrip(r)
	verb, result := verb(r), "error"
	if err == nil {
		result = code(resp.StatusCode)
	}
	c.requests.WithLabelValues(verb, result).Inc()
	if verb != "watch" {
		c.duration.WithLabelValues(verb).Observe(time.Since(began).Seconds())
	}
	return resp, err
}

// verb is the request's method, or that it watches.
func verb(r *http.Request) string {
	switch r.Method {
	case http.MethodGet:
		if watches(r.URL.Query().Get("watch")) {
			return "watch"
		}
		return "get"
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return strings.ToLower(r.Method)
	}
	return "other"
}

func watches(value string) bool {
	on, err := strconv.ParseBool(value)
	return err == nil && on
}

// code keeps the label bounded whatever a server invents.
func code(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}

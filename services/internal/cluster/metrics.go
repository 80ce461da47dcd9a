package cluster

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/client-go/rest"
)

// maxSilence is how long a response may bring nothing. Client-go sets no limit to a list or a watch, but an idle watch
// delivers a bookmark at least every 120 s.
const maxSilence = 150 * time.Second

// Observe counts all requests of clients made from the configuration, and cancels those that are silent. Call it before
// anything else wraps the transport, so that requests which a later wrapper delays or drops are not counted.
//
// Client-go's own hooks (k8s.io/client-go/tools/metrics) were rejected: they are global and can be
// registered once, so that no registry can be injected.
func Observe(config *rest.Config, component string, reg prometheus.Registerer) {
	requests := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Namespace: "slicefeed", Subsystem: component, Name: "api_requests_total",
		Help: "Number of requests to the cluster's API server, by verb and HTTP status code; error: no response.",
	}, []string{"verb", "code"})
	duration := promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed", Subsystem: component, Name: "api_request_duration_seconds",
		Help:    "Time from a request to the cluster's API server to the headers of its response, by verb, without watches.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"verb"})
	for _, verb := range []string{"get", "watch"} { // both components do these; present from the start
		requests.WithLabelValues(verb, "200")
	}
	duration.WithLabelValues("get")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &instrumented{next, requests, duration} })
}

type instrumented struct {
	next     http.RoundTripper
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// RoundTrip sends a request and counts it. It is canceled when its response brings nothing for too long.
func (c *instrumented) RoundTrip(r *http.Request) (*http.Response, error) {
	startedAt := time.Now()
	ctx, cancel := context.WithCancel(r.Context())
	silence := time.AfterFunc(maxSilence, cancel)
	resp, err := c.next.RoundTrip(r.WithContext(ctx))
	verb, result := requestVerb(r), "error"
	if err == nil {
		result = CodeLabel(resp.StatusCode)
		resp.Body = &monitoredBody{resp.Body, silence, cancel}
	} else {
		silence.Stop()
		cancel()
	}
	c.requests.WithLabelValues(verb, result).Inc()
	if verb != "watch" {
		c.duration.WithLabelValues(verb).Observe(time.Since(startedAt).Seconds())
	}
	return resp, err
}

// monitoredBody is the body of a response that is canceled when it brings nothing for too long.
type monitoredBody struct {
	io.ReadCloser

	silence *time.Timer
	cancel  context.CancelFunc
}

// Read implements io.Reader.
func (b *monitoredBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.silence.Reset(maxSilence)
	return n, err
}

// Close implements io.Closer.
func (b *monitoredBody) Close() error {
	b.silence.Stop()
	b.cancel()
	return b.ReadCloser.Close()
}

// requestVerb returns the request's method in lower case, or watch.
func requestVerb(r *http.Request) string {
	switch r.Method {
	case http.MethodGet:
		if isWatch, err := strconv.ParseBool(r.URL.Query().Get("watch")); err == nil && isWatch {
			return "watch"
		}
		return "get"
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return strings.ToLower(r.Method)
	}
	return "other"
}

// CodeLabel keeps the label bounded whatever status the server sends.
func CodeLabel(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}

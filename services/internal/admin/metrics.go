package admin

import (
	"bytes"
	"maps"
	"net/http"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/link"
)

const (
	maxConcurrentRenders = 2                // each uses a CPU for some milliseconds
	maxUnreadScrapes     = 8                // responses that clients are still reading
	maxScrapeTime        = 10 * time.Second // for a client to read a response
)

// metricsHandler serves /metrics. It first renders a response, which no client can delay, and then waits
// until the client has read it. If too many responses are unread, it ends the oldest of the source address
// that has the most. promhttp's limit on concurrent requests was rejected: it covers both phases, so a few
// clients that do not read would cause 503 for all other scrapes.
type metricsHandler struct {
	next        http.Handler
	renderSlots chan struct{}
	unread      *link.EvictionSet[*http.ResponseController]
}

func newMetricsHandler(metrics http.Handler) *metricsHandler {
	return &metricsHandler{
		next: metrics, renderSlots: make(chan struct{}, maxConcurrentRenders),
		unread: link.NewEvictionSet(maxUnreadScrapes, func(slow *http.ResponseController) {
			_ = slow.SetWriteDeadline(time.Now()) // ends the write and the connection
		}),
	}
}

func (h *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response, ok := h.renderMetrics(r)
	if !ok {
		return // the client is gone
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(maxScrapeTime)) // replaces the listener's own limit
	h.unread.Add(r.RemoteAddr, control)
	defer h.unread.Remove(control)
	maps.Copy(w.Header(), response.header)
	w.WriteHeader(response.code)
	_, _ = w.Write(response.body.Bytes())
	_ = control.Flush() // otherwise the last bytes are written after the slot is removed
}

func (h *metricsHandler) renderMetrics(r *http.Request) (*bufferedResponse, bool) {
	select {
	case h.renderSlots <- struct{}{}:
	case <-r.Context().Done():
		return nil, false
	}
	defer func() { <-h.renderSlots }()
	response := &bufferedResponse{header: http.Header{}, code: http.StatusOK}
	h.next.ServeHTTP(response, r)
	return response, true
}

// bufferedResponse is a response in memory.
type bufferedResponse struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (b *bufferedResponse) Header() http.Header         { return b.header }
func (b *bufferedResponse) WriteHeader(code int)        { b.code = code }
func (b *bufferedResponse) Write(p []byte) (int, error) { return b.body.Write(p) }

package admin

import (
	"bytes"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/eviction"
)

const (
	maxConcurrentRenders = 2                // of /metrics at a time: each takes a processor for some milliseconds
	maxUnreadScrapes     = 8                // answers of /metrics that are being read at a time
	maxScrapeTime        = 10 * time.Second // for one answer to be read
)

// metricsHandler answers /metrics. An answer is rendered first, which no peer can delay, and waits to be read
// afterwards; where too many wait, one of the address that has the most is given up. A limit on
// requests under way, promhttp's own, counts the time of both: four peers that do not read answer all
// other scrapes with 503.
type metricsHandler struct {
	next        http.Handler
	renderSlots chan struct{}
	unread      *eviction.Set[*http.ResponseController]
}

func newMetricsHandler(metrics http.Handler) *metricsHandler {
	return &metricsHandler{
		next: metrics, renderSlots: make(chan struct{}, maxConcurrentRenders),
		unread: eviction.NewSet(maxUnreadScrapes, func(slow *http.ResponseController) {
			_ = slow.SetWriteDeadline(time.Now()) // which ends its write, and its connection
		}),
	}
}

func (s *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, ok := s.renderMetrics(r)
	if !ok {
		return // nobody waits any more
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(maxScrapeTime)) // without it the listener's own applies
	reading := s.unread.Add(clientNetwork(r), control)
	defer reading.Remove()
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.code)
	_, _ = w.Write(answer.body.Bytes())
	_ = control.Flush() // else the last bytes are written when it is not counted any more
}

func (s *metricsHandler) renderMetrics(r *http.Request) (*bufferedResponse, bool) {
	select {
	case s.renderSlots <- struct{}{}:
	case <-r.Context().Done():
		return nil, false
	}
	defer func() { <-s.renderSlots }()
	a := &bufferedResponse{header: http.Header{}, code: http.StatusOK}
	s.next.ServeHTTP(a, r)
	return a, true
}

func clientNetwork(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return eviction.SourceNetwork(at.Addr())
}

// bufferedResponse is an answer in memory.
type bufferedResponse struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *bufferedResponse) Header() http.Header         { return a.header }
func (a *bufferedResponse) WriteHeader(code int)        { a.code = code }
func (a *bufferedResponse) Write(b []byte) (int, error) { return a.body.Write(b) }

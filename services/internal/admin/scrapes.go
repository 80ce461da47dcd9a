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
	maxRenderings = 2                // of /metrics at a time: each takes a processor for some milliseconds
	maxScrapes    = 8                // answers of /metrics that are being read at a time
	maxScrapeTime = 10 * time.Second // for one answer to be read
)

// scrapes answers /metrics. An answer is rendered first, which no peer can delay, and waits to be read
// afterwards; where too many wait, one of the address that has the most is given up. A limit on
// requests under way, promhttp's own, counts the time of both: four peers that do not read answer all
// other scrapes with 503.
type scrapes struct {
	metrics   http.Handler
	rendering chan struct{}
	reading   *eviction.Set[*http.ResponseController]
}

func newScrapes(metrics http.Handler) *scrapes {
	return &scrapes{
		metrics: metrics, rendering: make(chan struct{}, maxRenderings),
		reading: eviction.NewSet(maxScrapes, func(slow *http.ResponseController) {
			_ = slow.SetWriteDeadline(time.Now()) // which ends its write, and its connection
		}),
	}
}

func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, ok := s.render(r)
	if !ok {
		return // nobody waits any more
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(maxScrapeTime)) // without it the listener's own applies
	reading := s.reading.Add(source(r), control)
	defer reading.Remove()
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.code)
	_, _ = w.Write(answer.body.Bytes())
	_ = control.Flush() // else the last bytes are written when it is not counted any more
}

func (s *scrapes) render(r *http.Request) (*answer, bool) {
	select {
	case s.rendering <- struct{}{}:
	case <-r.Context().Done():
		return nil, false
	}
	defer func() { <-s.rendering }()
	a := &answer{header: http.Header{}, code: http.StatusOK}
	s.metrics.ServeHTTP(a, r)
	return a, true
}

func source(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return eviction.Network(at.Addr())
}

// answer is an answer in memory.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

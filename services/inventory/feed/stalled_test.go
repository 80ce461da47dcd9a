package feed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Heartbeats of an idle set fit into the buffers of HTTP/2 for as long as a connection lives. The server
// cannot tell such a client from one that reads, as the contract notes.
func TestR10SmallSetDoesNotStall(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(5))
		h.nodes.Publish(publishedStatus(1), nil)
		c := h.watch(emptyRequest, "writer")
		c.untilSynced()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		checkEqual(t, "stalled", testutil.ToFloat64(h.server.Metrics.Ended.WithLabelValues("stalled")), 0.0)
		checkEqual(t, "subscribers", testutil.ToFloat64(h.server.Metrics.Subscribers), 1.0)
		for range 300 { // all of them were buffered
			c.next()
		}
	})
}

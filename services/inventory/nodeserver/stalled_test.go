package nodeserver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Heartbeats of a set at rest fit into the buffers of HTTP/2 for as long as a connection lives, so
// the server cannot tell such a reader from a quick one: the contract says so.
func TestR10SmallSetDoesNotStall(t *testing.T) {
	runServer(t, func(h *harness) {
		h.stores.Apply(nodeChanges(5))
		h.stores.SetStatus(publishedStatus(1))
		c := h.watch(emptyRequest, "writer")
		c.untilSynced()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		checkEqual(t, "stalled", testutil.ToFloat64(h.metrics.Ended.WithLabelValues("stalled")), 0.0)
		checkEqual(t, "subscribers", testutil.ToFloat64(h.metrics.Subscribers), 1.0)
		for range 300 { // all of them waited to be read
			c.next()
		}
	})
}

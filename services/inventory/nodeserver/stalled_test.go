package nodeserver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Heartbeats of a set at rest fit into the buffers of HTTP/2 for as long as a connection lives, so
// the server cannot tell such a reader from a quick one: the contract says so.
func TestR10AStalledReaderOfASmallSetIsLeftToTheAgeOfItsConnection(t *testing.T) {
	serve(t, func(h *harness) {
		h.stores.Apply(fleet(5))
		h.stores.SetStatus(told(1))
		c := h.watch(nothing, "writer")
		c.untilSynced()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		want(t, "stalled", testutil.ToFloat64(h.metrics.Ended.WithLabelValues("stalled")), 0.0)
		want(t, "subscribers", testutil.ToFloat64(h.metrics.Live), 1.0)
		for range 300 { // all of them waited to be read
			c.next()
		}
	})
}

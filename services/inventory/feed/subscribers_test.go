package feed

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSubscribersShowsStreams(t *testing.T) {
	runServer(t, func(h *harness) {
		c := h.watch(emptyRequest, "writer")
		c.next()
		synctest.Wait()
		all := h.server.Subscribers()
		checkEqual(t, "subscribers", len(all), 1)

		startedAt := time.Now()
		apply(h.nodes, nodeChanges(3))
		h.nodes.Publish(publishedStatus(1), nil)
		c.untilSynced()
		time.Sleep(time.Minute - time.Nanosecond)
		red := h.watch(emptyRequest, "red")
		red.untilSynced()
		synctest.Wait()
		all = h.server.Subscribers()
		checkEqual(t, "subscribers", len(all), 2)
		checkEqual(t, "names", all[0].Name+" "+all[1].Name, "red writer")
		checkEqual(t, "since", all[1].Since, startedAt)
		checkEqual(t, "lag", all[1].Lag, 0)
		checkEqual(t, "heartbeat sent", time.Since(all[1].LastSentAt) <= 5*time.Second, true)

		red.cancel()
		synctest.Wait()
		checkEqual(t, "after one has left", len(h.server.Subscribers()), 1)
	})
}

func TestSubscribersShowsLag(t *testing.T) {
	runServer(t, func(h *harness) {
		h.nodes.Publish(publishedStatus(1), nil)
		slow := h.watch(emptyRequest, "writer")
		slow.untilSynced()
		for range 20 { // more than the windows hold, unread
			apply(h.nodes, nodeChanges(2000))
			synctest.Wait()
			removals := nodeChanges(2000)
			for i := range removals {
				removals[i].Node = nil
			}
			apply(h.nodes, removals)
			synctest.Wait()
		}
		if behind := h.server.Subscribers()[0].Lag; behind < 2000 {
			t.Errorf("lag of %d changes", behind)
		}
		slow.cancel()
	})
}

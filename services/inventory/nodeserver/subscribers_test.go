package nodeserver

import (
	"testing"
	"testing/synctest"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

func TestSubscribersShowsStreams(t *testing.T) {
	runServer(t, func(h *harness) {
		c := h.watch(emptyRequest, "writer")
		c.next()
		synctest.Wait()
		all := h.server.Subscribers()
		checkEqual(t, "subscribers", len(all), 1)
		checkEqual(t, "before the first publication", all[0].Synced, false)

		startedAt := time.Now()
		h.stores.Apply(nodeChanges(3))
		h.stores.SetStatus(publishedStatus(1))
		c.untilSynced()
		time.Sleep(time.Minute - time.Nanosecond)
		red := h.watch(emptyRequest, "red")
		red.untilSynced()
		synctest.Wait()
		all = h.server.Subscribers()
		checkEqual(t, "subscribers", len(all), 2)
		checkEqual(t, "names", all[0].Name+" "+all[1].Name, "red writer")
		checkEqual(t, "view", all[0].View.Selector.String(), "pool=red")
		checkEqual(t, "since", all[1].Since, startedAt)
		checkEqual(t, "synced", all[1].Synced, true)
		checkEqual(t, "lag", all[1].Lag, 0)
		checkEqual(t, "heartbeat sent", time.Since(all[1].LastSentAt) <= 5*time.Second, true)

		red.cancel()
		synctest.Wait()
		checkEqual(t, "after one has left", len(h.server.Subscribers()), 1)
	})
}

func TestSubscribersShowsLag(t *testing.T) {
	runServer(t, func(h *harness) {
		h.stores.SetStatus(publishedStatus(1))
		slow := h.watch(emptyRequest, "writer")
		slow.untilSynced()
		for range 20 { // more than the windows hold, unread
			h.stores.Apply(nodeChanges(2000))
			synctest.Wait()
			removals := nodeChanges(2000)
			for i := range removals {
				removals[i].Node = nil
			}
			h.stores.Apply(removals)
			synctest.Wait()
		}
		if behind := h.server.Subscribers()[0].Lag; behind < 2000 {
			t.Errorf("lag of %d changes", behind)
		}
		slow.cancel()
	})
}

// The store of a view is kept while it has a reader, and for some time after. Its epoch shows that.
func TestReleasesStoreAfterLastStream(t *testing.T) {
	runServer(t, func(h *harness) {
		h.stores.Apply(nodeChanges(3))
		h.stores.SetStatus(publishedStatus(1))
		epoch := func() string {
			l, err := h.client.ListNodes(withClientName(h.t.Context(), "writer"), &inventoryv1.ListNodesRequest{})
			checkEqual(t, "error", err, nil)
			return l.GetCursor().GetEpoch()
		}
		before := epoch()
		c := h.watch(emptyRequest, "writer")
		c.untilSynced()
		for range 3 { // the stream stays open while calls come and go
			time.Sleep(30 * time.Minute)
			h.stores.FreeUnused(time.Now())
			checkEqual(t, "epoch while it is read", epoch(), before)
		}
		c.cancel()
		synctest.Wait()
		time.Sleep(9 * time.Minute)
		h.stores.FreeUnused(time.Now())
		checkEqual(t, "epoch soon after", epoch(), before)
		time.Sleep(10 * time.Minute)
		h.stores.FreeUnused(time.Now())
		checkEqual(t, "another epoch later", epoch() != before, true)
	})
}

package nodeserver

import (
	"testing"
	"testing/synctest"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

func TestSaysWhoSubscribesToWhatSinceWhenAndHowFarItIs(t *testing.T) {
	serve(t, func(h *harness) {
		c := h.watch(nothing, "writer")
		c.next()
		synctest.Wait()
		all := h.server.Subscribers()
		want(t, "subscribers", len(all), 1)
		want(t, "before the first word", all[0].Synced, false)

		began := time.Now()
		h.stores.Apply(fleet(3))
		h.stores.SetStatus(told(1))
		c.untilSynced()
		time.Sleep(time.Minute - time.Nanosecond)
		red := h.watch(nothing, "red")
		red.untilSynced()
		synctest.Wait()
		all = h.server.Subscribers()
		want(t, "subscribers", len(all), 2)
		want(t, "names", all[0].Name+" "+all[1].Name, "red writer")
		want(t, "view", all[0].View.Selector.String(), "pool=red")
		want(t, "since", all[1].Since, began)
		want(t, "synced", all[1].Synced, true)
		want(t, "behind", all[1].Behind, 0)
		want(t, "told by a heartbeat", time.Since(all[1].ToldAt) <= 5*time.Second, true)

		red.leave()
		synctest.Wait()
		want(t, "once one has gone", len(h.server.Subscribers()), 1)
	})
}

func TestSaysHowFarBehindASlowSubscriberIs(t *testing.T) {
	serve(t, func(h *harness) {
		h.stores.SetStatus(told(1))
		slow := h.watch(nothing, "writer")
		slow.untilSynced()
		for range 20 { // more than the windows hold, unread
			h.stores.Apply(fleet(2000))
			synctest.Wait()
			gone := fleet(2000)
			for i := range gone {
				gone[i].Node = nil
			}
			h.stores.Apply(gone)
			synctest.Wait()
		}
		if behind := h.server.Subscribers()[0].Behind; behind < 2000 {
			t.Errorf("it is %d changes behind", behind)
		}
		slow.leave()
	})
}

// The set of a view stays for as long as somebody reads it, and for a while after: epochs tell.
func TestReleasesASetWhenItsLastStreamEnds(t *testing.T) {
	serve(t, func(h *harness) {
		h.stores.Apply(fleet(3))
		h.stores.SetStatus(told(1))
		epoch := func() string {
			l, err := h.client.ListNodes(as(h.t.Context(), "writer"), &inventoryv1.ListNodesRequest{})
			want(t, "error", err, nil)
			return l.GetCursor().GetEpoch()
		}
		before := epoch()
		c := h.watch(nothing, "writer")
		c.untilSynced()
		for range 3 { // reads on beside calls that come and go
			time.Sleep(30 * time.Minute)
			h.stores.FreeUnread(time.Now())
			want(t, "epoch while it is read", epoch(), before)
		}
		c.leave()
		synctest.Wait()
		time.Sleep(9 * time.Minute)
		h.stores.FreeUnread(time.Now())
		want(t, "epoch soon after", epoch(), before)
		time.Sleep(10 * time.Minute)
		h.stores.FreeUnread(time.Now())
		want(t, "another epoch later", epoch() != before, true)
	})
}

package feed

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/deltaset/deltasettest"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func poolView(name string) View {
	return View{Selector: labels.SelectorFromSet(labels.Set{"pool": name})}
}

func TestFreesStoreAfterTimeout(t *testing.T) {
	for _, tc := range []struct {
		name    string
		readers int
		release []time.Duration // when each of them is released
		returns time.Duration   // when one returns briefly; 0: never
		at      time.Duration
		kept    bool
	}{
		{"it is being read", 1, nil, 0, 24 * time.Hour, true},
		{"one of two reads on", 2, []time.Duration{0}, 0, 24 * time.Hour, true},
		{"its reader left a moment ago", 1, []time.Duration{time.Hour}, 0, time.Hour, true},
		{"its reader left almost ten minutes ago", 1, []time.Duration{0}, 0, 10*time.Minute - 1, true},
		{"its reader left ten minutes ago", 1, []time.Duration{0}, 0, 10 * time.Minute, false},
		{"the last of two left nine minutes ago", 2, []time.Duration{0, time.Minute}, 0, 10 * time.Minute, true},
		{"the last of two left ten minutes ago", 2, []time.Duration{0, time.Minute}, 0, 11 * time.Minute, false},
		{"its reader came back in between", 1, []time.Duration{0}, 5 * time.Minute, 14 * time.Minute, true},
		{"its reader came back and left again", 1, []time.Duration{0}, 5 * time.Minute, 15 * time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := NewStores("epoch")
			var store *Store
			for range tc.readers {
				store = all.Acquire(View{})
			}
			for _, after := range tc.release {
				all.Release(store, start.Add(after))
			}
			if tc.returns > 0 {
				checkEqual(t, "the same store", all.Acquire(View{}) == store, true)
				all.Release(store, start.Add(tc.returns))
			}
			all.FreeUnused(start.Add(tc.at))
			checkEqual(t, "kept", len(all.stores) == 1, tc.kept)
		})
	}
}

// A client that has a cursor of the freed store gets a reset from the new one, even if the revisions
// happen to be equal.
func TestRecreatedStoreHasNewEpoch(t *testing.T) {
	all := NewStores("epoch")
	all.SetStatus(publishedStatus(1))
	old := all.Acquire(View{})
	all.Apply(upserts(newNode("a", source.Ready)))
	at := old.Since(nil).At
	all.Release(old, start)
	all.Apply(append(removals("a"), upserts(newNode("b", source.Ready))...))
	all.FreeUnused(start.Add(time.Hour))
	again := all.Acquire(View{})
	now := again.Since(&at)
	checkEqual(t, "revision", now.At.Revision, at.Revision)
	checkEqual(t, "reset", now.Reset, true)
	checkEqual(t, "epochs differ", now.At.Epoch != at.Epoch, true)
}

func TestCountsRevisionsOfFreedStores(t *testing.T) {
	all := NewStores("epoch")
	store := all.Acquire(View{})
	all.Apply(upserts(newNode("a", source.Ready)))
	all.Apply(removals("a"))
	all.Release(store, start)
	all.FreeUnused(start.Add(time.Hour))
	checkEqual(t, "stores", len(all.stores), 0)
	checkEqual(t, "changes", all.TotalRevisions(), 2)
	all.Acquire(View{})
	all.Apply(upserts(newNode("b", source.Ready)))
	checkEqual(t, "changes with those of the next store", all.TotalRevisions(), 3)
}

func TestUnusedStoresAreFreed(t *testing.T) {
	all := NewStores("epoch")
	all.Release(all.Acquire(View{}), start)
	all.FreeUnused(start.Add(unusedTimeout - 1))
	checkEqual(t, "stores", len(all.stores), 1)
	all.FreeUnused(start.Add(unusedTimeout))
	checkEqual(t, "stores later", len(all.stores), 0)
}

// However often the list of clients is edited, there are at most as many stores as views that have a
// reader or had one within ten minutes. Readers that return receive what takes them to the current set.
func TestStoreCountIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, now := NewStores("epoch"), start
		all.SetStatus(publishedStatus(1))
		type client struct {
			deltasettest.Reader

			view  string
			store *Store // nil: not connected
		}
		clients := make([]*client, 4)
		for i := range clients {
			clients[i] = &client{view: "blue"}
		}
		left := map[string]time.Time{} // when a view was last read
		leave := func(c *client) {
			if c.store != nil {
				all.Release(c.store, now)
				c.store, left[c.view] = nil, now
			}
		}
		changes := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := rapid.SampledFrom(clients).Draw(t, "client")
			switch rapid.SampledFrom([]string{"edit", "come", "leave", "change", "wait"}).Draw(t, "step") {
			case "edit":
				leave(c)
				c.view = fmt.Sprintf("p%d", rapid.IntRange(0, 20).Draw(t, "view"))
			case "come":
				if c.store == nil {
					c.store = all.Acquire(poolView(c.view))
				}
			case "leave":
				leave(c)
			case "change":
				n := newNode(fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "node")), source.Ready,
					withLabels("pool", fmt.Sprintf("p%d", rapid.IntRange(0, 20).Draw(t, "pool"))))
				all.Apply(upserts(n))
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "minutes")) * time.Minute)
			}
			all.FreeUnused(now)

			views := map[string]bool{}
			for view, at := range left {
				if now.Sub(at) < unusedTimeout {
					views[view] = true
				}
			}
			for _, c := range clients {
				if c.store == nil {
					continue
				}
				views[c.view] = true
				if err := deltasettest.Apply(&c.Reader, c.store.Since(c.Position).Delta); err != nil {
					t.Fatal(err)
				}
				if len(c.Set) != len(c.store.Snapshot().Upserts) || c.store != all.stores[poolView(c.view).Key()].Store {
					t.Fatalf("a client of %s has %v", c.view, c.Set)
				}
			}
			if len(all.stores) != len(views) {
				t.Fatalf("%d stores, want those of %v", len(all.stores), views)
			}
			if n := all.TotalRevisions(); n < changes {
				t.Fatalf("%d changes are counted after %d", n, changes)
			} else {
				changes = n
			}
		}
	})
}

package roster

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestMembership(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want Sync
		says string
	}{
		{"at rest", func(*world) {}, Synced, ""},
		{"the watch was silent for 150s", func(w *world) {
			w.WatchFailed(w.now, "connection refused")
			w.pass(150 * time.Second)
			w.Looked(w.now, w.now, Light, w.rv, nil)
		}, Synced, ""},
		{"the watch is silent for longer", func(w *world) {
			w.WatchFailed(w.now, "connection refused")
			w.pass(151 * time.Second)
			w.Looked(w.now, w.now, Light, w.rv, nil)
		}, Degraded, "no contact with the source for more than 2m30s: connection refused"},
		{"the last LIST failed, though bookmarks come", func(w *world) {
			w.Looked(w.now, w.now, Light, 0, errors.New("timeout"))
			w.Heard(w.now, w.rv)
		}, Degraded, "timeout"},
		{"a light look without a mark", func(w *world) { w.Looked(w.now, w.now, Light, 0, nil) }, Degraded, "how current"},
		{"no look answered for long, though bookmarks come", func(w *world) {
			w.pass(4 * time.Minute)
			w.Heard(w.now, w.rv)
		}, Degraded, "no source verification"},
		{"a LIST after a failure", func(w *world) {
			w.Looked(w.now, w.now, Light, 0, errors.New("timeout"))
			w.Looked(w.now, w.now, Light, w.rv, nil)
		}, Synced, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t, Config{})
			tc.then(w)
			got := w.Status(w.now).Membership
			if got.Sync != tc.want || !strings.Contains(got.Reason, tc.says) {
				t.Errorf("got %s %q, want %s %q", got.Sync, got.Reason, tc.want, tc.says)
			}
			w.sees("a 10.0.0.11")
		})
	}
	t.Run("before the first complete look", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(node("a", s1))
		if got := w.Status(w.now).Membership; got.Sync != Unsynced {
			t.Errorf("got %+v", got)
		}
		w.Looked(w.now, w.now, Full, 0, errors.New("forbidden"))
		if got := w.Status(w.now).Membership; got.Sync != Unsynced || !strings.Contains(got.Reason, "forbidden") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want Sync
		says string
	}{
		{"at rest", func(*world) {}, Synced, ""},
		{"the last listing failed", func(w *world) { w.Listed(w.now, w.now, Listing{}, errors.New("503"), 0) }, Degraded, "503"},
		{"the last whole listing is three polls old", func(w *world) { w.pass(3 * time.Minute) }, Degraded, "3m0s"},
		{"the data of a node's server cannot be used", func(w *world) { w.list(Listing{Invalid: map[string]string{s1: "x"}}) }, Degraded, "servers of 1 nodes"},
		{"the data of another server cannot be used", func(w *world) {
			w.list(Listing{Servers: one.Servers, Invalid: map[string]string{s3: "x"}})
		}, Synced, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t, Config{})
			tc.then(w)
			got := w.Status(w.now).Addresses
			if got.Sync != tc.want || !strings.Contains(got.Reason, tc.says) {
				t.Errorf("got %s %q, want %s %q", got.Sync, got.Reason, tc.want, tc.says)
			}
			w.sees("a 10.0.0.11")
		})
	}
}

func TestThePartsTellSinceWhenTheyAreAsTheyAre(t *testing.T) {
	w := ready(t, Config{})
	w.pass(time.Second)
	failed := w.now
	w.Listed(w.now, w.now, Listing{}, errors.New("503"), 0)
	w.pass(time.Second)
	w.Listed(w.now, w.now, Listing{}, errors.New("502"), 0)
	if got := w.Status(w.now).Addresses; !got.Since.Equal(failed) || got.Reason != "cloud listing failed: 502" {
		t.Errorf("got %+v, want it since %s", got, failed)
	}
}

func TestTheRosterWakesWhenTimeAloneChangesItsStatus(t *testing.T) {
	w := ready(t, Config{})
	for range 20 { // nothing is ever answered or heard again
		if w.wake(); w.Status(w.now).Membership.Sync == Degraded {
			break
		}
	}
	if got, want := w.Status(w.now).Membership.Since.Sub(t0), silence; got < want || got > want+time.Millisecond {
		t.Errorf("degraded after %s, want %s", got, want)
	}
}

func TestReasonsAreOneBoundedLineWithoutCredentials(t *testing.T) {
	for _, tc := range []struct{ in, out string }{
		{"a\nb\x1b[31m\t c", "a b [31m c"},
		{"Get: Authorization: Bearer abc.def: denied", "Get: Authorization: [removed] denied"},
		{"eyJhbGciOiJIUzI1NiJ9.e30.x was refused", "[removed] was refused"},
		{"https://user:pw@host/x: EOF", "https:[removed]host/x: EOF"},
		{`body {"token":"abc"}`, `body {"[removed]`},
		{"\xff", "?"},
	} {
		if got := plain(tc.in); got != tc.out {
			t.Errorf("%q gave %q, want %q", tc.in, got, tc.out)
		}
	}
	if got := plain(strings.Repeat("ä ", 100000)); len(got) > 410 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestCountsAreThoseOfTheNodes(t *testing.T) {
	w := ready(t, Config{})
	b := node("b", s2)
	b.Excluded = ControlPlane
	w.pass(time.Second)
	w.up(b, node("c", s3))
	c := w.Counts()
	if c.States[Ready] != 1 || c.Omitted[ControlPlane] != 1 || c.Omitted[NotResolvedYet] != 1 || len(c.Omitted) != 11 {
		t.Errorf("got %+v", c)
	}
}

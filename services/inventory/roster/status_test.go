package roster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestMembership(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want source.SyncState
		says string
	}{
		{"at rest", func(*world) {}, source.Synced, ""},
		{"the watch was silent for 150s", func(w *world) {
			w.sourceFailed(w.now, "connection refused")
			w.pass(150 * time.Second)
			w.verified(w.now, w.now, source.LightVerification, w.rv, nil)
		}, source.Synced, ""},
		{"the watch is silent for longer", func(w *world) {
			w.sourceFailed(w.now, "connection refused")
			w.pass(151 * time.Second)
			w.verified(w.now, w.now, source.LightVerification, w.rv, nil)
		}, source.Degraded, "no contact with the source for more than 2m30s: connection refused"},
		{"the last LIST failed, though bookmarks come", func(w *world) {
			w.verified(w.now, w.now, source.LightVerification, 0, errors.New("timeout"))
			w.contact(w.now, w.rv)
		}, source.Degraded, "timeout"},
		{"a light look without a mark", func(w *world) { w.verified(w.now, w.now, source.LightVerification, 0, nil) }, source.Degraded, "how current"},
		{"no look answered for long, though bookmarks come", func(w *world) {
			w.pass(4 * time.Minute)
			w.contact(w.now, w.rv)
		}, source.Degraded, "no source verification"},
		{"a LIST after a failure", func(w *world) {
			w.verified(w.now, w.now, source.LightVerification, 0, errors.New("timeout"))
			w.verified(w.now, w.now, source.LightVerification, w.rv, nil)
		}, source.Synced, ""},
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
		if got := w.Status(w.now).Membership; got.Sync != source.Unsynced {
			t.Errorf("got %+v", got)
		}
		w.verified(w.now, w.now, source.FullVerification, 0, errors.New("forbidden"))
		if got := w.Status(w.now).Membership; got.Sync != source.Unsynced || !strings.Contains(got.Reason, "forbidden") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want source.SyncState
		says string
	}{
		{"at rest", func(*world) {}, source.Synced, ""},
		{"the last listing failed", func(w *world) { w.listed(w.now, w.now, source.Listing{}, errors.New("503"), 0) }, source.Degraded, "503"},
		{"the last whole listing is three polls old", func(w *world) { w.pass(3 * time.Minute) }, source.Degraded, "3m0s"},
		{"the data of a node's server cannot be used", func(w *world) { w.list(source.Listing{Invalid: map[string]string{s1: "x"}}) }, source.Degraded, "servers of 1 nodes"},
		{"the data of another server cannot be used", func(w *world) {
			w.list(source.Listing{Servers: one.Servers, Invalid: map[string]string{s3: "x"}})
		}, source.Synced, ""},
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
	w.listed(w.now, w.now, source.Listing{}, errors.New("503"), 0)
	w.pass(time.Second)
	w.listed(w.now, w.now, source.Listing{}, errors.New("502"), 0)
	if got := w.Status(w.now).Addresses; !got.Since.Equal(failed) || got.Reason != "cloud listing failed: 502" {
		t.Errorf("got %+v, want it since %s", got, failed)
	}
}

func TestTheRosterWakesWhenTimeAloneChangesItsStatus(t *testing.T) {
	w := ready(t, Config{})
	for range 20 { // nothing is ever answered or heard again
		if w.wake(); w.Status(w.now).Membership.Sync == source.Degraded {
			break
		}
	}
	if got, want := w.Status(w.now).Membership.Since.Sub(t0), maxIdle; got < want || got > want+time.Millisecond {
		t.Errorf("degraded after %s, want %s", got, want)
	}
}

func TestCountsAreThoseOfTheNodes(t *testing.T) {
	w := ready(t, Config{})
	b := node("b", s2)
	b.Excluded = source.ControlPlane
	w.pass(time.Second)
	w.up(b, node("c", s3))
	c := w.Counts()
	if c.States[source.Ready] != 1 || c.Omitted[source.ControlPlane] != 1 || c.Omitted[source.NotResolvedYet] != 1 || len(c.Omitted) != 11 {
		t.Errorf("got %+v", c)
	}
}

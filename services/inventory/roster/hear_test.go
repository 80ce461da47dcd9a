package roster

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func record(name, address string) source.Candidate {
	return source.Candidate{Name: name, State: source.Ready, InternalIPs: []netip.Addr{addr(address)}}
}

// told is a world of records with one node, told, at rest.
func newPublishedRecord(t *testing.T, cfg Config) *world {
	t.Helper()
	cfg.Method = resolve.ByRecord
	w := newWorld(t, cfg)
	w.applySource(w.now, source.Update{Changed: []source.Candidate{record("a", "10.0.0.1")}, LastContact: w.now})
	w.verified(w.now, w.now, source.FullVerification, 1, nil)
	if s := w.Status(w.now); !s.Publishable || s.Observation != 1 || s.Membership.Sync != source.Synced || s.Addresses.Sync != source.Synced {
		t.Fatalf("not at rest: %+v", s)
	}
	return w
}

func TestRecordsNeedNoCloudAndTheirAddressesMustBeInside(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	w.applySource(w.now, source.Update{Changed: []source.Candidate{record("b", "192.0.2.1")}})
	w.sees("a 10.0.0.1")
	if o := w.omits("b"); o.Reason != source.OutsideSubnet || !strings.Contains(o.Advice, "The addresses in the source are 192.0.2.1") {
		t.Errorf("got %+v", o)
	}
}

func TestARecordThatCannotBeUsed(t *testing.T) {
	bad := func(name string) source.Candidate {
		return source.Candidate{Name: name, Invalid: "its address is none"}
	}
	t.Run("leaves a node that is known as it was", func(t *testing.T) {
		w := newPublishedRecord(t, Config{})
		w.applySource(w.now, source.Update{Changed: []source.Candidate{bad("a")}, PartialError: "1 record cannot be used"})
		w.sees("a 10.0.0.1")
		if s := w.Status(w.now); s.Membership.Sync != source.Degraded || s.Membership.Reason != "1 record cannot be used" || !s.Publishable {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("leaves a new node out, and says why", func(t *testing.T) {
		w := newPublishedRecord(t, Config{})
		w.applySource(w.now, source.Update{Changed: []source.Candidate{bad("b")}, PartialError: "1 record cannot be used"})
		w.sees("a 10.0.0.1")
		if o := w.omits("b"); o.Reason != source.InvalidRecord || o.Advice != "its address is none" {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("is forgotten once it can be used", func(t *testing.T) {
		w := newPublishedRecord(t, Config{})
		w.applySource(w.now, source.Update{Changed: []source.Candidate{bad("a"), bad("b")}, PartialError: "2 records cannot be used"})
		w.applySource(w.now, source.Update{Changed: []source.Candidate{record("a", "10.0.0.9"), record("b", "10.0.0.2")}})
		w.sees("a 10.0.0.9", "b 10.0.0.2")
		if s := w.Status(w.now); s.Membership.Sync != source.Synced {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("goes when the source says that the node is gone", func(t *testing.T) {
		w := newPublishedRecord(t, Config{})
		w.applySource(w.now, source.Update{Changed: []source.Candidate{bad("a")}, PartialError: "1 record cannot be used"})
		w.applySource(w.now, source.Update{Removed: []string{"a"}})
		w.sees()
	})
	t.Run("is no empty world when there is nothing else", func(t *testing.T) {
		w := newWorld(t, Config{Method: resolve.ByRecord})
		w.applySource(w.now, source.Update{Changed: []source.Candidate{bad("a")}, PartialError: "1 record cannot be used", LastContact: w.now})
		w.verified(w.now, w.now, source.FullVerification, 1, nil)
		if s := w.Status(w.now); s.Publishable || s.Addresses.Sync != source.Unsynced {
			t.Errorf("got %+v", s)
		}
	})
}

func TestTheSourcesPaceAtRestIsItsOwn(t *testing.T) {
	w := newPublishedRecord(t, Config{VerifyInterval: 3 * time.Second})
	start, looks := w.now, 0
	for w.now.Sub(start) < 30*time.Second {
		if a := w.wake(); a.Verify != source.NoVerification {
			looks++
			w.applySource(w.now, source.Update{LastContact: w.now, Verified: uint64(looks) + 1})
			w.verified(w.now, w.now, a.Verify, uint64(looks)+1, nil)
		}
	}
	if n := int(w.Status(w.now).Observation) - 1; looks < 9 || looks > 11 || n != looks/2 {
		t.Errorf("%d looks and %d observations in 30s, want one every 6 s", looks, n)
	}
}

func TestAFailedWatchIsWorthALookAtOnce(t *testing.T) {
	w := ready(t, Config{})
	w.pass(20 * time.Second)
	if a := w.NextActions(w.now); a.Verify != source.NoVerification {
		t.Fatalf("a look at rest after 20s: %+v", a)
	}
	w.sourceFailed(w.now, "connection refused")
	if a := w.NextActions(w.now); a.Verify != source.LightVerification {
		t.Fatalf("%+v, want a light look", a)
	}
	w.verified(w.now, w.now, source.LightVerification, 0, errors.New("connection refused"))
	if s := w.Status(w.now).Membership; s.Sync != source.Degraded {
		t.Errorf("got %+v", s)
	}
	t.Run("but no more often than the pace allows", func(t *testing.T) {
		w := ready(t, Config{})
		looks := 0
		for start := w.now; w.now.Sub(start) < 30*time.Second; w.pass(time.Second) {
			w.sourceFailed(w.now, "it ends at once")
			if a := w.NextActions(w.now); a.Verify != source.NoVerification {
				looks++
				w.verified(w.now, w.now, a.Verify, w.rv, nil)
			}
		}
		if looks > 6 {
			t.Errorf("%d looks in 30s", looks)
		}
	})
}

func TestAWatchThatIsBackEndsThePauseBetweenFailedLooks(t *testing.T) {
	w := ready(t, Config{})
	for range 6 { // the pauses have grown to a minute
		w.sourceFailed(w.now, "connection refused")
		w.pass(time.Minute)
		if a := w.NextActions(w.now); a.Verify == source.NoVerification {
			t.Fatal("no look after a minute")
		}
		w.verified(w.now, w.now, source.LightVerification, 0, errors.New("connection refused"))
	}
	w.pass(10 * time.Second)
	if a := w.NextActions(w.now); a.Verify != source.NoVerification {
		t.Fatalf("within the pause: %+v", a)
	}
	w.up()
	if a := w.NextActions(w.now); a.Verify == source.NoVerification {
		t.Errorf("the watch is back: %+v, want a look", a)
	}
}

func TestWhoJoinsASeriesGetsAllOfItsOwnObservations(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	w.RequestObservations(w.now, 1)
	w.pass(10 * time.Second)
	if a := w.NextActions(w.now); a.Verify != source.FullVerification {
		t.Fatalf("got %+v", a)
	}
	began := w.now
	w.pass(time.Second)
	w.RequestObservations(w.now, 2) // while a look is under way, which says nothing about now
	w.verified(w.now, began, source.FullVerification, 2, nil)
	after := w.Status(w.now).Observation
	for range 10 {
		if a := w.wake(); a.Verify == source.FullVerification {
			w.verified(w.now, w.now, source.FullVerification, 3, nil)
		} else if a.Verify == source.LightVerification {
			break
		}
	}
	if n := w.Status(w.now).Observation - after; n != 2 {
		t.Errorf("%d observations were begun after the question, want 2", n)
	}
}

func TestPortsAreThoseOfTheLastNews(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	w.applySource(w.now, source.Update{Ports: []source.Port{{Protocol: "TCP", Number: 8080}}})
	if p := w.Status(w.now).Ports; len(p) != 1 || p[0].Number != 8080 {
		t.Errorf("got %v", p)
	}
}

func TestWhileTheSourceIsBehindTheLooksAtRestAreFull(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want source.Verification
	}{
		{"it lives", func(w *world) { w.up() }, source.LightVerification},
		{"it is silent", func(*world) {}, source.FullVerification},
		{"it speaks, and does not catch up", func(w *world) {
			w.verified(w.now.Add(-3*time.Minute), w.now.Add(-3*time.Minute), source.LightVerification, w.rv+10, nil)
			w.contact(w.now, w.rv)
		}, source.FullVerification},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t, Config{})
			w.pass(4 * time.Minute)
			tc.then(w)
			if a := w.NextActions(w.now); a.Verify != tc.want {
				t.Errorf("a %s look, want %s", a.Verify, tc.want)
			}
		})
	}
}

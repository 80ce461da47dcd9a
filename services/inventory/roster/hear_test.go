package roster

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func record(name, address string) Candidate {
	return Candidate{Name: name, State: Ready, InternalIPs: []netip.Addr{addr(address)}}
}

// told is a world of records with one node, told, at rest.
func told(t *testing.T, cfg Config) *world {
	t.Helper()
	cfg.Resolver = ByRecord
	w := newWorld(t, cfg)
	w.Hear(w.now, News{Changed: []Candidate{record("a", "10.0.0.1")}, LastContact: w.now})
	w.Looked(w.now, w.now, Full, 1, nil)
	if s := w.Status(w.now); !s.Publishable || s.Observation != 1 || s.Membership.Sync != Synced || s.Addresses.Sync != Synced {
		t.Fatalf("not at rest: %+v", s)
	}
	return w
}

func TestRecordsNeedNoCloudAndTheirAddressesMustBeInside(t *testing.T) {
	w := told(t, Config{})
	w.Hear(w.now, News{Changed: []Candidate{record("b", "192.0.2.1")}})
	w.sees("a 10.0.0.1")
	if o := w.omits("b"); o.Reason != OutsideSubnet || !strings.Contains(o.Advice, "The addresses in the source are 192.0.2.1") {
		t.Errorf("got %+v", o)
	}
}

func TestARecordThatCannotBeUsed(t *testing.T) {
	bad := func(name string) Candidate { return Candidate{Name: name, Invalid: "its address is none"} }
	t.Run("leaves a node that is known as it was", func(t *testing.T) {
		w := told(t, Config{})
		w.Hear(w.now, News{Changed: []Candidate{bad("a")}, PartialError: "1 record cannot be used"})
		w.sees("a 10.0.0.1")
		if s := w.Status(w.now); s.Membership.Sync != Degraded || s.Membership.Reason != "1 record cannot be used" || !s.Publishable {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("leaves a new node out, and says why", func(t *testing.T) {
		w := told(t, Config{})
		w.Hear(w.now, News{Changed: []Candidate{bad("b")}, PartialError: "1 record cannot be used"})
		w.sees("a 10.0.0.1")
		if o := w.omits("b"); o.Reason != InvalidRecord || o.Advice != "its address is none" {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("is forgotten once it can be used", func(t *testing.T) {
		w := told(t, Config{})
		w.Hear(w.now, News{Changed: []Candidate{bad("a"), bad("b")}, PartialError: "2 records cannot be used"})
		w.Hear(w.now, News{Changed: []Candidate{record("a", "10.0.0.9"), record("b", "10.0.0.2")}})
		w.sees("a 10.0.0.9", "b 10.0.0.2")
		if s := w.Status(w.now); s.Membership.Sync != Synced {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("goes when the source says that the node is gone", func(t *testing.T) {
		w := told(t, Config{})
		w.Hear(w.now, News{Changed: []Candidate{bad("a")}, PartialError: "1 record cannot be used"})
		w.Hear(w.now, News{Removed: []string{"a"}})
		w.sees()
	})
	t.Run("is no empty world when there is nothing else", func(t *testing.T) {
		w := newWorld(t, Config{Resolver: ByRecord})
		w.Hear(w.now, News{Changed: []Candidate{bad("a")}, PartialError: "1 record cannot be used", LastContact: w.now})
		w.Looked(w.now, w.now, Full, 1, nil)
		if s := w.Status(w.now); s.Publishable || s.Addresses.Sync != Unsynced {
			t.Errorf("got %+v", s)
		}
	})
}

func TestTheSourcesPaceAtRestIsItsOwn(t *testing.T) {
	w := told(t, Config{Rest: 3 * time.Second})
	start, looks := w.now, 0
	for w.now.Sub(start) < 30*time.Second {
		if a := w.wake(); a.Look != NoLook {
			looks++
			w.Hear(w.now, News{LastContact: w.now, Verified: uint64(looks) + 1})
			w.Looked(w.now, w.now, a.Look, uint64(looks)+1, nil)
		}
	}
	if n := int(w.Status(w.now).Observation) - 1; looks < 9 || looks > 11 || n != looks/2 {
		t.Errorf("%d looks and %d observations in 30s, want one every 6 s", looks, n)
	}
}

func TestAFailedWatchIsWorthALookAtOnce(t *testing.T) {
	w := ready(t, Config{})
	w.pass(20 * time.Second)
	if a := w.Ask(w.now); a.Look != NoLook {
		t.Fatalf("a look at rest after 20s: %+v", a)
	}
	w.WatchFailed(w.now, "connection refused")
	if a := w.Ask(w.now); a.Look != Light {
		t.Fatalf("%+v, want a light look", a)
	}
	w.Looked(w.now, w.now, Light, 0, errors.New("connection refused"))
	if s := w.Status(w.now).Membership; s.Sync != Degraded {
		t.Errorf("got %+v", s)
	}
	t.Run("but no more often than the pace allows", func(t *testing.T) {
		w := ready(t, Config{})
		looks := 0
		for start := w.now; w.now.Sub(start) < 30*time.Second; w.pass(time.Second) {
			w.WatchFailed(w.now, "it ends at once")
			if a := w.Ask(w.now); a.Look != NoLook {
				looks++
				w.Looked(w.now, w.now, a.Look, w.rv, nil)
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
		w.WatchFailed(w.now, "connection refused")
		w.pass(time.Minute)
		if a := w.Ask(w.now); a.Look == NoLook {
			t.Fatal("no look after a minute")
		}
		w.Looked(w.now, w.now, Light, 0, errors.New("connection refused"))
	}
	w.pass(10 * time.Second)
	if a := w.Ask(w.now); a.Look != NoLook {
		t.Fatalf("within the pause: %+v", a)
	}
	w.up()
	if a := w.Ask(w.now); a.Look == NoLook {
		t.Errorf("the watch is back: %+v, want a look", a)
	}
}

func TestWhoJoinsASeriesGetsAllOfItsOwnObservations(t *testing.T) {
	w := told(t, Config{})
	w.Doubt(w.now, 1)
	w.pass(10 * time.Second)
	if a := w.Ask(w.now); a.Look != Full {
		t.Fatalf("got %+v", a)
	}
	began := w.now
	w.pass(time.Second)
	w.Doubt(w.now, 2) // while a look is under way, which says nothing about now
	w.Looked(w.now, began, Full, 2, nil)
	after := w.Status(w.now).Observation
	for range 10 {
		if a := w.wake(); a.Look == Full {
			w.Looked(w.now, w.now, Full, 3, nil)
		} else if a.Look == Light {
			break
		}
	}
	if n := w.Status(w.now).Observation - after; n != 2 {
		t.Errorf("%d observations were begun after the question, want 2", n)
	}
}

func TestPortsAreThoseOfTheLastNews(t *testing.T) {
	w := told(t, Config{})
	w.Hear(w.now, News{Ports: []Port{{Protocol: "TCP", Number: 8080}}})
	if p := w.Status(w.now).Ports; len(p) != 1 || p[0].Number != 8080 {
		t.Errorf("got %v", p)
	}
}

func TestWhileTheSourceIsBehindTheLooksAtRestAreFull(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want Look
	}{
		{"it lives", func(w *world) { w.up() }, Light},
		{"it is silent", func(*world) {}, Full},
		{"it speaks, and does not catch up", func(w *world) {
			w.Looked(w.now.Add(-3*time.Minute), w.now.Add(-3*time.Minute), Light, w.rv+10, nil)
			w.Heard(w.now, w.rv)
		}, Full},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t, Config{})
			w.pass(4 * time.Minute)
			tc.then(w)
			if a := w.Ask(w.now); a.Look != tc.want {
				t.Errorf("a %s look, want %s", a.Look, tc.want)
			}
		})
	}
}

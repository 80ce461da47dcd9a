package roster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestAnAddressStays(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
	}{
		{"while listings fail", func(w *world) { w.listed(w.now, w.now, source.Listing{}, errors.New("503"), 0) }},
		{"when the cloud lists nothing at all", func(w *world) { w.list(listing()) }},
		{"when the server is missing", func(w *world) { w.list(listing(server(s2, "b"))) }},
		{"when the NIC is missing", func(w *world) { w.list(listing(source.Server{ID: s1, Datacenter: dc})) }},
		{"when the NIC has no address", func(w *world) { w.list(listing(server(s1, "a"))) }},
		{"when the server's data cannot be read", func(w *world) { w.list(source.Listing{Invalid: map[string]string{s1: "nics is a string"}}) }},
		{"when the server has two others now", func(w *world) { w.list(listing(server(s1, "a", "10.0.0.21", "10.0.0.22"))) }},
		{"when the server's address is outside now", func(w *world) { w.list(listing(server(s1, "a", "172.16.0.1"))) }},
		{"when it is a failover address now", func(w *world) {
			l := listing(server(s1, "a", "10.0.0.11"))
			l.Failover = addrs("10.0.0.11")
			w.list(l)
		}},
		{"when another server that is no node bears it", func(w *world) { w.list(listing(server(s3, "x", "10.0.0.11"))) }},
		{"when two servers bear it", func(w *world) {
			w.list(listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.11")))
		}},
		{"when the Node's provider ID is lost", func(w *world) {
			c := node("a", s1)
			c.ProviderID = ""
			w.up(c)
		}},
		{"when the Node's identities contradict each other", func(w *world) {
			c := node("a", s1)
			c.SystemUUID = s2
			w.list(listing(server(s1, "a", "10.0.0.11"), server(s2, "b")))
			w.up(c)
		}},
		{"over an exclusion that is taken back while the cloud lists nothing", func(w *world) {
			w.list(listing())
			c := node("a", s1)
			c.Excluded = source.ExcludedByLabel
			w.up(c)
			w.sees()
			w.up(node("a", s1))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.up(node("a", s1))
			w.observed(listing(server(s1, "a", "10.0.0.11")))
			w.sees("a 10.0.0.11")
			tc.then(w)
			w.sees("a 10.0.0.11")
		})
	}
}

func TestAnAddressGoes(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		want []string
	}{
		{"with the Node", func(w *world) { w.remove(w.now, "a") }, nil},
		{"with the Node's UID", func(w *world) {
			w.list(listing())
			c := node("a", s1)
			c.UID = "other"
			w.up(c)
		}, nil},
		{"when the server has another one, and only that", func(w *world) {
			w.list(listing(server(s1, "a", "10.0.0.12")))
		}, []string{"a 10.0.0.12"}},
		{"in one family only, when the answer gives only that", func(w *world) {
			w.list(listing(server(s1, "a", "10.0.0.11", "fd00::1")))
			w.list(listing(server(s1, "a", "fd00::2")))
		}, []string{"a 10.0.0.11 fd00::2"}},
		{"at once to the node whose server has it now", func(w *world) {
			w.up(node("b", s2))
			w.list(listing(server(s2, "b", "10.0.0.11")))
			w.up(node("b", s2))
		}, []string{"b 10.0.0.11"}},
		{"both ways in a swap", func(w *world) {
			w.up(node("b", s2))
			w.list(listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12")))
			w.list(listing(server(s1, "a", "10.0.0.12"), server(s2, "b", "10.0.0.11")))
		}, []string{"a 10.0.0.12", "b 10.0.0.11"}},
		{"and the loser keeps its other family", func(w *world) {
			w.list(listing(server(s1, "a", "10.0.0.11", "fd00::1")))
			w.up(node("b", s2))
			w.list(listing(server(s2, "b", "10.0.0.11")))
		}, []string{"a fd00::1", "b 10.0.0.11"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.up(node("a", s1))
			w.observed(listing(server(s1, "a", "10.0.0.11")))
			tc.then(w)
			w.sees(tc.want...)
		})
	}
}

func TestAReplacedWorkerThatInheritsAnAddressHasItWhileTheOldNodeLingers(t *testing.T) {
	w := newWorld(t, Config{})
	w.up(node("old", s1))
	w.observed(listing(server(s1, "old", "10.0.0.11")))
	old := node("old", s1)
	old.State = source.NotReady
	w.up(old, node("new", s2))
	w.list(listing(server(s2, "new", "10.0.0.11")))
	w.sees("new 10.0.0.11")
	o := w.omits("old")
	if o.Reason != source.NotFoundInIONOS || !strings.Contains(o.Advice, s1) {
		t.Errorf("the loser is left out with %s: %s", o.Reason, o.Advice)
	}
}

func TestTwoNodesOfOneMachine(t *testing.T) {
	start := func(t *testing.T) *world {
		w := newWorld(t, Config{})
		w.up(node("a", s1))
		w.observed(listing(server(s1, "a", "10.0.0.11")))
		w.up(node("b", s1))
		w.sees("a 10.0.0.11")
		return w
	}
	t.Run("the first keeps the address, the second is told why not", func(t *testing.T) {
		w := start(t)
		if o := w.omits("b"); o.Reason != source.SharedAddress || !strings.Contains(o.Advice, `"a"`) {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("the second has it once the first is deleted", func(t *testing.T) {
		w := start(t)
		w.remove(w.now, "a")
		w.sees("b 10.0.0.11")
	})
	t.Run("the second has it once the first is excluded", func(t *testing.T) {
		w := start(t)
		a := node("a", s1)
		a.Excluded = source.NotSelected
		w.up(a)
		w.sees("b 10.0.0.11")
	})
	t.Run("the second is not forgotten when a third waits too", func(t *testing.T) {
		w := start(t)
		w.up(node("c", s1))
		w.remove(w.now, "a")
		w.sees("b 10.0.0.11")
	})
	t.Run("nor when the third ceases to wait", func(t *testing.T) {
		w := start(t)
		w.up(node("c", s1))
		w.remove(w.now, "c")
		w.remove(w.now, "a")
		w.sees("b 10.0.0.11")
	})
	t.Run("a READY one goes before one that is not", func(t *testing.T) {
		w := start(t)
		a := node("a", s1)
		a.State = source.NotReady
		w.up(a)
		w.sees("b 10.0.0.11")
		w.up(node("a", s1))
		w.sees("b 10.0.0.11")
	})
}

func TestByNodeAddressNeedsNoCloud(t *testing.T) {
	w := newWorld(t, Config{Method: resolve.ByNodeAddress})
	a := source.Candidate{Name: "a", UID: "1", State: source.Ready, InternalIPs: addrs("192.0.2.1", "10.0.0.11", "fd00::1")}
	b := source.Candidate{Name: "b", UID: "2", State: source.Ready, InternalIPs: addrs("10.0.0.12", "10.0.0.13")}
	c := source.Candidate{Name: "c", UID: "3", State: source.Ready, InternalIPs: addrs("192.0.2.1")}
	w.up(a, b, c)
	looks, lists := w.serve(source.Listing{}, 3)
	if len(lists) > 0 || looks[0] != source.FullVerification {
		t.Errorf("looks %v, lists %v", looks, lists)
	}
	w.sees("a 10.0.0.11 fd00::1")
	if o := w.omits("b"); o.Reason != source.AmbiguousAddress {
		t.Errorf("b: %+v", o)
	}
	if o := w.omits("c"); o.Reason != source.OutsideSubnet {
		t.Errorf("c: %+v", o)
	}
	if s := w.Status(w.now); !s.Publishable || s.Observation == 0 || s.Addresses.Sync != source.Synced {
		t.Errorf("status %+v", s)
	}
	a.InternalIPs = nil
	w.up(a)
	w.sees("a 10.0.0.11 fd00::1")
}

func TestNameMatchesOnlyInListingAfterNodeWasFirstSeen(t *testing.T) {
	w := newWorld(t, Config{})
	a := node("a", s1)
	w.up(node("z", s3), source.Candidate{Name: "a", UID: "1", State: source.Ready})
	w.observed(listing(server(s3, "z", "10.0.0.9"), server(s1, "a", "10.0.0.11")))
	w.sees("a 10.0.0.11", "z 10.0.0.9")
	a.UID, a.ProviderID = "2", ""
	w.pass(time.Second)
	w.up(a) // the next machine of that name: its address is not the old one's
	w.sees("z 10.0.0.9")
	if o := w.omits("a"); o.Reason != source.NotResolvedYet {
		t.Errorf("got %+v", o)
	}
	w.list(listing(server(s3, "z", "10.0.0.9"), server(s2, "a", "10.0.0.12")))
	w.sees("a 10.0.0.12", "z 10.0.0.9")
}

// A UUID that reads the same in either byte order names one server, not two.
func TestAUUIDThatIsItsOwnSwapMatchesItsServer(t *testing.T) {
	const same = "abababab-cdcd-efef-8000-00000000000a"
	w := newWorld(t, Config{})
	w.up(source.Candidate{Name: "a", UID: "a", State: source.Ready, SystemUUID: strings.ToUpper(same)})
	w.observed(listing(server(strings.ToUpper(same), "other", "10.0.0.11")))
	w.sees("a 10.0.0.11")
}

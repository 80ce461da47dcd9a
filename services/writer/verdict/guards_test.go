package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

func TestReportsSinceWhenNoProbePasses(t *testing.T) {
	w := newWorld(t, 2)
	check := func(what string, panics bool, since time.Time) {
		t.Helper()
		w.decide()
		if w.d.Panic != panics || !w.d.NonePassingSince.Equal(since) {
			t.Errorf("%s: panic %t since %v, want %t since %v", what, w.d.Panic, w.d.NonePassingSince, panics, since)
		}
	}
	check("all pass", false, time.Time{})
	w.probe(0, probe.Failing)
	check("one fails", false, time.Time{})
	w.pass(time.Second)
	w.probe(1, probe.Pending)
	began := w.now
	check("none passes, one is not ready and one pending", true, began)
	w.pass(time.Minute)
	w.probe(1, probe.Failing)
	check("none passes", true, began)
	w.pass(time.Minute)
	w.probe(1, probe.Passing)
	check("one passes", false, time.Time{})
	w.probe(1, probe.Failing)
	check("another time", true, w.now)
	w.in.Limits.Probing = false
	check("probing is off", false, time.Time{})
	w.in.Limits.Probing = true
	w.in.Current = nil
	check("nothing is held", false, time.Time{})
}

func TestAnEndpointInUseThatCannotBeProbedIsReported(t *testing.T) {
	cannot := func(w *world, n int) {
		w.setProbe(probe.Status{Address: addr(n), Expired: true, Detail: "too many open files"})
	}
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   bool
	}{
		{"none", func(*world) {}, false},
		{"one in use", func(w *world) { cannot(w, 0); cannot(w, 1) }, true},
		{"pending for another reason", func(w *world) { w.probe(0, probe.Pending); w.probe(1, probe.Pending) }, false},
		{"one that is not ready", func(w *world) {
			w.in.Current[0].Conditions = Conditions{}
			w.source("blue").EverSynced = false
			cannot(w, 0)
		}, false},
		{"one that is not current", func(w *world) { w.report("blue", 5, Ready); cannot(w, 5) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			tt.change(w)
			before := picture(w.in.Current)
			if got := w.decide(); got != before || w.d.CannotProbe != tt.want {
				t.Errorf("%s, cannot probe: %t; want %s, %t", got, w.d.CannotProbe, before, tt.want)
			}
			if tt.want && !strings.Contains(w.d.Endpoints[0].Reason.String(), "pending (too many open files)") {
				t.Errorf("the reason is %q", w.d.Endpoints[0].Reason.String())
			}
		})
	}
}

// Node 0 fails from second 10 to second 12. It stays unless node 1 corroborates that.
func TestAFailureCountsOnlyIfAnotherEndpointCorroboratesIt(t *testing.T) {
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	for _, tt := range []struct {
		name   string
		other  probe.Status
		counts bool
	}{
		{"it passes all the time", probe.Status{Health: probe.Passing, RunStart: at(0), RunLast: at(12)}, true},
		{"it passes when the first failure ends", probe.Status{Health: probe.Passing, RunStart: at(0), RunLast: at(10)}, true},
		{"it passed last before that", probe.Status{Health: probe.Passing, RunStart: at(0), RunLast: at(9)}, false},
		{"it begins to pass before the last failure", probe.Status{Health: probe.Passing, RunStart: at(11), RunLast: at(14)}, true},
		{"it begins to pass with the last failure", probe.Status{Health: probe.Passing, RunStart: at(12), RunLast: at(14)}, false},
		{"it begins to pass after the last failure", probe.Status{Health: probe.Passing, RunStart: at(13), RunLast: at(14)}, false},
		{"it has passed once while it fails", probe.Status{Health: probe.Failing, RunStart: at(0), RunLast: at(12), LastPassed: at(11)}, false},
		{"it is pending", probe.Status{RunStart: at(0), RunLast: at(12)}, false},
		{"its run is not known", probe.Status{Health: probe.Passing}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.now = at(15)
			tt.other.Address = addr(1)
			w.in.Probes = []probe.Status{{Address: addr(0), Health: probe.Failing, RunStart: at(10), RunLast: at(12)}, tt.other}
			want, wake := "0:ready 1:ready", time.Time{}
			switch {
			case tt.counts:
				want = "0:out 1:ready"
			case tt.other.Health == probe.Passing:
				wake = w.now.Add(250 * time.Millisecond)
			}
			w.source("blue").MembershipSyncedAt = w.now.Add(-20 * time.Minute) // no wake-up for its staleness
			w.see("the failure", want)
			if w.d.Panic != (tt.other.Health != probe.Passing) || !w.d.Wake.Equal(wake) {
				t.Errorf("panic %t, wakes at %v, want %v", w.d.Panic, w.d.Wake, wake)
			}
		})
	}
}

func TestPanicEndsWhenAnythingPassesThatCouldServe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"one that is held", func(w *world) { w.probe(1, probe.Passing) }, "0:out 1:ready"},
		{"one that is held and not listed by the source any more", func(w *world) {
			w.probe(1, probe.Passing)
			w.unlist("blue", 1)
		}, "0:out 1:ready"},
		{"a new one", func(w *world) { w.report("blue", 5, Ready); w.probe(5, probe.Passing) }, "0:out 1:out 5:ready"},
		{"a new one of a source that is not trusted", func(w *world) {
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("green").Connected = false
			w.report("green", 5, Ready)
			w.probe(5, probe.Passing)
		}, "0:ready 1:ready"},
		{"a new one in an unknown state", func(w *world) { w.report("blue", 5, Unknown); w.probe(5, probe.Passing) }, "0:ready 1:ready"},
		{"one that is not listed since it failed", func(w *world) { w.putOut(); w.probe(5, probe.Passing) }, "5@green:ready"},
		{"one that is not listed since it failed, reported by another source", func(w *world) {
			w.putOut()
			w.source("green").Connected = false
			w.report("blue", 5, Ready)
			w.probe(5, probe.Passing)
		}, "0:ready 1:ready"},
		{"one that its own source may not have, but another may", func(w *world) {
			w.putOut()
			w.source("green").Connected = false
			w.source("green").Allowlist = Allowlist{}
			w.report("blue", 5, Ready)
			w.probe(5, probe.Passing)
		}, "5:ready"},
		{"one that the allowlist denies", func(w *world) {
			w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(1): {}}
			w.probe(1, probe.Passing)
		}, "0:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.pass(time.Second)
			w.fail(w.now, 0, 1)
			w.see("none passes", "0:ready 1:ready")
			tt.change(w)
			w.pass(time.Second)
			w.see("both runs overlap", tt.want)
		})
	}
}

// putOut adds a second source with an endpoint that fails, while endpoints that are not ready are not listed.
func (w *world) putOut() {
	w.in.Limits.ListUnready = false
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.report("green", 5, Ready)
	w.hold(5, "green", Conditions{})
	w.fail(w.now, 5)
	w.decide()
}

func TestPanicKeepsALastResort(t *testing.T) {
	type node struct {
		held     Conditions
		reported State // unlisted: gone
		probe    probe.Health
	}
	out, goes := Conditions{}, node{ready, NotReady, probe.Failing}
	for _, tt := range []struct {
		name  string
		nodes []node
		want  string
	}{
		{"one that is READY, and out by a failure from before", []node{goes, {out, Ready, probe.Failing}}, "0:out 1:ready"},
		{"when the last one is deleted, too", []node{{ready, unlisted, probe.Failing}, {out, Ready, probe.Failing}}, "1:ready"},
		{"all of them", []node{goes, {out, Ready, probe.Failing}, {out, Ready, probe.Failing}}, "0:out 1:ready 2:ready"},
		{"pending", []node{goes, {out, Ready, probe.Pending}}, "0:out 1:ready"},
		{"rather than one that drains", []node{goes, {out, Draining, probe.Failing}, {out, Ready, probe.Failing}}, "0:out 1:out 2:ready"},
		{"or one that drains", []node{goes, {out, Draining, probe.Failing}}, "0:out 1:ready"},
		{"or one in an unknown state", []node{goes, {out, Unknown, probe.Failing}}, "0:out 1:ready"},
		{"but not what its source reports NOT_READY", []node{goes, {out, NotReady, probe.Failing}, {out, Ready, probe.Failing}, {out, unlisted, probe.Failing}}, "0:out 1:out 2:ready"},
		{"nor what is pending and NOT_READY", []node{goes, {out, NotReady, probe.Pending}, {out, Ready, probe.Failing}}, "0:out 1:out 2:ready"},
		{"nor while one is ready", []node{goes, {out, Ready, probe.Failing}, {ready, Ready, probe.Failing}}, "0:out 1:out 2:ready"},
		{"nor while one serves its last", []node{goes, {out, Ready, probe.Failing}, {draining, Ready, probe.Failing}}, "0:out 1:out 2:drain"},
	} {
		for _, listOut := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, list-unready %t", tt.name, listOut), func(t *testing.T) {
				last := len(tt.nodes)
				w := newWorld(t, last+1)
				w.in.Limits.ListUnready = listOut
				for n, one := range tt.nodes {
					if !one.held.inUse() {
						w.probe(n, probe.Failing)
					}
				}
				w.decide() // so they became not ready while the others passed
				w.pass(time.Second)
				w.unlist("blue", last)
				w.in.Current = slices.DeleteFunc(w.in.Current, func(h CurrentEndpoint) bool { return h.Address == addr(last) })
				for i := range w.in.Current {
					w.in.Current[i].Conditions = tt.nodes[w.in.Current[i].Address.As4()[3]].held
				}
				for n, one := range tt.nodes {
					if one.held.inUse() || one.probe == probe.Pending {
						w.probe(n, one.probe)
					}
					if w.unlist("blue", n); one.reported != unlisted {
						w.report("blue", n, one.reported)
					}
				}
				want := tt.want
				if !listOut {
					want = strings.Join(
						slices.DeleteFunc(strings.Fields(want), func(s string) bool { return strings.HasSuffix(s, ":out") }),
						" ",
					)
				}
				w.see("it goes", want)
			})
		}
	}
	t.Run("also one of a source that is lost, whatever that said last", func(t *testing.T) {
		for _, last := range []State{Ready, NotReady} {
			w := newWorld(t, 1)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.report("green", 5, last)
			w.source("green").Connected = false
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(5), Source: "green"})
			w.fail(w.now.Add(time.Second), 0, 5)
			w.report("blue", 0, NotReady)
			w.report("blue", 1, Ready) // so that blue is not empty
			w.unwritten("no source reports it", "0:out 5@green:ready")
			w.wantGuards("panic 1")
			w.see("nor when it is written", "0:out 5@green:ready")
			w.wantGuards("panic 1", "trust 1 green")
		}
	})
}

func TestShrinkDoesNotCount(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"what fails its probe, too", func(w *world) {
			w.fail(w.now, 0, 1, 2)
			w.unlist("blue", 0)
			w.unlist("blue", 1)
		}, "2:out 3:ready"},
		{"what the allowlist denies", func(w *world) {
			w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(0): {}, addr(1): {}, addr(2): {}}
		}, "3:ready"},
		{"what another selector leaves out", func(w *world) {
			w.reselect("blue", "pool=green")
			for n := range 3 {
				w.unlist("blue", n)
			}
		}, "3:ready"},
		{"what another selector leaves out while its source is not trusted", func(w *world) {
			w.source("blue").Connected = false
			w.reselect("blue", "pool=green")
			for n := range 3 {
				w.unlist("blue", n)
			}
			w.decide()
			w.source("blue").Connected = true
		}, "3:ready"},
		{"what has the label of a former source", func(w *world) {
			for n := range 3 {
				w.unlist("blue", n)
				w.in.Current[n].Source = "former"
			}
		}, "3:ready"},
		{"what its source leaves out and another one has, ready", func(w *world) {
			w.in.Sources = append(w.in.Sources, trusted("green"))
			for n := range 3 {
				w.unlist("blue", n)
				w.report("green", n, Ready)
			}
		}, "0@green:ready 1@green:ready 2@green:ready 3:ready"},
		{"anything at all when it is off", func(w *world) {
			w.in.Limits.ShrinkWindow = 0
			for n := range 3 {
				w.unlist("blue", n)
			}
		}, "3:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.shrinks()
			w.decide()
			w.in.LeadingSince = w.now
			tt.change(w)
			w.see("in the first window", tt.want)
		})
	}
}

func TestAllowlistThatWouldTakeAllCountsEveryCurrentEndpoint(t *testing.T) {
	w := newWorld(t, 1)
	w.in.Current[0].Source = ""
	w.in.Sources[0].Name = "default"
	w.in.Current = append(w.in.Current, CurrentEndpoint{Address: netip.MustParseAddr("127.0.0.7"), Conditions: ready, Source: "former"})
	w.source("default").Allowlist.CIDRs = nil
	w.see("typing mistake", "0@default:ready 7@former:ready")
	w.wantGuards("allowlist 2")
	w.in.Current = w.in.Current[1:]
	w.see("also alone", "7@former:ready")
	if message := w.d.Guards[0].Message; !strings.Contains(message, "127.0.0.7 (loopback address)") {
		t.Error(message)
	}
}

// What a source has left out before our selector changes leaves on its report, though that did not count then.
func TestShrinkCountsWhatWasLeftOutBeforeTheSelectorChanged(t *testing.T) {
	w := newWorld(t, 2)
	w.shrinks()
	w.in.LeadingSince = w.now
	w.unlist("blue", 0)
	w.unlist("blue", 1)
	w.see("an empty source is not confirmed yet", "0:ready 1:ready")
	w.reselect("blue", "pool=green")
	w.report("blue", 5, Ready)
	w.probe(5, probe.Passing)
	w.see("in the first window", "0:ready 1:ready 5:ready")
	w.wantGuards("shrink 2 blue")
}

// Found by a simulated world: a writer that stood still found the selector changed and the nodes deleted.
func TestShrinkCountsWhatIsGoneWhenTheSelectorChanges(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.decide()
	w.in.LeadingSince = w.now
	w.unlist("blue", 0)
	w.reselect("blue", "pool=green")
	w.unlist("blue", 1)
	w.see("in the first window", "0:ready 2:ready 3:ready")
	w.wantGuards("shrink 1 blue")
}

// What a source last reported is no difference if the slices list it so.
func TestHeldAreOnlyAddressesThatWouldBeListedOtherwise(t *testing.T) {
	address := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }
	member := func(n byte, state State) Member { return Member{Address: address(n), State: state} }
	input := Input{
		Sources: []Source{{
			Name: "blue", EverSynced: true, Members: []Member{member(1, Ready), member(2, Draining), member(4, Ready), member(5, NotReady)},
			Allowlist: Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}},
		}},
	}
	for n := range byte(3) { // the third one is not reported any more
		input.Current = append(input.Current, CurrentEndpoint{Address: address(n + 1), Conditions: ready, Source: "blue"})
	}
	_, d := Decide(Memory{}, input, time.Unix(1_000_000, 0))
	var held []string
	for i := range d.Endpoints {
		if d.Endpoints[i].Held {
			held = append(held, d.Endpoints[i].Address.String())
		}
	}
	if want := []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}; !slices.Equal(held, want) || len(d.Guards) != 1 || d.Guards[0].Held != 3 {
		t.Errorf("held are %v, want %v: %+v", held, want, d.Guards)
	}
}

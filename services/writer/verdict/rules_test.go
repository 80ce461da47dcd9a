package verdict

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every cell of the table, for an endpoint that is held as ready, draining, out, or not at all.
func TestTheTable(t *testing.T) {
	as := []string{"held ready", "held drain", "held out", "new"}
	for _, row := range []struct {
		says                                string
		passes, fails, probingOff, unjudged string
	}{
		{"READY", "ready ready ready ready", "out out out -", "ready ready ready ready", "ready drain out -"},
		{"DRAINING", "drain drain drain drain", "out out out -", "drain drain drain drain", "drain drain drain -"},
		{"NOT_READY", "ready ready ready ready", "out out out -", "out out out -", "ready drain out -"},
		{"absent", "- - - -", "- - - -", "- - - -", "- - - -"},
		{"unknown state", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"READY, not trusted", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"DRAINING, not trusted", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"absent, not trusted", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"absent, not heard", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
	} {
		for col, cells := range map[string]string{"passes": row.passes, "fails": row.fails, "probing off": row.probingOff, "not judged": row.unjudged} {
			for i, want := range strings.Fields(cells) {
				t.Run(strings.Join([]string{row.says, col, as[i]}, ", "), func(t *testing.T) {
					w := newWorld(t, 2) // node 1 is another, so that nothing is empty
					w.report("blue", 0, map[string]State{"READY": Ready, "DRAINING": Draining, "NOT_READY": NotReady}[strings.Split(row.says, ",")[0]])
					if strings.HasPrefix(row.says, "absent") {
						w.unlist("blue", 0)
					}
					w.source("blue").MembershipSynced = !strings.HasSuffix(row.says, "not trusted")
					w.source("blue").EverSynced = !strings.HasSuffix(row.says, "not heard")
					w.in.Limits.Probing = col != "probing off"
					w.probe(0, map[string]ProbeStatus{"passes": Passing, "fails": Failing, "not judged": Pending}[col])
					switch as[i] {
					case "held drain":
						w.in.Current[0].Conditions = draining
					case "held out":
						w.in.Current[0].Conditions = Conditions{}
					case "new":
						w.in.Current = w.in.Current[1:]
					}
					see := "0:" + want + " 1:ready"
					if want == "-" {
						see = "1:ready"
					}
					w.see("the cell", see)
				})
			}
		}
	}
}

func TestUnreadyIsNotListedWithoutListUnready(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Limits.ListUnready = false
	w.probe(0, Failing)
	w.see("it fails", "1:ready")
	w.probe(0, Passing)
	w.see("it passes", "0:ready 1:ready")
}

func TestUnknownStateKeepsTheLastReport(t *testing.T) {
	w := newWorld(t, 2)
	w.report("blue", 0, Draining)
	w.see("it drains", "0:drain 1:ready")
	w.report("blue", 0, Unknown)
	w.probe(0, Failing)
	w.see("it fails in a state of a newer inventory", "0:out 1:ready")
	w.probe(0, Passing)
	w.see("it passes", "0:drain 1:ready")
}

func TestTrustNeedsAllOfItsParts(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"the link is down":           func(w *world) { w.source("blue").Connected = false },
		"membership is not synced":   func(w *world) { w.source("blue").MembershipSynced = false },
		"the word is too old":        func(w *world) { w.now = w.now.Add(15*time.Minute + 1) },
		"the word is older than set": func(w *world) { w.in.Limits.MaxStaleness, w.now = time.Minute, w.now.Add(time.Minute+1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.unlist("blue", 0)
			w.report("blue", 1, Draining)
			w.report("blue", 5, Ready)
			w.probe(5, Passing)
			spoil(w)
			w.see("nothing follows the feed", "0:ready 1:ready 2:ready")
			w.wantGuards("trust 3 blue")
		})
	}
}

func TestMembershipOfExactlyMaxStalenessIsTrusted(t *testing.T) {
	w := newWorld(t, 2)
	w.unlist("blue", 0)
	w.now = w.now.Add(15 * time.Minute)
	w.see("in time", "1:ready")
	if want := w.now.Add(1); !w.d.Wake.Equal(want) {
		t.Errorf("wakes at %v, want %v: when trust ends", w.d.Wake, want)
	}
}

func TestEmptyIsConfirmedAfterThresholdObservationsOfOneEpoch(t *testing.T) {
	empty := func(t *testing.T) *world {
		w := newWorld(t, 2)
		w.in.Limits.Probing = false // with probes the floor would keep what answers
		w.see("at rest", "0:ready 1:ready")
		w.unlist("blue", 0)
		w.unlist("blue", 1)
		w.see("empty", "0:ready 1:ready")
		return w
	}
	observe := func(w *world, n int) {
		for range n {
			w.pass(5 * time.Second)
			w.observe("blue")
			w.decide()
		}
	}
	t.Run("it takes three, and asks for them", func(t *testing.T) {
		w := empty(t)
		observe(w, 2)
		w.see("two", "0:ready 1:ready")
		w.wantGuards("empty 2 blue")
		if diff := cmp.Diff([]string{"blue"}, w.d.NeedObservations); diff != "" {
			t.Error(diff)
		}
		if want := w.now.Add(4 * time.Second); !w.d.Wake.Equal(want) {
			t.Errorf("wakes at %v, want %v", w.d.Wake, want)
		}
		observe(w, 1)
		w.see("three", "")
	})
	t.Run("asking again without a new observation counts nothing", func(t *testing.T) {
		w := empty(t)
		for range 5 {
			w.pass(5 * time.Second)
			w.see("no new observation", "0:ready 1:ready")
		}
	})
	t.Run("the observation that was in force before does not count", func(t *testing.T) {
		w := newWorld(t, 1)
		w.in.Limits.Probing = false
		w.in.Limits.EmptyThreshold = 1
		w.see("at rest", "0:ready")
		w.unlist("blue", 0)
		w.see("the same observation as when it was not empty", "0:ready")
		observe(w, 1)
		w.see("a new one", "")
	})
	t.Run("an observation that empties the view itself counts", func(t *testing.T) {
		w := newWorld(t, 1)
		w.in.Limits.Probing = false
		w.in.Limits.EmptyThreshold = 1
		w.see("at rest", "0:ready")
		w.unlist("blue", 0)
		w.pass(time.Second)
		w.observe("blue")
		w.see("it came with the news", "")
	})
	t.Run("a view that is not empty starts over", func(t *testing.T) {
		w := empty(t)
		observe(w, 2)
		w.report("blue", 0, Ready)
		w.see("back", "0:ready")
		w.unlist("blue", 0)
		observe(w, 2)
		w.see("two of three", "0:ready")
		observe(w, 1)
		w.see("three", "")
	})
	t.Run("another epoch starts over", func(t *testing.T) {
		w := empty(t)
		observe(w, 2)
		w.source("blue").Epoch, w.source("blue").Observation = "second", 1
		w.see("the inventory restarts", "0:ready 1:ready")
		observe(w, 2)
		w.see("two of the new epoch", "0:ready 1:ready")
		observe(w, 1)
		w.see("three", "")
	})
	t.Run("a restart of ours starts over", func(t *testing.T) {
		w := empty(t)
		observe(w, 2)
		w.mem = Memory{}
		w.see("memory lost", "0:ready 1:ready")
		observe(w, 2)
		w.see("two since", "0:ready 1:ready")
	})
	t.Run("observations of a source that is not trusted do not count", func(t *testing.T) {
		w := empty(t)
		w.source("blue").MembershipSynced = false
		observe(w, 5)
		w.source("blue").MembershipSynced = true
		observe(w, 1)
		w.see("one", "0:ready 1:ready")
	})
	t.Run("a failing endpoint goes out meanwhile", func(t *testing.T) {
		w := empty(t)
		w.in.Limits.Probing = true
		w.probe(0, Failing)
		w.see("it dies", "0:out 1:ready")
	})
	t.Run("what is reported outside of the fence does not make a view less empty", func(t *testing.T) {
		w := empty(t)
		s := w.source("blue")
		s.Members = []Member{{Address: netip.MustParseAddr("192.168.0.1"), State: Ready}}
		observe(w, 2)
		w.see("held", "0:ready 1:ready")
		w.wantGuards("allowlist 1 blue", "empty 2 blue")
	})
	t.Run("probing off: all NOT_READY is as good as empty", func(t *testing.T) {
		w := newWorld(t, 2)
		w.in.Limits.Probing = false
		w.see("at rest", "0:ready 1:ready")
		w.report("blue", 0, NotReady)
		w.see("one is not", "0:out 1:ready")
		w.report("blue", 1, NotReady)
		w.see("none is", "0:out 1:ready")
		w.wantGuards("empty 1 blue")
		observe(w, 2)
		w.see("two", "0:out 1:ready")
		observe(w, 1)
		w.see("three", "0:out 1:out")
	})
	t.Run("probing on: NOT_READY is no reason to doubt", func(t *testing.T) {
		w := newWorld(t, 2)
		w.report("blue", 0, NotReady)
		w.report("blue", 1, NotReady)
		w.probe(0, Failing)
		w.see("both witnesses on one, and the other answers", "0:out 1:ready")
		w.wantGuards()
	})
	t.Run("probes that are void: all NOT_READY is as good as empty again", func(t *testing.T) {
		w := newWorld(t, 2)
		w.probe(0, Failing)
		w.probe(1, Failing)
		w.see("none passes", "0:ready 1:ready")
		w.report("blue", 0, NotReady)
		w.report("blue", 1, NotReady)
		w.see("and none is ready", "0:ready 1:ready")
		w.wantGuards("panic 2", "empty 2 blue")
		observe(w, 2)
		w.see("two", "0:ready 1:ready")
		observe(w, 1)
		w.see("three", "0:out 1:out")
		w.wantGuards()
	})
	t.Run("probes that are void: so is one that is not judged yet", func(t *testing.T) {
		w := newWorld(t, 1)
		w.unlist("blue", 0)
		w.fail(w.now, 0)
		w.report("blue", 1, NotReady) // the same node, at another address
		w.see("none passes", "0:ready")
		w.wantGuards("panic 1", "empty 1 blue")
		observe(w, 2)
		w.see("two", "0:ready")
		observe(w, 1)
		w.see("three", "")
		w.wantGuards()
	})
}

func TestDisallowedAddressIsNeverWritten(t *testing.T) {
	for _, a := range []string{
		"192.168.1.1", "0.0.0.0", "127.0.0.1", "169.254.0.1", "224.0.0.1", "10.0.0.99",
		"::", "::1", "fe80::1", "fe80::1%eth0", "ff02::1", "::ffff:10.0.0.5", "fd00::5",
	} {
		t.Run(a, func(t *testing.T) {
			w := newWorld(t, 1)
			s, bad := w.source("blue"), netip.MustParseAddr(a)
			if a != "192.168.1.1" && a != "fd00::5" { // the others are refused also where all is allowed
				s.Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
			}
			s.Allowlist.Denied = map[netip.Addr]struct{}{addr(99): {}}
			s.Members = append(s.Members, Member{Address: bad, State: Ready})
			w.in.Probes[bad] = Probe{Status: Passing}
			w.see("it is not written", "0:ready")
			w.wantGuards("allowlist 1 blue")
			if !slices.ContainsFunc(w.d.Endpoints, func(e Endpoint) bool { return e.Address == bad && e.Rule == RuleAllowlist && e.Reason != "" }) {
				t.Errorf("no reason is given:\n%s", reasons(w.d))
			}
		})
	}
}

func TestAllowlistWithoutCIDRsAllowsNothing(t *testing.T) {
	w := newWorld(t, 1)
	w.in.Current = nil
	w.source("blue").Allowlist = Allowlist{}
	w.see("nothing", "")
}

func TestOneAddressHasOneSource(t *testing.T) {
	both := func(t *testing.T) *world {
		w := newWorld(t, 1)
		w.in.Sources = append(w.in.Sources, trusted("green"))
		w.report("blue", 1, Ready)
		w.report("green", 1, Draining)
		w.probe(1, Passing)
		return w
	}
	t.Run("a new one goes to the first by name", func(t *testing.T) {
		w := both(t)
		w.see("blue", "0:ready 1:ready")
	})
	t.Run("of those that are believed", func(t *testing.T) {
		w := both(t)
		w.source("blue").Connected = false
		w.see("green", "0:ready 1@green:drain")
		w.source("blue").Connected = true
		w.see("and stays there", "0:ready 1@green:drain")
	})
	t.Run("a source that is not believed keeps what bears its label", func(t *testing.T) {
		w := both(t)
		w.decide()
		w.source("blue").Connected = false
		w.unlist("blue", 1)
		w.see("blue", "0:ready 1:ready")
	})
	t.Run("one that is out and not listed keeps its source", func(t *testing.T) {
		w := both(t)
		w.in.Limits.ListUnready = false
		w.source("blue").Connected = false
		w.see("green", "0:ready 1@green:drain")
		w.source("blue").Connected = true
		w.probe(1, Failing)
		w.see("it fails", "0:ready")
		w.probe(1, Passing)
		w.see("it passes", "0:ready 1@green:drain")
	})
	t.Run("without a label it is the default source's", func(t *testing.T) {
		w := newWorld(t, 2)
		w.in.Sources = append(w.in.Sources, trusted(DefaultSource))
		w.in.Current[0].Source = ""
		w.report(DefaultSource, 0, Draining)
		w.report(DefaultSource, 7, Ready)
		w.see("default", "0@default:drain 1:ready")
	})
	t.Run("listed twice, the one that serves more counts", func(t *testing.T) {
		w := newWorld(t, 1)
		w.source("blue").Connected = false
		w.in.Current = []CurrentEndpoint{
			{Address: addr(0), Source: "blue"}, {Address: addr(0), Conditions: ready, Source: "blue"}, {Address: addr(0), Conditions: draining, Source: "blue"},
		}
		w.probe(0, Pending)
		w.see("one", "0:ready")
	})
}

func TestEndpointsOfARemovedSourceStayUntilTheOthersCount(t *testing.T) {
	w := newWorld(t, 3)
	w.in.Current[0].Source, w.in.Current[1].Source = "", ""
	w.restart()
	w.see("blue not heard", "0@default:ready 1@default:ready 2:ready")
	w.probe(0, Failing)
	w.see("a probe still counts", "0@default:out 1@default:ready 2:ready")
	w.in.Sources = []Source{trusted("blue")}
	w.report("blue", 1, Ready)
	w.report("blue", 2, Ready)
	w.see("blue takes over what it has", "1:ready 2:ready")
}

func TestWithoutAnySourceEverythingStays(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Sources = nil
	w.see("nobody to ask", "0:ready 1:ready")
}

func TestZonesFollowTheSourceOnlyWhileItsReportCounts(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Current[0].Zone = "old"
	w.source("blue").Members[0].Zone = "new"
	w.source("blue").Connected = false
	w.decide()
	if got := w.d.Endpoints[0].Zone; got != "old" {
		t.Errorf("not believed: zone %q, want the held one", got)
	}
	w.source("blue").Connected = true
	w.decide()
	if got := w.d.Endpoints[0].Zone; got != "new" {
		t.Errorf("believed: zone %q, want the reported one", got)
	}
}

func TestReasonsGiveReportAndProbeStatus(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Probes[addr(0)] = Probe{Status: Failing, Detail: "connection refused"}
	w.decide()
	if diff := cmp.Diff([]string{
		"source blue: READY, probe: failing (connection refused)", "source blue: READY, probe: passing",
	}, []string{w.d.Endpoints[0].Reason, w.d.Endpoints[1].Reason}); diff != "" {
		t.Error(diff)
	}
	w.source("blue").Connected = false
	w.decide()
	if got, want := w.d.Endpoints[1].Reason, "source blue: not trusted: link down, probe: passing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

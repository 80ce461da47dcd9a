package verdict

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// Every cell of the table, for an endpoint that is current as ready, draining or not ready, or new.
func TestTheTable(t *testing.T) {
	as := []string{"ready", "draining", "not ready", "new"}
	for _, row := range []struct {
		says                               string
		passes, fails, probingOff, pending string
	}{
		{"READY", "ready ready ready ready", "out out out -", "ready ready ready ready", "ready drain out -"},
		{"DRAINING", "drain drain drain drain", "out out out -", "drain drain drain drain", "drain drain drain -"},
		{"NOT_READY", "ready ready ready ready", "out out out -", "out out out -", "ready drain out -"},
		{"absent", "- - - -", "- - - -", "- - - -", "- - - -"},
		{"unknown state", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"READY, not trusted", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"DRAINING, not trusted", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"absent, not trusted", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
		{"absent, not synced", "ready drain ready -", "out out out -", "ready drain out -", "ready drain out -"},
	} {
		for col, cells := range map[string]string{"passes": row.passes, "fails": row.fails, "probing off": row.probingOff, "pending": row.pending} {
			for i, want := range strings.Fields(cells) {
				t.Run(strings.Join([]string{row.says, col, as[i]}, ", "), func(t *testing.T) {
					w := newWorld(t, 2) // node 1 is another, so that nothing is empty
					w.report(
						"blue",
						0,
						map[string]State{"READY": Ready, "DRAINING": Draining, "NOT_READY": NotReady}[strings.Split(row.says, ",")[0]],
					)
					if strings.HasPrefix(row.says, "absent") {
						w.unlist("blue", 0)
					}
					w.source("blue").MembershipSynced = !strings.HasSuffix(row.says, "not trusted")
					w.source("blue").EverSynced = !strings.HasSuffix(row.says, "not synced")
					w.in.Limits.Probing = col != "probing off"
					w.probe(0, map[string]probe.Health{"passes": probe.Passing, "fails": probe.Failing, "pending": probe.Pending}[col])
					switch as[i] {
					case "draining":
						w.in.Current[0].Conditions = draining
					case "not ready":
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

func TestTrustNeedsAllOfItsParts(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"the link is down":             func(w *world) { w.source("blue").Connected = false },
		"membership is not synced":     func(w *world) { w.source("blue").MembershipSynced = false },
		"membership is too old":        func(w *world) { w.now = w.now.Add(15*time.Minute + 1) },
		"membership is older than set": func(w *world) { w.in.Limits.MaxStaleness, w.now = time.Minute, w.now.Add(time.Minute+1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.unlist("blue", 0)
			w.report("blue", 1, Draining)
			w.report("blue", 5, Ready)
			w.probe(5, probe.Passing)
			spoil(w)
			w.see("no report counts", "0:ready 1:ready 2:ready")
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

func TestDisallowedAddressIsNeverWritten(t *testing.T) {
	for _, a := range []string{
		"192.168.1.1", "0.0.0.0", "127.0.0.1", "169.254.0.1", "224.0.0.1", "10.0.0.99",
		"::", "::1", "fe80::1", "fe80::1%eth0", "ff02::1", "::ffff:10.0.0.5", "fd00::5",
	} {
		t.Run(a, func(t *testing.T) {
			w := newWorld(t, 1)
			s, bad := w.source("blue"), netip.MustParseAddr(a)
			if a != "192.168.1.1" && a != "fd00::5" { // the others are denied even where every CIDR is allowed
				s.Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
			}
			s.Allowlist.Denied = map[netip.Addr]struct{}{addr(99): {}}
			s.Members = append(s.Members, Member{Address: bad, State: Ready})
			w.setProbe(probe.Status{Address: bad, Health: probe.Passing})
			w.see("it is not written", "0:ready")
			w.wantGuards("allowlist 1 blue")
			if !slices.ContainsFunc(
				w.d.Endpoints,
				func(e Endpoint) bool { return e.Address == bad && e.Rule == RuleAllowlist && e.Reason.Why != "" },
			) {
				t.Errorf("no reason is given:\n%s", reasons(w.d))
			}
		})
	}
}

func TestZonesAndHostnamesFollowTheSourceOnlyWhileItsReportCounts(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Current[0].Zone, w.in.Current[0].Hostname = "old", "old"
	w.source("blue").Members[0].Zone, w.source("blue").Members[0].Hostname = "new", "new"
	w.source("blue").Connected = false
	w.decide()
	if got := w.d.Endpoints[0]; got.Zone != "old" || got.Hostname != "old" {
		t.Errorf("not trusted: zone %q and hostname %q, want the current ones", got.Zone, got.Hostname)
	}
	w.source("blue").Connected = true
	w.decide()
	if got := w.d.Endpoints[0]; got.Zone != "new" || got.Hostname != "new" {
		t.Errorf("trusted: zone %q and hostname %q, want the reported ones", got.Zone, got.Hostname)
	}
}

func TestReasonsGiveReportAndProbeStatus(t *testing.T) {
	w := newWorld(t, 2)
	w.setProbe(probe.Status{Address: addr(0), Health: probe.Failing, Detail: "connection refused"})
	w.decide()
	if diff := cmp.Diff([]string{
		"source blue: READY, probe: failing (connection refused)", "source blue: READY, probe: passing",
	}, []string{w.d.Endpoints[0].Reason.String(), w.d.Endpoints[1].Reason.String()}); diff != "" {
		t.Error(diff)
	}
	w.source("blue").Connected = false
	w.decide()
	if got, want := w.d.Endpoints[1].Reason.String(), "source blue: not trusted: link down, probe: passing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

package roster

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWhatTheContractForbidsIsLeftOutWithAReason(t *testing.T) {
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	good := Candidate{Name: "a", UID: "1", State: Ready, InternalIPs: addrs("10.0.0.1")}
	for name, c := range map[string]struct {
		alter  func(*Candidate)
		reason Reason
		says   string
	}{
		"the unspecified address":  {func(c *Candidate) { c.InternalIPs = addrs("0.0.0.0", "::") }, NoAddressOnLAN, "which no node can use"},
		"addresses of one machine": {func(c *Candidate) { c.InternalIPs = addrs("127.0.0.1", "fe80::1") }, NoAddressOnLAN, "which no node can use"},
		"a name that is too long":  {func(c *Candidate) { c.Name = strings.Repeat("a", 254) }, InvalidRecord, "Its name has 254 bytes"},
		"no name":                  {func(c *Candidate) { c.Name = "" }, InvalidRecord, "It has no name"},
		"a UID that is too long":   {func(c *Candidate) { c.UID = strings.Repeat("a", 129) }, InvalidRecord, "Its UID has 129 bytes"},
		"a zone that is not UTF-8": {func(c *Candidate) { c.Zone = "\xff" }, InvalidRecord, "Its zone is not UTF-8"},
		"a label's value":          {func(c *Candidate) { c.Labels = map[string]string{"k": strings.Repeat("v", 64)} }, InvalidRecord, "label"},
		"no state":                 {func(c *Candidate) { c.State = 0 }, InvalidRecord, "Its state is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{Roster: New(Config{Resolver: ByNodeAddress, CIDRs: everywhere}), t: t, now: t0, rv: 1}
			odd := good
			c.alter(&odd)
			w.up(odd)
			w.sees()
			if o := w.omits(odd.Name); o.Reason != c.reason || !strings.Contains(o.Advice, c.says) {
				t.Errorf("left out as %s: %q, want %s: …%s…", o.Reason, o.Advice, c.reason, c.says)
			}
		})
	}
}

func TestANodeThatIsKnownStaysWhenItsDataCannotBeSent(t *testing.T) {
	w := newWorld(t, Config{Resolver: ByNodeAddress})
	w.up(Candidate{Name: "a", UID: "1", State: Ready, InternalIPs: addrs("10.0.0.1")})
	w.Looked(w.now, w.now, Full, w.rv, nil)
	w.up(Candidate{Name: "a", UID: "1", State: Ready, Zone: strings.Repeat("z", 64), InternalIPs: addrs("10.0.0.2")})
	w.sees("a 10.0.0.1")
	if m := w.Status(w.now).Membership; m.Sync != Degraded || !strings.Contains(m.Reason, "invalid data for 1 nodes") {
		t.Errorf("membership is %+v, want DEGRADED", m)
	}
	w.up(Candidate{Name: "a", UID: "1", State: Ready, InternalIPs: addrs("10.0.0.2")})
	w.sees("a 10.0.0.2")
	if m := w.Status(w.now).Membership; m.Sync != Synced {
		t.Errorf("membership is %+v, want SYNCED", m)
	}
}

func TestAServerThatReportsTheUnspecifiedAddressIsLeftOutWithAReason(t *testing.T) {
	w := &world{Roster: New(Config{Resolver: ByCloud, CIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}), t: t, now: t0, rv: 1}
	w.up(node("a", s1))
	w.list(listing(server(s1, "a", "0.0.0.0")))
	w.sees()
	if o := w.omits("a"); o.Reason != NoAddressOnLAN || !strings.Contains(o.Advice, "has 0.0.0.0 on LAN 3, which no node can use") {
		t.Errorf("left out as %s: %q", o.Reason, o.Advice)
	}
	w.list(one)
	w.list(listing(server(s1, "a", "0.0.0.0")))
	w.sees("a 10.0.0.11")
}

func TestPortsThatTheContractForbidsAreLeftOut(t *testing.T) {
	got := publishablePorts([]Port{
		{Name: "web", Protocol: "TCP", Number: 80},
		{Protocol: "TCP"},
		{Protocol: "tcp", Number: 80},
		{Name: strings.Repeat("x", 64), Protocol: "UDP", Number: 53},
		{Name: "\xff", Protocol: "UDP", Number: 53},
		{Protocol: "SCTP", Number: 1},
	})
	if len(got) != 2 || got[0].Name != "web" || got[1].Protocol != "SCTP" {
		t.Errorf("got %v", got)
	}
}

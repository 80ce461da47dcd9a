package roster

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestWhatTheContractForbidsIsLeftOutWithAReason(t *testing.T) {
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	good := source.Candidate{Name: "a", UID: "1", State: source.Ready, InternalIPs: addrs("10.0.0.1")}
	for name, c := range map[string]struct {
		alter  func(*source.Candidate)
		reason source.OmissionReason
		says   string
	}{
		"the unspecified address":  {func(c *source.Candidate) { c.InternalIPs = addrs("0.0.0.0", "::") }, source.NoAddressOnLAN, "which no node can use"},
		"addresses of one machine": {func(c *source.Candidate) { c.InternalIPs = addrs("127.0.0.1", "fe80::1") }, source.NoAddressOnLAN, "which no node can use"},
		"a name that is too long":  {func(c *source.Candidate) { c.Name = strings.Repeat("a", 254) }, source.InvalidRecord, "Its name has 254 bytes"},
		"no name":                  {func(c *source.Candidate) { c.Name = "" }, source.InvalidRecord, "It has no name"},
		"a UID that is too long":   {func(c *source.Candidate) { c.UID = strings.Repeat("a", 129) }, source.InvalidRecord, "Its UID has 129 bytes"},
		"a zone that is not UTF-8": {func(c *source.Candidate) { c.Zone = "\xff" }, source.InvalidRecord, "Its zone is not UTF-8"},
		"a label's value":          {func(c *source.Candidate) { c.Labels = map[string]string{"k": strings.Repeat("v", 64)} }, source.InvalidRecord, "label"},
		"no state":                 {func(c *source.Candidate) { c.State = 0 }, source.InvalidRecord, "Its state is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{Roster: New(Config{Method: resolve.ByNodeAddress, CIDRs: everywhere}), t: t, now: t0, rv: 1}
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
	w := newWorld(t, Config{Method: resolve.ByNodeAddress})
	w.up(source.Candidate{Name: "a", UID: "1", State: source.Ready, InternalIPs: addrs("10.0.0.1")})
	w.verified(w.now, w.now, source.FullVerification, w.rv, nil)
	w.up(source.Candidate{Name: "a", UID: "1", State: source.Ready, Zone: strings.Repeat("z", 64), InternalIPs: addrs("10.0.0.2")})
	w.sees("a 10.0.0.1")
	if m := w.Status(w.now).Membership; m.Sync != source.Degraded || !strings.Contains(m.Reason, "invalid data for 1 nodes") {
		t.Errorf("membership is %+v, want DEGRADED", m)
	}
	w.up(source.Candidate{Name: "a", UID: "1", State: source.Ready, InternalIPs: addrs("10.0.0.2")})
	w.sees("a 10.0.0.2")
	if m := w.Status(w.now).Membership; m.Sync != source.Synced {
		t.Errorf("membership is %+v, want SYNCED", m)
	}
}

func TestAServerThatReportsTheUnspecifiedAddressIsLeftOutWithAReason(t *testing.T) {
	w := &world{Roster: New(Config{Method: resolve.ByCloud, CIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}), t: t, now: t0, rv: 1}
	w.up(node("a", s1))
	w.list(listing(server(s1, "a", "0.0.0.0")))
	w.sees()
	if o := w.omits("a"); o.Reason != source.NoAddressOnLAN || !strings.Contains(o.Advice, "has 0.0.0.0 on LAN 3, which no node can use") {
		t.Errorf("left out as %s: %q", o.Reason, o.Advice)
	}
	w.list(one)
	w.list(listing(server(s1, "a", "0.0.0.0")))
	w.sees("a 10.0.0.11")
}

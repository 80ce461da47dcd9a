package oracle

import (
	"net/netip"
	"slices"
	"strings"
)

// tier is the place of a source among those that stand by; 0: it does not.
func (c Configured) tier(source string) int { return 1 + slices.Index(c.Failover, source) }

// tier is the earliest tier of the sources that report an address, or whose label it bears.
func (p *plan) tier(a netip.Addr, label string) int {
	tier := p.config.tier(label)
	for _, name := range p.config.Sources {
		if p.member(name, a) != nil {
			tier = min(tier, p.config.tier(name))
		}
	}
	return tier
}

// readyBefore is how many endpoints of the tiers before one are ready.
func readyBefore(c Configured, tier int, all map[netip.Addr]held) (n int) {
	for _, h := range all {
		if h.Ready && c.tier(h.source) < tier {
			n++
		}
	}
	return n
}

// certainBefore is how many endpoints of the tiers before one are ready whatever a guard may say: reported READY by a
// trusted source, and passing if they are probed.
func (p *plan) certainBefore(tier int) (n int) {
	for a, h := range p.mine {
		if h.Ready && p.config.tier(h.source) < tier && p.reported(a, h.source) == reportsReady &&
			(p.config.Probe == "" || p.probed(a, h.port) == Passing) {
			n++
		}
	}
	return n
}

// expiredSources are the names of the sources that have expired.
func (p *plan) expiredSources() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(p.config.Sources), func(name string) bool { return !p.expired(name) }), " ")
}

// expired reports whether a source has not been trusted for so long that its endpoints may leave, and as long as the
// writer has led.
func (p *plan) expired(source string) bool {
	t, after := p.told[source], p.config.ExpireAfter
	if after == 0 || p.trusted(source) || p.at.Before(p.led.Add(after)) {
		return false
	}
	since := p.writer.unsound[source]
	if t != nil && t.sound() {
		since = t.Word.Add(p.config.MaxStaleness)
	}
	return !p.at.Before(since.Add(after))
}

package oracle

import (
	"net/netip"
	"slices"
	"time"
)

// plan is what a writer knew when it decided what to write.
type plan struct {
	Planned

	at      time.Time
	writer  *writer
	aim     *aim
	config  Configured
	leads   bool
	led     time.Time // since when
	version uint64
	told    map[string]*told
	empty   map[string]emptiness
	probes  map[netip.Addr]Probed
	fences  map[string]Fenced
	dropped map[string]map[netip.Addr]map[string]string
	spoken  map[string]map[netip.Addr]*Member
	ready   map[string]int // per source, at that moment
	landed  int
	held    map[netip.Addr]held // what the slices said
	mine    map[netip.Addr]held // of that, what our own writes have made

	unnoticed map[string]*Slice // what someone else did that the writer did not know: what was before it
	result    *result           // of these
}

// fate is what becomes of an address: not listed, or listed with certain conditions.
type fate struct {
	Conditions

	listed bool
}

var (
	serve = fate{Conditions{Ready: true, Serving: true}, true}
	drain = fate{Conditions{Serving: true, Terminating: true}, true}
	out   = fate{Conditions{}, true}
	gone  = fate{}
)

// as is the fate of an endpoint that stays as it is.
func (h held) as() fate { return fate{h.Conditions, true} }

// word is what the control plane says of a held address to those who may believe it.
type word uint8

const (
	hold word = iota // it cannot be believed, or says what is not known
	absent
	saysReady
	saysDraining
	saysNotReady
)

func wordOf(s State) word {
	switch s {
	case Ready:
		return saysReady
	case Draining:
		return saysDraining
	case NotReady:
		return saysNotReady
	}
	return hold
}

// result is what §5 makes of what is held and known.
type result struct {
	void  panicking               // the prober's failures are void
	fates map[netip.Addr]fate     // what the table says, before floor and shrink
	words map[netip.Addr]word     // of what is held
	floor map[netip.Addr]struct{} // what the floor makes ready; nil when it does not act
	away  map[netip.Addr]bool     // held, and our own configuration no longer has it
}

// panicking is a panic: nil when there is none, else the sources of which an endpoint in use fails.
type panicking map[string]bool

func (v panicking) acts() bool { return v != nil }

func (p *plan) probing() bool { return p.config.Probe != "" }

// verdict is the probe's word on an address.
func (p *plan) verdict(a netip.Addr) Verdict {
	if !p.probing() {
		return Unjudged
	}
	return p.probes[a].Verdict
}

// trusted is §5, Trust; the snapshot gate is part of it.
func (p *plan) trusted(name string) bool {
	t := p.told[name]
	return t != nil && t.sound() && p.at.Sub(t.Word) <= p.config.MaxStaleness
}

// believed is whether the source's word may change anything: trusted, and not empty without
// having been seen so often enough (guard 4).
func (p *plan) believed(name string, void panicking) bool {
	if !p.trusted(name) {
		return false
	}
	blank, confirmed := p.blank(name, void)
	return !blank || confirmed
}

// blank reports whether the source's view is empty for this target, and whether that is
// confirmed by enough observations. One that is not judged yet makes no difference in a panic as long as the
// source has an endpoint in use that fails (decision 0001), else the last one would go without the looks
// that this takes.
func (p *plan) blank(name string, void panicking) (blank, confirmed bool) {
	t := p.told[name]
	if t == nil {
		return false, false
	}
	e := p.empty[name]
	view := p.aimOf().blank(t, p.fences, p.probes)
	enough := func(r run) bool { return r.count >= p.config.EmptyThreshold }
	if void[name] {
		return view.unready, enough(e.unready)
	}
	return view.dead, enough(e.dead)
}

// aimOf is the target with the settings that were in force.
func (p *plan) aimOf() *aim { return &aim{Configured: p.config} }

func (p *plan) inside(name string, a netip.Addr) bool { return inside(p.fences, name, a) }

func (p *plan) family(a netip.Addr) bool { return p.aimOf().family(a) }

// member is the source's member at an address, if the target selects it.
func (p *plan) member(name string, a netip.Addr) *Member {
	t := p.told[name]
	if t == nil {
		return nil
	}
	m := t.index[a]
	if m == nil || !selects(p.config.Selector, m.Labels) {
		return nil
	}
	return m
}

// says is the control plane's word on a held address: of the source whose label it bears; and
// of the first other one that has it, once the former, believed, leaves it out.
func (p *plan) says(a netip.Addr, label string, void panicking) word {
	if slices.Contains(p.config.Sources, label) {
		if !p.believed(label, void) {
			return hold
		}
		if m := p.member(label, a); m != nil {
			return wordOf(m.State)
		}
	}
	for _, other := range p.config.Sources {
		if other != label && p.inside(other, a) && p.believed(other, void) {
			if m := p.member(other, a); m != nil {
				return wordOf(m.State)
			}
		}
	}
	return absent
}

// candidates are the addresses that are not held and could be listed, with the source's word.
func (p *plan) candidates(all map[netip.Addr]held, void panicking) map[netip.Addr]word {
	found := map[netip.Addr]word{}
	for _, name := range p.config.Sources {
		if !p.believed(name, void) {
			continue
		}
		for a, m := range p.told[name].index {
			if _, is := all[a]; is || !p.family(a) || !p.inside(name, a) || !selects(p.config.Selector, m.Labels) {
				continue
			}
			if _, is := found[a]; !is {
				found[a] = wordOf(m.State)
			}
		}
	}
	return found
}

// decide applies §5 to what is held: the table, with panic, emptiness and trust, and the floor.
// Shrink comes after it and only holds back.
func (p *plan) decide(all map[netip.Addr]held) result {
	r := result{
		fates: make(map[netip.Addr]fate, len(all)), words: make(map[netip.Addr]word, len(all)),
		away: map[netip.Addr]bool{},
	}
	r.void = p.panics(all)
	for a, h := range all {
		if !p.family(a) || !p.inside(h.source, a) {
			r.fates[a], r.words[a], r.away[a] = gone, absent, true
			continue
		}
		r.away[a] = !slices.Contains(p.config.Sources, h.source) || p.deselected(h.source, a)
		r.words[a] = p.says(a, h.source, r.void)
		r.fates[a] = p.fate(a, h, r.words[a], r.void.acts())
	}
	for a, w := range p.candidates(all, r.void) {
		passes := !p.probing() || p.verdict(a) == Passing
		switch {
		case w == saysReady && passes, w == saysNotReady && passes && p.probing():
			r.fates[a] = serve
		case w == saysDraining && passes:
			r.fates[a] = drain
		}
	}
	r.floor = p.floor(all, r)
	return r
}

// deselected reports whether our own configuration has left an address out: a selector of before would have
// what was told of it, and that of now would not.
func (p *plan) deselected(name string, a netip.Addr) bool {
	labels, is := p.dropped[name][a]
	return is && !selects(p.config.Selector, labels)
}

// panics is guard 3: a held endpoint fails, one is not out, and none that is held or could be
// listed passes.
func (p *plan) panics(all map[netip.Addr]held) panicking {
	if !p.probing() {
		return nil
	}
	failing, listed, void := false, false, panicking{}
	for a, h := range all {
		switch p.verdict(a) {
		case Passing:
			return nil
		case Failing:
			failing = true
			void[h.source] = void[h.source] || h.as() != out && p.inside(h.source, a)
		case Unjudged:
		}
		listed = listed || h.as() != out
	}
	if !failing || !listed {
		return nil
	}
	for a, w := range p.candidates(all, nil) {
		if w != hold && p.verdict(a) == Passing {
			return nil
		}
	}
	return void
}

// fate is the table (§5) for a held endpoint, and what a panic leaves of it.
func (p *plan) fate(a netip.Addr, h held, w word, void bool) fate {
	verdict := p.verdict(a)
	if void {
		switch w {
		case absent:
			return gone
		case saysNotReady:
			return out
		default:
			return h.as()
		}
	}
	if w == absent {
		return gone
	}
	if verdict == Failing {
		return out
	}
	unjudged := p.probing() && verdict == Unjudged
	switch w {
	case saysReady:
		if unjudged {
			return h.as()
		}
		return serve
	case saysDraining:
		return drain
	case saysNotReady:
		switch {
		case unjudged:
			return h.as()
		case p.probing():
			return serve
		}
		return out
	default:
		if h.as() == out && verdict == Passing {
			return p.lastWord(a, h.source)
		}
		return h.as()
	}
}

// lastWord is what the source's last trusted word makes of an endpoint that answers again; and
// without one, ready.
func (p *plan) lastWord(a netip.Addr, name string) fate {
	if t := p.told[name]; t != nil && t.word[a] != nil && t.word[a].State == Draining {
		return drain
	}
	return serve
}

// floor is guard 6: what has to be ready when the table leaves nothing ready.
//
//nolint:gocognit // it is one rule: when it acts, and then four sets in order
func (p *plan) floor(all map[netip.Addr]held, r result) map[netip.Addr]struct{} {
	passes := false
	for a, f := range r.fates {
		if f.listed && f.Ready {
			return nil
		}
		// Without probes what is about to be listed counts as well as what is held: the next
		// decision would find it held, and ready then.
		passes = passes || f.listed && (p.verdict(a) == Passing || !p.probing())
	}
	stays := false
	for a, h := range all {
		switch {
		case !p.family(a) || !p.inside(h.source, a) || p.emptied(h.source, r.words[a]):
		case !p.probing():
			stays = true
		case p.verdict(a) == Passing, p.verdict(a) == Unjudged && h.as() != out:
			stays = true
		}
	}
	if !passes && !stays {
		return nil
	}
	var sets [4]map[netip.Addr]struct{}
	put := func(i int, a netip.Addr) {
		if sets[i] == nil {
			sets[i] = map[netip.Addr]struct{}{}
		}
		sets[i][a] = struct{}{}
	}
	for a, f := range r.fates {
		h, is := all[a]
		if is && (!p.family(a) || !p.inside(h.source, a) || p.emptied(h.source, r.words[a])) {
			continue
		}
		verdict := p.verdict(a)
		failed := verdict == Failing && !r.void.acts()
		draining := f == drain || r.words[a] == saysDraining
		if draining && is && h.Ready && !failed {
			put(0, a)
		}
		if draining && (verdict == Passing || !p.probing()) {
			put(1, a)
		}
		if is && h.Ready && !failed {
			put(2, a)
		}
		if is && verdict == Passing {
			put(3, a)
		}
	}
	for _, set := range sets {
		if set != nil {
			return set
		}
	}
	return nil
}

// emptied reports whether the floor does not apply to what a source has: without probes, once it is
// believed to have nothing for this target (guard 4, per source). What another one tells of stays that one's.
func (p *plan) emptied(name string, w word) bool {
	if p.probing() || !p.trusted(name) || w != absent && w != saysNotReady {
		return false
	}
	blank, confirmed := p.blank(name, nil)
	return blank && confirmed
}

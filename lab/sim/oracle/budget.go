package oracle

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// window is a budget of the guard against shrinking (decision-rules.md#shrink): a tumbling window, opened by
// the first that leaves. The zero value: none was opened yet.
type window struct {
	since    time.Time // it cannot have been opened before,
	opened   time.Time // nor later than its first departure took effect
	size     int       // how many were ready when it opened
	used     int
	epoch    string // of the observation that it used
	observed uint64
}

// excess says why a departure exceeds the budget.
type excess struct{ sentence, detail string }

// budget judges I4: in a window at most half of those that were ready when it opened, or one,
// leave ready on the source's report alone; none does in a leader's first window; a further one
// needs a newer observation. It counts at the time of the plan, since that is when a writer
// books; what it booked and the API server refused has no effect and may be planned again.
//
// The oracle cannot know when exactly a window was opened, nor whether a departure counts whose probe fails too: the
// writer counts it if no failure counted for it. So it follows every window that may be the one in use, and gives up
// those that a departure does not fit. One must remain.
func (o *Oracle) budget(f Wrote, p *plan, c change, counts bool) {
	source, first := c.was.source, p.led.Add(p.config.ShrinkWindow)
	if p.at.Before(first) {
		if counts {
			o.broke("I4", "shrink", "none leaves on its source's report in a leader's first window",
				"%s let %s go %s after it took the Lease", f.Writer, c.address, p.at.Sub(p.led))
		}
		return
	}
	before := p.aim.windows[source]
	if len(before) == 0 {
		before = []window{{}}
	}
	var possible []window
	var wrong excess
	for _, last := range before {
		next, why := o.spend(p, source, c.address, last, first)
		if !counts {
			next = append(next, last)
		}
		for _, w := range next {
			if !slices.Contains(possible, w) {
				possible = append(possible, w)
			}
		}
		wrong = cmp.Or(wrong, why)
	}
	if len(possible) == 0 {
		o.broke("I4", "shrink", wrong.sentence, "%s let %s go%s", f.Writer, c.address, wrong.detail)
		possible = before
	}
	p.aim.windows[source] = possible
}

// spend returns the windows that a departure may use, with it: the last one, a new one, or both; or what is wrong.
func (o *Oracle) spend(p *plan, source string, address netip.Addr, last window, first time.Time) (next []window, wrong excess) {
	over := func(from time.Time) bool { return !p.at.Before(from.Add(p.config.ShrinkWindow)) }
	if last.used > 0 && !over(last.opened) {
		if last.used < max(1, last.size/2) {
			more := last
			more.used++
			if t := p.told[source]; t != nil {
				if first, is := t.against[address]; is && t.Epoch == last.epoch {
					early := more // it may have been let go then, and kept by another guard until now
					early.observed = max(last.observed, first)
					next = append(next, early)
				}
				more.epoch, more.observed = t.Epoch, t.Observation
			}
			next = append(next, more)
		} else {
			wrong = excess{"no more than half leave in a window on their source's report alone", fmt.Sprintf(
				", the %d. of %s of which %d were ready at %s", last.used+1, source, last.size, last.opened.Format(time.TimeOnly))}
		}
	}
	if last.used > 0 && !over(last.since) {
		return next, wrong
	}
	if t := p.told[source]; last.used > 0 && t != nil && t.Epoch == last.epoch && t.Observation <= last.observed {
		return next, excess{
			"a further window needs a newer observation than the last one used",
			fmt.Sprintf(" on observation %d of %s, as before", t.Observation, source),
		}
	}
	return append(next, o.open(p, source, last, first)), wrong
}

// open opens a window. Where its writer may have opened it before, as it had booked who was to leave and that was
// not written, or not all of it, the oracle gives it the benefit of the doubt: nor is it known then on which
// observation.
func (o *Oracle) open(p *plan, source string, last window, first time.Time) window {
	w := window{opened: o.now, since: p.at, size: p.ready(source), used: 1}
	earliest := p.at.Add(-p.config.ShrinkWindow)
	if earliest.Before(first) {
		earliest = first
	}
	if last.used > 0 && earliest.Before(last.since.Add(p.config.ShrinkWindow)) {
		earliest = last.since.Add(p.config.ShrinkWindow)
	}
	// What was booked at the moment of the last plan may have been booked before it or after it.
	booked, written := p.aim.booked[source], p.aim.written
	unwritten := booked.After(written) || booked.Equal(written) && !booked.Before(earliest)
	doubt := p.aim.resumed.After(earliest) || unwritten && !booked.Before(first) && booked.Before(p.at)
	for _, id := range o.recent {
		if q := o.plans[id]; q != p && q.writer == p.writer && q.Target == p.Target && !q.complete() && q.at.After(earliest) {
			doubt, w.size = true, max(w.size, q.ready(source))
		}
	}
	if doubt {
		w.since = earliest
	} else if t := p.told[source]; t != nil {
		w.epoch, w.observed = t.Epoch, t.Observation
	}
	return w
}

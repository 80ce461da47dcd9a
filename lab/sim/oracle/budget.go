package oracle

import (
	"fmt"
	"time"
)

// window is a budget of the guard against shrinking (decision-rules.md#shrink): a tumbling window, opened by
// the first that leaves.
type window struct {
	opened   time.Time
	since    time.Time // it cannot have been opened before
	size     int       // how many were ready when it opened
	used     int
	epoch    string // of the observation that it used
	observed uint64
}

func (w *window) full() bool { return w.used >= max(1, w.size/2) }

// readings are the windows of a source under both readings of a departure whose probe fails too: the writer did not
// count it, or it did, since no failure counted for it. The oracle cannot know which. What leaves must fit one of them,
// and a reading that it does not fit is given up.
type readings struct{ without, with *window }

// budget judges I4: in a window at most half of those that were ready when it opened, or one,
// leave ready on the source's report alone; none does in a leader's first window; a further one
// needs a newer observation. It counts at the time of the plan, since that is when a writer
// books; what it booked and the API server refused has no effect and may be planned again.
func (o *Oracle) budget(f Wrote, p *plan, c change, counts bool) {
	source, first := c.was.source, p.led.Add(p.config.ShrinkWindow)
	if p.at.Before(first) {
		if counts {
			o.broke("I4", "shrink", "none leaves on its source's report in a leader's first window",
				"%s let %s go %s after it took the Lease", f.Writer, c.address, p.at.Sub(p.led))
		}
		return
	}
	r := p.aim.windows[source]
	with, wrongWith := o.spend(p, source, r.with, first)
	if !counts {
		if wrongWith == nil {
			p.aim.windows[source] = readings{r.without, with}
		}
		return
	}
	without, wrong := o.spend(p, source, r.without, first)
	switch {
	case wrong != nil && wrongWith != nil:
		o.broke("I4", "shrink", wrong.sentence, "%s let %s go%s", f.Writer, c.address, wrong.detail)
	case wrong != nil:
		without = with
	case wrongWith != nil:
		with = without
	}
	p.aim.windows[source] = readings{without, with}
}

// excess says why a departure exceeds the budget.
type excess struct{ sentence, detail string }

// spend is the window that a departure uses, with it, and what is wrong with that.
func (o *Oracle) spend(p *plan, source string, last *window, first time.Time) (*window, *excess) {
	over := func(from time.Time) bool { return !p.at.Before(from.Add(p.config.ShrinkWindow)) }
	var next window
	var wrong *excess
	switch {
	case last == nil || over(last.opened) || last.full() && over(last.since):
		next = *o.open(p, source, last, first)
		if t := p.told[source]; last != nil && t != nil && t.Epoch == last.epoch && t.Observation <= last.observed {
			wrong = &excess{
				"a further window needs a newer observation than the last one used",
				fmt.Sprintf(" on observation %d of %s, as before", t.Observation, source),
			}
		}
	case last.full():
		next = *last
		wrong = &excess{"no more than half leave in a window on their source's report alone", fmt.Sprintf(
			", the %d. of %s of which %d were ready at %s", last.used+1, source, last.size, last.opened.Format(time.TimeOnly))}
	default:
		next = *last
	}
	next.used++
	return &next, wrong
}

// open opens a window. Where its writer may have opened it before, as it had booked who was to leave and that was
// not written, or not all of it, the oracle gives it the benefit of the doubt: nor is it known then on which
// observation.
func (o *Oracle) open(p *plan, source string, last *window, first time.Time) *window {
	w := &window{opened: p.at, since: p.at, size: p.ready(source)}
	earliest := p.at.Add(-p.config.ShrinkWindow)
	if earliest.Before(first) {
		earliest = first
	}
	if last != nil && earliest.Before(last.since.Add(p.config.ShrinkWindow)) {
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

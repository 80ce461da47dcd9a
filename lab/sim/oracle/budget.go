package oracle

import "time"

// window is a budget of the guard against shrinking (§5, guard 7): a tumbling window, opened by
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

// budget judges I4: in a window at most half of those that were ready when it opened, or one,
// leave ready on the source's report alone; none does in a leader's first window; a further one
// needs a newer observation. It counts at the time of the plan, since that is when a writer
// books; what it booked and the API server refused has no effect and may be planned again.
func (o *Oracle) budget(f Wrote, p *plan, c change) {
	source, length := c.was.source, p.config.ShrinkWindow
	first := p.led.Add(length)
	if p.at.Before(first) {
		o.broke("I4", "shrink", "none leaves on its source's report in a leader's first window",
			"%s let %s go %s after it took the Lease", f.Writer, c.address, p.at.Sub(p.led))
		return
	}
	w := p.aim.windows[source]
	over := func(from time.Time) bool { return !p.at.Before(from.Add(length)) }
	if w == nil || over(w.opened) || w.full() && over(w.since) {
		next := o.open(p, source, w, first)
		if t := p.told[source]; w != nil && t != nil && t.Epoch == w.epoch && t.Observation <= w.observed {
			o.broke("I4", "shrink", "a further window needs a newer observation than the last one used",
				"%s let %s go on observation %d of %s, as before", f.Writer, c.address, t.Observation, source)
		}
		w = next
		p.aim.windows[source] = w
	} else if w.full() {
		o.broke("I4", "shrink", "no more than half leave in a window on their source's report alone",
			"%s let %s go, the %d. of %s of which %d were ready at %s", f.Writer, c.address, w.used+1, source, w.size, w.opened.Format(time.TimeOnly))
	}
	w.used++
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

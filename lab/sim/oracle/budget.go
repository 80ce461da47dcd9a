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
// leave ready on the feed's word alone; none does in a leader's first window; a further one
// needs a newer observation. It counts at the time of the plan, since that is when a writer
// books; what it booked and the API server refused has no effect and may be planned again.
func (o *Oracle) budget(f Wrote, p *plan, t *target, changes []change) {
	for _, c := range changes {
		if !c.from.listed || !c.from.Ready || c.to.listed && c.to.Ready {
			continue
		}
		if p.excused(t, c) {
			continue
		}
		o.leaves(f, p, c)
	}
}

// excused reports whether an endpoint left for another reason than the feed's word, or for one
// that the guard does not count.
func (p *plan) excused(t *target, c change) bool {
	if ours, is := t.ours[c.address]; !is || !ours.Ready {
		return true // what someone else added or altered is not held
	}
	if t.mends(c) {
		return true // a leader whose term was over is someone else
	}
	r := p.made()
	if p.config.ShrinkWindow == 0 || r.away[c.address] {
		return true
	}
	if p.verdict(c.address) == Failing && !r.void.acts() {
		return true
	}
	blank, confirmed := p.blank(c.was.source, r.void)
	return blank && confirmed && p.trusted(c.was.source)
}

func (o *Oracle) leaves(f Wrote, p *plan, c change) {
	const sentence = "no more than half leave in a window on the feed's word alone"
	source, length := c.was.source, p.config.ShrinkWindow
	first := p.led.Add(length)
	if p.at.Before(first) {
		o.broke("I4", "shrink", "none leaves on the feed's word in a leader's first window",
			"%s let %s go %s after it took the Lease", f.Writer, c.address, p.at.Sub(p.led))
		return
	}
	if p.booked(source, first) {
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
		o.broke("I4", "shrink", sentence, "%s let %s go, the %d. of %s of which %d were ready at %s",
			f.Writer, c.address, w.used+1, source, w.size, w.opened.Format(time.TimeOnly))
	}
	w.used++
}

// booked takes a leaving for one of those that were booked in a window that was over before anything could be
// written.
func (p *plan) booked(source string, first time.Time) bool {
	for i := range p.aim.booked {
		if b := &p.aim.booked[i]; b.source == source && b.n > 0 && !b.at.Before(first) && !p.at.Before(b.at.Add(p.config.ShrinkWindow)) {
			b.n--
			return true
		}
	}
	return false
}

// open opens a window. A plan of which not every write took effect may have opened it before, or
// one that was not written since the Service was paused: its writer had booked who was to leave.
// Then the oracle gives it the benefit of the doubt.
func (o *Oracle) open(p *plan, source string, last *window, first time.Time) *window {
	w := &window{opened: p.at, since: p.at, size: p.ready[source]}
	earliest := p.at.Add(-p.config.ShrinkWindow)
	if earliest.Before(first) {
		earliest = first
	}
	if last != nil && earliest.Before(last.since.Add(p.config.ShrinkWindow)) {
		earliest = last.since.Add(p.config.ShrinkWindow)
	}
	w.rests(p.told[source])
	if p.aim.resumed.After(earliest) {
		w.since, w.epoch = earliest, "" // nor is it known on which observation
	}
	// A decision may have booked who is to leave, and another one taken its place before anything
	// was sent, or nothing could be sent for a while. The writer says then that its budget is in use, and
	// when it holds back fewer than before, that more are to leave.
	for _, b := range p.aim.booked {
		said := b.at
		if b.source == source && !said.Before(earliest) && said.Before(w.since) {
			w.since, w.epoch = said, ""
		}
	}
	for _, id := range o.recent {
		q := o.plans[id]
		if q.writer != p.writer || q.Target != p.Target || q.complete() || q == p || !q.at.After(earliest) {
			continue
		}
		if q.at.Before(w.since) {
			w.since = q.at
			if t := q.told[source]; t != nil && (t.Epoch != w.epoch || t.Observation < w.observed) { // a liar's go back
				w.rests(t)
			}
		}
		w.size = max(w.size, q.ready[source])
	}
	return w
}

// rests notes the observation that was in force when the window may have been opened.
func (w *window) rests(on *told) {
	if on != nil {
		w.epoch, w.observed = on.Epoch, on.Observation
	}
}

// complete reports whether every request of a plan took effect, as far as is known.
func (p *plan) complete() bool { return p.landed >= max(1, p.Writes) }

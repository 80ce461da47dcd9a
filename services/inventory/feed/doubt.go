package feed

// doubt judges whether a view became so much worse that one look is not enough: it is
// empty, none of it is ready, or more than half of what was there at the last complete
// observation is gone.
type doubt struct {
	members, ready int

	base  int                 // members at the last complete observation
	fresh map[string]struct{} // members that came since
	lost  map[string]struct{} // members of then that are gone
}

func (d *doubt) observed() {
	d.base = d.members
	d.fresh, d.lost = map[string]struct{}{}, map[string]struct{}{}
}

func (d *doubt) came(name string) {
	d.members++
	if _, ok := d.lost[name]; ok {
		delete(d.lost, name)
		return
	}
	d.fresh[name] = struct{}{}
}

func (d *doubt) went(name string) {
	d.members--
	if _, ok := d.fresh[name]; ok {
		delete(d.fresh, name)
		return
	}
	d.lost[name] = struct{}{}
}

func (d *doubt) standing() bool {
	return d.members == 0 || d.ready == 0 || 2*len(d.lost) > d.base
}

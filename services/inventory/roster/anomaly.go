package roster

// AnomalyDetector finds when a set became so much worse that one observation is not enough: it is
// empty, none of it is ready, or more than half of what was there at the last complete observation
// is gone. Roster and views share it, so that both react to the start of an anomaly alone: one that
// lasts must not keep a LIST of all Nodes and a listing of the cloud running. The zero value is that
// of the empty set.
type AnomalyDetector struct {
	members int
	base    int                 // members at the last complete observation
	added   map[string]struct{} // members that came since
	lost    map[string]struct{} // members of then that are gone

	active anomalies
}

type anomalies struct{ empty, noneReady, halved bool }

// Add takes in that a member came.
func (d *AnomalyDetector) Add(name string) {
	d.members++
	if _, ok := d.lost[name]; ok {
		delete(d.lost, name)
		return
	}
	if d.added == nil {
		d.added = map[string]struct{}{}
	}
	d.added[name] = struct{}{}
}

// Remove takes in that a member left.
func (d *AnomalyDetector) Remove(name string) {
	d.members--
	if _, ok := d.added[name]; ok {
		delete(d.added, name)
		return
	}
	if d.lost == nil {
		d.lost = map[string]struct{}{}
	}
	d.lost[name] = struct{}{}
}

// Observed takes in a complete observation: losses are counted from the set as it is now.
func (d *AnomalyDetector) Observed() {
	d.base = d.members
	clear(d.added)
	clear(d.lost)
}

// Arose reports whether an anomaly is there that was not at the last call.
func (d *AnomalyDetector) Arose(ready int) bool {
	old := d.active
	d.active = anomalies{empty: d.members == 0, noneReady: ready == 0, halved: 2*len(d.lost) > d.base}
	return d.active.empty && !old.empty || d.active.noneReady && !old.noneReady || d.active.halved && !old.halved
}

// Forget has anomalies that last count as new ones.
func (d *AnomalyDetector) Forget() { d.active = anomalies{} }

package observe

// AnomalyDetector finds when a set became so much worse that one observation is not enough: it is empty,
// none of it is ready, or more than half of the members at the last complete observation are gone. The
// roster and each view have one. It reports only the start of an anomaly: one that lasts must not keep a
// LIST of all Nodes and a listing of the cloud running. The zero value is that of the empty set.
type AnomalyDetector struct {
	members int
	base    int                 // members at the last complete observation
	added   map[string]struct{} // members that were added since
	removed map[string]struct{} // members of that observation that were removed since

	active anomalies
}

type anomalies struct{ empty, noneReady, halved bool }

// Add adds a member.
func (d *AnomalyDetector) Add(name string) {
	d.members++
	if _, ok := d.removed[name]; ok {
		delete(d.removed, name)
		return
	}
	if d.added == nil {
		d.added = map[string]struct{}{}
	}
	d.added[name] = struct{}{}
}

// Remove removes a member.
func (d *AnomalyDetector) Remove(name string) {
	d.members--
	if _, ok := d.added[name]; ok {
		delete(d.added, name)
		return
	}
	if d.removed == nil {
		d.removed = map[string]struct{}{}
	}
	d.removed[name] = struct{}{}
}

// ObservationDone records a complete observation: losses are counted from the current set.
func (d *AnomalyDetector) ObservationDone() {
	d.base = d.members
	clear(d.added)
	clear(d.removed)
}

// DetectNew reports whether there is an anomaly that was not there at the last call.
func (d *AnomalyDetector) DetectNew(ready int) bool {
	old := d.active
	d.active = anomalies{empty: d.members == 0, noneReady: ready == 0, halved: 2*len(d.removed) > d.base}
	return d.active.empty && !old.empty || d.active.noneReady && !old.noneReady || d.active.halved && !old.halved
}

// ForgetActive makes anomalies that last count as new ones.
func (d *AnomalyDetector) ForgetActive() { d.active = anomalies{} }

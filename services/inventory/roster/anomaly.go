package roster

import "time"

const (
	// quickObservations is how many observations follow the start of an anomaly in close succession: the largest
	// number that a writer may need to confirm that a set is empty.
	quickObservations = 10
	// slowInterval is the time between two observations of an anomaly that lasts longer. It is short enough that a
	// writer that was away confirms an empty set within a minute, and long enough that a set that is empty on purpose
	// costs little: a LIST of the source and a listing of the cloud.
	slowInterval = 20 * time.Second
)

// anomalyDetector finds while a set is so much worse that one observation is not enough: it is empty, none of it is
// ready, or more than half of the members at the last complete observation are gone. The zero value is that of the
// empty set.
type anomalyDetector struct {
	members int
	base    int                 // members at the last complete observation
	added   map[string]struct{} // members that were added since
	removed map[string]struct{} // members of that observation that were removed since

	active   anomalies
	observed int // complete observations since the last anomaly arose
}

type anomalies struct{ empty, noneReady, halved bool }

// add adds a member.
func (d *anomalyDetector) add(name string) {
	d.members++
	moveMember(name, d.removed, &d.added)
}

// remove removes a member.
func (d *anomalyDetector) remove(name string) {
	d.members--
	moveMember(name, d.added, &d.removed)
}

// moveMember takes a member out of one set, or else adds it to the other.
func moveMember(name string, from map[string]struct{}, to *map[string]struct{}) {
	if _, ok := from[name]; ok {
		delete(from, name)
		return
	}
	if *to == nil {
		*to = map[string]struct{}{}
	}
	(*to)[name] = struct{}{}
}

// observationDone records a complete observation: losses are counted from the current set.
func (d *anomalyDetector) observationDone() {
	d.base = d.members
	clear(d.added)
	clear(d.removed)
	d.observed++
}

// detect finds the anomalies of the set as it is now, and reports whether one has arisen since the last call.
func (d *anomalyDetector) detect(ready int) (arisen bool) {
	old := d.active
	d.active = anomalies{empty: d.members == 0, noneReady: ready == 0, halved: 2*len(d.removed) > d.base}
	arisen = d.active.empty && !old.empty || d.active.noneReady && !old.noneReady || d.active.halved && !old.halved
	if arisen {
		d.observed = 0
	}
	return arisen
}

// interval returns how long after the last complete observation the anomalies need the next one; false: there are none.
func (d *anomalyDetector) interval() (after time.Duration, wanted bool) {
	switch {
	case d.active == anomalies{}:
		return 0, false
	case d.observed < quickObservations:
		return observationGap, true
	}
	return slowInterval, true
}

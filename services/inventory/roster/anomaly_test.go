package roster

import (
	"testing"
	"time"
)

func TestAnomaliesAreObservedEvery5sTenTimesAndThenEvery20s(t *testing.T) {
	const no, soon, slow = time.Duration(0), 5 * time.Second, 20 * time.Second
	type step struct {
		add, remove string // a letter for each member
		observed    int    // complete observations, with the same set
		ready       int
		next        time.Duration // after the last observation; no: there is no anomaly
	}
	for name, steps := range map[string][]step{
		"empty from the start":          {{next: soon}, {observed: 9, next: soon}, {observed: 1, next: slow}, {observed: 100, next: slow}},
		"empty, and no longer":          {{next: soon}, {add: "a", ready: 1, next: no}, {observed: 1, ready: 1, next: no}},
		"none ready, then empty":        {{add: "ab", ready: 2}, {observed: 20, next: slow}, {remove: "ab", next: soon}},
		"none ready, ready, none ready": {{add: "a", ready: 1}, {observed: 20, next: slow}, {ready: 1}, {next: soon}},
		"most not ready":                {{add: "abcd", observed: 1, ready: 4}, {ready: 1}},
		"none ready while the set shrinks": {
			{add: "abcdef", observed: 20, next: slow}, {remove: "a", next: slow}, {remove: "b", observed: 1, next: slow}, {remove: "c", next: slow},
		},
		"half lost":                    {{add: "abcd", observed: 1, ready: 4}, {remove: "ab", ready: 2}},
		"more than half lost":          {{add: "abcd", observed: 1, ready: 4}, {remove: "abc", ready: 1, next: soon}, {observed: 1, ready: 1}},
		"more than half replaced":      {{add: "abcd", observed: 1, ready: 4}, {remove: "abc", add: "xyz", ready: 4, next: soon}},
		"lost since some observations": {{add: "abcd", observed: 500, ready: 4}, {remove: "abc", ready: 1, next: soon}},
		"lost in parts, with an observation in between": {
			{add: "abcdefgh", observed: 1, ready: 8}, {remove: "abc", observed: 1, ready: 5}, {remove: "de", ready: 3}, {remove: "f", ready: 2, next: soon},
		},
		"lost in parts, without one": {{add: "abcdefgh", observed: 1, ready: 8}, {remove: "abc", ready: 5}, {remove: "de", ready: 3, next: soon}},
		"lost and back again":        {{add: "ab", observed: 1, ready: 2}, {remove: "a", ready: 1}, {add: "a", ready: 2}, {remove: "b", ready: 1}},
		"added and lost again":       {{add: "abcd", observed: 1, ready: 4}, {add: "xy", ready: 6}, {remove: "xya", ready: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var d anomalyDetector
			for i, s := range steps {
				for _, c := range s.add {
					d.add(string(c))
				}
				for _, c := range s.remove {
					d.remove(string(c))
				}
				d.detect(s.ready)
				for range s.observed {
					d.observationDone()
					d.detect(s.ready)
				}
				if next, wanted := d.interval(); next != s.next || wanted != (s.next > 0) {
					t.Errorf("step %d: the next observation after %s, wanted: %t; want %s", i+1, next, wanted, s.next)
				}
			}
		})
	}
}

package observe

import "testing"

func TestAnAnomalyCountsWhenItArisesAndNotWhileItLasts(t *testing.T) {
	type step struct {
		add, remove string // a letter for each member
		observed    bool
		ready       int
		arises      bool
	}
	for name, steps := range map[string][]step{
		"empty from the start":             {{arises: true}, {}, {observed: true}},
		"none ready, then empty":           {{add: "ab", ready: 2}, {ready: 0, arises: true}, {remove: "ab", arises: true}, {}},
		"none ready while the set shrinks": {{add: "abcdef", observed: true, arises: true}, {remove: "a"}, {remove: "b", observed: true}, {remove: "c"}},
		"none ready, ready, none ready":    {{add: "a", ready: 1}, {arises: true}, {ready: 1}, {arises: true}},
		"halved, and further losses before it was observed": {
			{add: "abcdefgh", observed: true, ready: 8}, {remove: "abcd", ready: 4}, {remove: "e", ready: 3, arises: true}, {remove: "f", ready: 2},
		},
		"halved, observed, halved": {
			{add: "abcdefgh", observed: true, ready: 8}, {remove: "abcde", ready: 3, arises: true}, {observed: true, ready: 3}, {remove: "fg", ready: 1, arises: true},
		},
		"lost and back again": {{add: "ab", observed: true, ready: 2}, {remove: "a", ready: 1}, {add: "a", ready: 2}, {remove: "b", ready: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var d AnomalyDetector
			for i, s := range steps {
				for _, c := range s.add {
					d.Add(string(c))
				}
				for _, c := range s.remove {
					d.Remove(string(c))
				}
				if s.observed {
					d.ObservationDone()
				}
				if got := d.DetectNew(s.ready); got != s.arises {
					t.Errorf("step %d: arises: %t, want %t", i+1, got, s.arises)
				}
			}
		})
	}
}

package roster

import (
	"testing"
	"time"
)

// The contract promises so to every client, whatever the source's interval is.
func TestObservationsAreFiveSecondsApartHoweverOftenTheSourceIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    Config
		series int
	}{
		"at rest":                   {Config{Resolver: ByRecord, Pace: time.Second, Rest: time.Second}, 0},
		"in a series":               {Config{Resolver: ByRecord, Pace: time.Second, Rest: time.Second}, 10},
		"in a series, by the cloud": {Config{Resolver: ByCloud, Pace: time.Second}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.cfg)
			if c.cfg.Resolver == ByCloud {
				w.up(node("a", s1))
			} else {
				w.up(record("a", "10.0.0.11"))
			}
			w.observed(one)
			w.Doubt(w.now, c.series)
			last, at, count := w.Status(w.now).Observation, w.Status(w.now).ObservedAt, 0
			for range 300 {
				if a := w.Ask(w.now); a.Look != NoLook {
					w.Looked(w.now, w.now, a.Look, w.rv, nil)
					if a = w.Ask(w.now); a.List {
						w.Listed(w.now, w.now, one, nil, 0)
					}
				} else if a.List {
					w.Listed(w.now, w.now, one, nil, 0)
				}
				if s := w.Status(w.now); s.Observation > last {
					if gap := s.ObservedAt.Sub(at); gap < 5*time.Second {
						t.Fatalf("observation %d came %s after the one before", s.Observation, gap)
					}
					last, at, count = s.Observation, s.ObservedAt, count+1
				}
				w.pass(200 * time.Millisecond)
				w.up()
			}
			if count < 8 && c.cfg.Resolver != ByCloud || count < 1 {
				t.Errorf("%d observations in a minute", count)
			}
		})
	}
}

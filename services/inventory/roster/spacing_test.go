package roster

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// The contract promises so to every client, whatever the source's interval is.
func TestObservationsAreFiveSecondsApartHoweverOftenTheSourceIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    Config
		series int
	}{
		"at rest":                   {Config{Method: resolve.ByRecord, ConfirmInterval: time.Second, VerifyInterval: time.Second}, 0},
		"in a series":               {Config{Method: resolve.ByRecord, ConfirmInterval: time.Second, VerifyInterval: time.Second}, 10},
		"in a series, by the cloud": {Config{Method: resolve.ByCloud, ConfirmInterval: time.Second}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.cfg)
			if c.cfg.Method == resolve.ByCloud {
				w.up(node("a", s1))
			} else {
				w.up(record("a", "10.0.0.11"))
			}
			w.observed(one)
			w.RequestObservations(w.now, c.series)
			last, at, count := w.Status(w.now).Observation, w.Status(w.now).ObservedAt, 0
			for range 300 {
				if a := w.NextActions(w.now); a.Verify != source.NoVerification {
					w.verified(w.now, w.now, a.Verify, w.rv, nil)
					if a = w.NextActions(w.now); a.List {
						w.listed(w.now, w.now, one, nil, 0)
					}
				} else if a.List {
					w.listed(w.now, w.now, one, nil, 0)
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
			if count < 8 && c.cfg.Method != resolve.ByCloud || count < 1 {
				t.Errorf("%d observations in a minute", count)
			}
		})
	}
}

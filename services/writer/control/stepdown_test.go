package control

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestTheLeaseIsGivenUpOnceWhenNoProbeOfAnyTargetPasses(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	panics := func(seconds int) verdict.Decision {
		return verdict.Decision{Panic: true, NonePassingSince: at(seconds)}
	}
	sees := verdict.Decision{AnyPassing: true}
	dark := verdict.Decision{NonePassingSince: at(115)} // nothing of it is usable: there is nothing to keep
	unprobed := verdict.Decision{CannotProbe: true, NonePassingSince: at(100)}
	const no, now = -1, 0
	for _, tt := range []struct {
		name    string
		targets []verdict.Decision
		leads   int // since when; no: we do not
		last    int // when it was given up; no: never
		asked   int
		want    int // when it is due; no: not before something changes; now: at once
	}{
		{"after 30 s", []verdict.Decision{panics(100)}, 10, no, 130, now},
		{"not before", []verdict.Decision{panics(100)}, 10, no, 129, 130},
		{"not while a probe of another target passes", []verdict.Decision{panics(100), sees}, 10, no, 200, no},
		{"30 s after the last target became blind", []verdict.Decision{panics(100), dark}, 10, no, 130, 145},
		{"a target that has nothing to see does not count", []verdict.Decision{panics(100), {}}, 10, no, 130, now},
		{"after 30 s in which an endpoint in use could not be probed", []verdict.Decision{unprobed}, 10, no, 130, now},
		{"not while a probe of another target passes, though one cannot be probed", []verdict.Decision{unprobed, sees}, 10, no, 200, no},
		{"not by one that took over and could not probe", []verdict.Decision{unprobed}, 110, no, 200, no},
		{"not when nothing is kept", []verdict.Decision{dark}, 10, no, 200, no},
		{"not by one that took over in this state", []verdict.Decision{panics(100)}, 110, no, 200, no},
		{"nor by one that began with it", []verdict.Decision{panics(100)}, 100, no, 200, no},
		{"not by one that does not lead", []verdict.Decision{panics(100)}, no, no, 200, no},
		{"not again within 10 min", []verdict.Decision{panics(400)}, 300, 50, 500, 650},
		{"again after 10 min", []verdict.Decision{panics(400)}, 300, 50, 650, now},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s stepDown
			if tt.last != no {
				s.done(at(tt.last))
			}
			var since time.Time
			if tt.leads != no {
				since = at(tt.leads)
			}
			give, later := s.due(tt.targets, since, at(tt.asked))
			want := time.Time{}
			if tt.want > 0 {
				want = at(tt.want)
			}
			if give != (tt.want == now) || !later.Equal(want) {
				t.Errorf("give it up: %t, ask again at %v; want %t, %v", give, later, tt.want == now, want)
			}
		})
	}
}

package reconciler

import (
	"slices"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestStepsDownWhenNoProbeOfAnyTargetPasses(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	panics := func(seconds int) verdict.Decision {
		return verdict.Decision{Panic: true, NonePassingSince: at(seconds)}
	}
	sees := verdict.Decision{AnyPassing: true}
	dark := verdict.Decision{NonePassingSince: at(115)} // nothing of it is usable: there is nothing to keep
	unprobed := verdict.Decision{CannotProbe: true, NonePassingSince: at(100)}
	const no = -1
	for _, tt := range []struct {
		name    string
		targets []verdict.Decision
		leads   int // since when; no: we do not
		last    int // when it was given up; no: never
		want    int // when it is due; no: not before something changes
	}{
		{"after 30 s", []verdict.Decision{panics(100)}, 10, no, 130},
		{"not while a probe of another target passes", []verdict.Decision{panics(100), sees}, 10, no, no},
		{"30 s after the last target became blind", []verdict.Decision{panics(100), dark}, 10, no, 145},
		{"a target that has nothing to see does not count", []verdict.Decision{panics(100), {}}, 10, no, 130},
		{"after 30 s in which an endpoint in use could not be probed", []verdict.Decision{unprobed}, 10, no, 130},
		{"not while a probe of another target passes, though one cannot be probed", []verdict.Decision{unprobed, sees}, 10, no, no},
		{"not by one that took over and could not probe", []verdict.Decision{unprobed}, 110, no, no},
		{"not when nothing is kept", []verdict.Decision{dark}, 10, no, no},
		{"not by one that took over in this state", []verdict.Decision{panics(100)}, 110, no, no},
		{"nor by one that began with it", []verdict.Decision{panics(100)}, 100, no, no},
		{"not by one that does not lead", []verdict.Decision{panics(100)}, no, no, no},
		{"again only after 10 min", []verdict.Decision{panics(400)}, 300, 50, 650},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var since, last time.Time
			if tt.leads != no {
				since = at(tt.leads)
			}
			if tt.last != no {
				last = at(tt.last)
			}
			want := time.Time{}
			if tt.want != no {
				want = at(tt.want)
			}
			if got := stepDownAt(slices.Values(tt.targets), since, last); !got.Equal(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestStepsDownOnceNoProbePassesForLongEnough(t *testing.T) {
	lease, start := &fakeLease{since: time.Now()}, time.Now()
	s := stepDown{probes: map[targets.Key]verdict.Decision{}}
	blue, red := targets.Key{Name: "blue"}, targets.Key{Name: "red"}
	fails := verdict.Decision{Panic: true, NonePassingSince: start.Add(time.Minute)}
	s.update(blue, verdict.Decision{AnyPassing: true}, lease, start) // this writer leads from now on
	for _, step := range []struct {
		name     string
		key      targets.Key
		decision verdict.Decision
		at       time.Duration
		wake     time.Duration // 0: none
		released int
	}{
		{"a probe of another target passes", red, verdict.Decision{AnyPassing: true}, time.Minute, 0, 0},
		{"which keeps the Lease", blue, fails, 2 * time.Minute, 0, 0},
		{"until that target is gone", red, verdict.Decision{}, time.Minute, time.Minute + nonePassingFor, 0},
		{"and time is over", blue, fails, time.Minute + nonePassingFor, 0, 1},
		{"but not again soon", blue, fails, 2 * time.Minute, time.Minute + nonePassingFor + stepDownInterval, 1},
	} {
		want := time.Time{}
		if step.wake != 0 {
			want = start.Add(step.wake)
		}
		if _, wake := s.update(
			step.key,
			step.decision,
			lease,
			start.Add(step.at),
		); !wake.Equal(want) || lease.released != step.released ||
			lease.handedOver != step.released {
			t.Errorf(
				"%s: released %d times, handed over %d times, to be asked again at %v; want %d, %v",
				step.name,
				lease.released,
				lease.handedOver,
				wake,
				step.released,
				want,
			)
		}
	}
}

func TestLeaseIsHandedOverAfterTheLastWrite(t *testing.T) {
	lease, start := &fakeLease{since: time.Now()}, time.Now()
	s := stepDown{probes: map[targets.Key]verdict.Decision{}}
	s.update(targets.Key{}, verdict.Decision{}, lease, start)
	s.writeStarts()
	s.writeStarts()
	blind := start.Add(time.Second)
	s.update(targets.Key{}, verdict.Decision{Panic: true, NonePassingSince: blind}, lease, blind.Add(nonePassingFor))
	s.writeEnds()
	if lease.released != 1 || lease.handedOver != 0 {
		t.Errorf("during a write: released %d times and handed over %d times, want 1 and 0", lease.released, lease.handedOver)
	}
	s.writeEnds()
	if lease.handedOver != 1 {
		t.Errorf("after it: handed over %d times, want 1", lease.handedOver)
	}
}

package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAScriptIsReadAsItWasWritten(t *testing.T) {
	for seed := range uint64(50) {
		want := Draw(seed)
		got, err := Parse("# a world\n\n" + want.Text())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("seed %d: %v\n%s", seed, err, diff)
		}
	}
}

func TestShrinkingKeepsWhatTheFailureNeeds(t *testing.T) {
	// It fails while a link is cut for 7 s or longer and, later, any node goes.
	played := 0
	fails := func(s Script) bool {
		played++
		cut := time.Duration(-1)
		for _, f := range s.Faults {
			if f.Kind == LinkCut && f.For >= 7*time.Second && f.At+f.For <= s.Trouble {
				cut = f.At
			}
			if f.Kind == NodeDeleted && cut >= 0 && f.At > cut {
				return true
			}
		}
		return false
	}
	s := Draw(1)
	s.Trouble = 5 * time.Minute
	s.Faults = nil
	for i := range 40 {
		s.Faults = append(s.Faults,
			Fault{At: time.Duration(i) * 1500 * time.Millisecond, For: time.Minute, Kind: Kinds[i%len(Kinds)], On: 9, N: 9})
	}
	s.Faults = append(s.Faults, Fault{At: 70 * time.Second, For: 100 * time.Second, Kind: LinkCut, On: 5},
		Fault{At: 80 * time.Second, Kind: NodeDeleted, N: 5, On: 4})
	short := Shrink(s, 1000, fails)
	want := []Fault{{At: 70 * time.Second, For: 7 * time.Second, Kind: LinkCut}, {At: 80 * time.Second, Kind: NodeDeleted}}
	if len(short.Faults) == 2 && short.Faults[0].For < 14*time.Second {
		want[0].For = short.Faults[0].For // halved as often as it may be
	}
	if diff := cmp.Diff(want, short.Faults); diff != "" {
		t.Error(diff)
	}
	if short.Setup.Nodes != 1 || short.Setup.Writers != 1 || short.Trouble > 130*time.Second {
		t.Errorf("the world is still large: %+v, %s", short.Setup, short.Trouble)
	}
	if played > 400 {
		t.Errorf("%d worlds were played", played)
	}
}

package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// kind is what a drawn reading makes of one node's record.
type kind string

const (
	absent     kind = "absent"
	ready      kind = "ready"
	notReady   kind = "not ready"
	noWorker   kind = "no worker"
	spoiled    kind = "spoiled"
	anonymous  kind = "anonymous"
	duplicated kind = "duplicated"
)

// write is the record of the n-th node as that kind has it. Each node has an address of its own,
// so that nothing but the reading decides what is told.
func write(n int, k kind) []string {
	name, ip := fmt.Sprintf("n%d", n), fmt.Sprintf("10.0.0.%d", 10+n)
	switch k {
	case ready, notReady:
		return []string{entry(name, ip, k == ready, true)}
	case noWorker:
		return []string{entry(name, ip, true, false)}
	case spoiled:
		return []string{fmt.Sprintf(`{"name":%q,"private_ip":%q,"ready":"yes"}`, name, ip)}
	case anonymous:
		return []string{fmt.Sprintf(`{"name":null,"private_ip":%q,"ready":true,"worker":true}`, ip)}
	case duplicated:
		return []string{entry(name, ip, true, true), entry(name, ip, true, true)}
	}
	return nil
}

func TestFromAnySequenceOfReadsTheToldSetIsNeverSmallerThanTheTruthSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text string
		var fail error
		f := newFeed(&fake{read: func(context.Context) ([]byte, error) { return []byte(text), fail }})
		truth := map[string]roster.State{}       // what the sound readings so far leave
		prompt := rapid.Bool().Draw(t, "prompt") // what is told is taken at once
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			var all []string
			kinds := map[string]kind{}
			for n := range 4 {
				k := rapid.SampledFrom([]kind{absent, ready, ready, ready, notReady, noWorker, spoiled, anonymous, duplicated}).Draw(t, "record")
				if k == duplicated && rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
					k = ready
				}
				kinds[fmt.Sprintf("n%d", n)] = k
				all = append(all, write(n, k)...)
			}
			text, fail = array(all...), nil
			sound := !slices.Contains(slices.Collect(maps.Values(kinds)), duplicated)
			switch rapid.IntRange(0, 5).Draw(t, "mishap") {
			case 0:
				text, sound = text[:rapid.IntRange(0, len(strings.TrimSpace(text))-1).Draw(t, "cut")], false
			case 1:
				fail, sound = errors.New("boom"), false
			}
			if sound {
				settleTruth(truth, kinds)
			}
			_, err := f.source.read(t.Context(), rapid.SampledFrom([]cause{looked, provoked}).Draw(t, "cause"))
			if (err == nil) != sound {
				t.Fatalf("sound is %t, and the error is %v:\n%s", sound, err, text)
			}
			if prompt || rapid.Bool().Draw(t, "take") {
				f.hearAndCompare(t, truth, prompt)
			}
		}
		f.hearAndCompare(t, truth, prompt)
	})
}

// settleTruth is what a sound reading says, in the plainest words.
func settleTruth(truth map[string]roster.State, kinds map[string]kind) {
	lostName := slices.Contains(slices.Collect(maps.Values(kinds)), anonymous)
	for name, k := range kinds {
		switch {
		case k == ready:
			truth[name] = roster.Ready
		case k == notReady:
			truth[name] = roster.NotReady
		case k == noWorker:
			delete(truth, name)
		case k == absent && !lostName:
			delete(truth, name)
		}
	}
}

func (f *feed) hearAndCompare(t *rapid.T, truth map[string]roster.State, exact bool) {
	news := f.source.Take()
	for _, c := range news.Changed {
		if slices.Contains(news.Removed, c.Name) {
			t.Fatalf("%q is changed and removed", c.Name)
		}
	}
	f.roster.Hear(time.Now(), news)
	got := map[string]roster.State{}
	for _, n := range f.roster.Nodes() {
		got[n.Name] = n.State
	}
	if !exact { // a node that went and came back spoiled between two Takes never went, for who takes
		maps.DeleteFunc(got, func(name string, _ roster.State) bool { _, ok := truth[name]; return !ok })
	}
	if d := cmp.Diff(truth, got); d != "" {
		t.Fatalf("the roster has other nodes (-truth +roster):\n%s", d)
	}
}

func TestTellsOnlyWhatDiffers(t *testing.T) {
	state := newTold("the test")
	for _, step := range []struct {
		reading          []string
		changed, removed []string
		flaw             bool
	}{
		{[]string{a, b}, []string{"a", "b"}, nil, false},
		{[]string{b, a}, nil, nil, false},
		{[]string{strings.Replace(a, "{", `{"seen":"today",`, 1), b}, nil, nil, false},
		{[]string{a, entry("b", "10.0.0.12", false, true)}, []string{"b"}, nil, false},
		{[]string{entry("a", "10.0.0.13", true, true), entry("b", "10.0.0.12", false, true)}, []string{"a"}, nil, false},
		{[]string{a, `{"name":"b"}`}, []string{"a", "b"}, nil, true},
		{[]string{a, `{"name":"b"}`}, nil, nil, true},
		{[]string{`{}`}, nil, nil, true},
		{[]string{a}, nil, []string{"b"}, false},
		{nil, nil, []string{"a"}, false},
		{nil, nil, nil, false},
	} {
		records, err := parse([]byte(array(step.reading...)))
		if err != nil {
			t.Fatal(err)
		}
		state.tell(records)
		changed, removed := state.take()
		var names []string
		for _, c := range changed {
			names = append(names, c.Name)
		}
		if d := cmp.Diff(step.changed, names) + cmp.Diff(step.removed, removed); d != "" || (state.flaw != "") != step.flaw {
			t.Errorf("%v: flaw %q\n%s", step.reading, state.flaw, d)
		}
	}
}

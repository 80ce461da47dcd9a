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

// recordKind is what a drawn reading makes of one node's record.
type recordKind string

const (
	kindAbsent    recordKind = "absent"
	kindReady     recordKind = "ready"
	kindNotReady  recordKind = "not ready"
	kindNotWorker recordKind = "no worker"
	kindInvalid   recordKind = "spoiled"
	kindNameless  recordKind = "anonymous"
	kindDuplicate recordKind = "duplicated"
)

// recordsOfKind is the record of the n-th node as that kind has it. Each node has an address of its own,
// so that nothing but the reading decides what is told.
func recordsOfKind(n int, k recordKind) []string {
	name, ip := fmt.Sprintf("n%d", n), fmt.Sprintf("10.0.0.%d", 10+n)
	switch k {
	case kindReady, kindNotReady:
		return []string{recordJSON(name, ip, k == kindReady, true)}
	case kindNotWorker:
		return []string{recordJSON(name, ip, true, false)}
	case kindInvalid:
		return []string{fmt.Sprintf(`{"name":%q,"private_ip":%q,"ready":"yes"}`, name, ip)}
	case kindNameless:
		return []string{fmt.Sprintf(`{"name":null,"private_ip":%q,"ready":true,"worker":true}`, ip)}
	case kindDuplicate:
		return []string{recordJSON(name, ip, true, true), recordJSON(name, ip, true, true)}
	}
	return nil
}

func TestOnlyValidReadsRemoveNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text string
		var fail error
		f := newTestFeed(&fakeReader{read: func(context.Context) ([]byte, error) { return []byte(text), fail }})
		truth := map[string]roster.State{}       // what the sound readings so far leave
		prompt := rapid.Bool().Draw(t, "prompt") // what is told is taken at once
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			var all []string
			kinds := map[string]recordKind{}
			for n := range 4 {
				k := rapid.SampledFrom([]recordKind{kindAbsent, kindReady, kindReady, kindReady, kindNotReady, kindNotWorker, kindInvalid, kindNameless, kindDuplicate}).Draw(t, "record")
				if k == kindDuplicate && rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
					k = kindReady
				}
				kinds[fmt.Sprintf("n%d", n)] = k
				all = append(all, recordsOfKind(n, k)...)
			}
			text, fail = arrayJSON(all...), nil
			sound := !slices.Contains(slices.Collect(maps.Values(kinds)), kindDuplicate)
			switch rapid.IntRange(0, 5).Draw(t, "mishap") {
			case 0:
				text, sound = text[:rapid.IntRange(0, len(strings.TrimSpace(text))-1).Draw(t, "cut")], false
			case 1:
				fail, sound = errors.New("boom"), false
			}
			if sound {
				applyToModel(truth, kinds)
			}
			_, err := f.source.refresh(t.Context(), rapid.SampledFrom([]cause{causeVerify, causeChange}).Draw(t, "cause"))
			if (err == nil) != sound {
				t.Fatalf("sound is %t, and the error is %v:\n%s", sound, err, text)
			}
			if prompt || rapid.Bool().Draw(t, "take") {
				f.ingestAndCompare(t, truth, prompt)
			}
		}
		f.ingestAndCompare(t, truth, prompt)
	})
}

// applyToModel is what a sound reading says, in the plainest words.
func applyToModel(truth map[string]roster.State, kinds map[string]recordKind) {
	lostName := slices.Contains(slices.Collect(maps.Values(kinds)), kindNameless)
	for name, k := range kinds {
		switch {
		case k == kindReady:
			truth[name] = roster.Ready
		case k == kindNotReady:
			truth[name] = roster.NotReady
		case k == kindNotWorker:
			delete(truth, name)
		case k == kindAbsent && !lostName:
			delete(truth, name)
		}
	}
}

func (f *testFeed) ingestAndCompare(t *rapid.T, truth map[string]roster.State, exact bool) {
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

func TestReportsOnlyDifferences(t *testing.T) {
	state := newChangeTracker("the test")
	for _, step := range []struct {
		reading          []string
		changed, removed []string
		flaw             bool
	}{
		{[]string{recordA, recordB}, []string{"a", "b"}, nil, false},
		{[]string{recordB, recordA}, nil, nil, false},
		{[]string{strings.Replace(recordA, "{", `{"seen":"today",`, 1), recordB}, nil, nil, false},
		{[]string{recordA, recordJSON("b", "10.0.0.12", false, true)}, []string{"b"}, nil, false},
		{[]string{recordJSON("a", "10.0.0.13", true, true), recordJSON("b", "10.0.0.12", false, true)}, []string{"a"}, nil, false},
		{[]string{recordA, `{"name":"b"}`}, []string{"a", "b"}, nil, true},
		{[]string{recordA, `{"name":"b"}`}, nil, nil, true},
		{[]string{`{}`}, nil, nil, true},
		{[]string{recordA}, nil, []string{"b"}, false},
		{nil, nil, []string{"a"}, false},
		{nil, nil, nil, false},
	} {
		records, err := parseRecords([]byte(arrayJSON(step.reading...)))
		if err != nil {
			t.Fatal(err)
		}
		state.apply(records)
		changed, removed := state.takeChanges()
		var names []string
		for _, c := range changed {
			names = append(names, c.Name)
		}
		if d := cmp.Diff(step.changed, names) + cmp.Diff(step.removed, removed); d != "" || (state.partialError != "") != step.flaw {
			t.Errorf("%v: flaw %q\n%s", step.reading, state.partialError, d)
		}
	}
}

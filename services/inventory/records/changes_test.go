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

// recordKind is the form of one node's record in a generated read.
type recordKind string

const (
	kindAbsent    recordKind = "absent"
	kindReady     recordKind = "ready"
	kindNotReady  recordKind = "not ready"
	kindNotWorker recordKind = "not a worker"
	kindInvalid   recordKind = "invalid"
	kindNameless  recordKind = "nameless"
	kindDuplicate recordKind = "duplicate"
)

// recordsOfKind returns the records of the n-th node. Each node has its own address, so that only
// the read determines what is reported.
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
		var readErr error
		f := newTestPipeline(&fakeReader{read: func(context.Context) ([]byte, error) { return []byte(text), readErr }})
		model := map[string]roster.NodeState{}   // the expected nodes after the valid reads so far
		prompt := rapid.Bool().Draw(t, "prompt") // take every update immediately
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			var all []string
			kinds := map[string]recordKind{}
			for n := range 4 {
				k := rapid.SampledFrom([]recordKind{kindAbsent, kindReady, kindReady, kindReady, kindNotReady, kindNotWorker, kindInvalid, kindNameless, kindDuplicate}).
					Draw(t, "record")
				if k == kindDuplicate && rapid.IntRange(0, 3).Draw(t, "ready instead") > 0 {
					k = kindReady
				}
				kinds[fmt.Sprintf("n%d", n)] = k
				all = append(all, recordsOfKind(n, k)...)
			}
			text, readErr = arrayJSON(all...), nil
			valid := !slices.Contains(slices.Collect(maps.Values(kinds)), kindDuplicate)
			switch rapid.IntRange(0, 5).Draw(t, "fault") {
			case 0:
				text, valid = text[:rapid.IntRange(0, len(strings.TrimSpace(text))-1).Draw(t, "truncated to")], false
			case 1:
				readErr, valid = errors.New("boom"), false
			}
			if valid {
				applyToModel(model, kinds)
			}
			_, err := f.source.refresh(t.Context(), rapid.SampledFrom([]cause{causeVerify, causeChange}).Draw(t, "cause"))
			if (err == nil) != valid {
				t.Fatalf("valid is %t, and the error is %v:\n%s", valid, err, text)
			}
			if prompt || rapid.Bool().Draw(t, "take") {
				f.ingestAndCompare(t, model, prompt)
			}
		}
		f.ingestAndCompare(t, model, prompt)
	})
}

// applyToModel applies a valid read in the simplest possible way.
func applyToModel(model map[string]roster.NodeState, kinds map[string]recordKind) {
	hasNameless := slices.Contains(slices.Collect(maps.Values(kinds)), kindNameless)
	for name, k := range kinds {
		switch {
		case k == kindReady:
			model[name] = roster.Ready
		case k == kindNotReady:
			model[name] = roster.NotReady
		case k == kindNotWorker:
			delete(model, name)
		case k == kindAbsent && !hasNameless:
			delete(model, name)
		}
	}
}

func (f *testPipeline) ingestAndCompare(t *rapid.T, model map[string]roster.NodeState, exact bool) {
	update := f.source.Take()
	for _, c := range update.Changed {
		if slices.Contains(update.Removed, c.Name) {
			t.Fatalf("%q is changed and removed", c.Name)
		}
	}
	f.roster.Apply(time.Now(), roster.Input{Source: update})
	got := map[string]roster.NodeState{}
	for _, m := range f.roster.Members(roster.Filter{}) {
		if m.IsPublished() {
			got[m.Name] = m.State
		}
	}
	if !exact { // the roster sees no removal of a node that was removed and came back invalid between two Takes
		maps.DeleteFunc(got, func(name string, _ roster.NodeState) bool { _, ok := model[name]; return !ok })
	}
	if d := cmp.Diff(model, got); d != "" {
		t.Fatalf("nodes differ (-model +roster):\n%s", d)
	}
}

func TestReportsOnlyDifferences(t *testing.T) {
	var text string
	f := newTestPipeline(&fakeReader{read: func(context.Context) ([]byte, error) { return []byte(text), nil }})
	for _, step := range []struct {
		records          []string
		changed, removed []string
		isPartial        bool
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
		text = arrayJSON(step.records...)
		if _, err := f.source.refresh(t.Context(), causeChange); err != nil {
			t.Fatal(err)
		}
		update := f.source.Take()
		var names []string
		for _, c := range update.Changed {
			names = append(names, c.Name)
		}
		if d := cmp.Diff(
			step.changed,
			names,
		) + cmp.Diff(
			step.removed,
			update.Removed,
		); d != "" ||
			(update.PartialError != "") != step.isPartial {
			t.Errorf("%v: partial error %q\n%s", step.records, update.PartialError, d)
		}
	}
}

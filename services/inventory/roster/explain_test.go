package roster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestAnExplanationFitsWhatWasDecided(t *testing.T) {
	order := []string{
		source.StageSource,
		source.StageEligibility,
		source.StageState,
		source.StageMatch,
		source.StageAddress,
		source.StageClaim,
	}
	for _, resolver := range []resolve.Method{resolve.ByCloud, resolve.ByNodeAddress, resolve.ByRecord} {
		rapid.Check(t, func(t *rapid.T) {
			cfg := Config{Method: resolver, CIDRs: cidr}
			r, twin, now := New(cfg), New(cfg), t0
			for range rapid.IntRange(1, 25).Draw(t, "steps") {
				now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "pass")) * time.Second)
				s := events().Draw(t, "step")
				s(r, now)
				s(twin, now)
			}
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				e, known := r.Explain(name)
				again, _ := twin.Explain(name)
				if d := cmp.Diff(e, again); d != "" {
					t.Fatalf("same inputs, other words:\n%s", d)
				}
				m := r.members[name]
				if known != (m != nil) || e.Conclusion == "" || len(e.Steps) == 0 {
					t.Fatalf("%s: known %t, member %v, %q", name, known, m, e.text())
				}
				if !slices.IsSortedFunc(
					e.Steps,
					func(a, b source.Step) int { return slices.Index(order, a.Stage) - slices.Index(order, b.Stage) },
				) {
					t.Fatalf("stages are out of order:\n%s", e.text())
				}
				if known {
					fits(t, r, m, e)
				}
			}
		})
	}
}

// fits compares what is said with what was decided.
func fits(t *rapid.T, r *Roster, m *member, e Explanation) {
	passed := func(stage string, a netip.Addr) bool {
		return slices.ContainsFunc(e.Steps, func(s source.Step) bool {
			return s.Stage == stage && strings.Contains(s.Question, " "+a.String()) && s.Result == source.Passed
		})
	}
	failed := map[string]bool{}
	for _, s := range e.Steps {
		failed[s.Stage] = failed[s.Stage] || s.Result == source.Failed
		if s.Detail == "" || s.Question == "" {
			t.Fatalf("a step says nothing: %+v", s)
		}
	}
	if m.Excluded == 0 {
		assigned, _, _ := r.assigner.Holding(m.Name)
		for _, a := range assigned.List() {
			if !passed(source.StageClaim, a) {
				t.Fatalf("%s is borne, and no claim says so:\n%s", a, e.text())
			}
		}
		for _, a := range m.resolved.Addresses.List() {
			if !passed(source.StageAddress, a) {
				t.Fatalf("%s is wanted, and no step chose it:\n%s", a, e.text())
			}
		}
	}
	if e.Omitted != m.omission.Reason {
		t.Fatalf("explained as left out for %q, and is for %q", e.Omitted, m.omission.Reason)
	}
	stage := ""
	switch m.omission.Reason {
	case 0:
	case source.ControlPlane, source.ExcludedByLabel, source.NotSelected:
		stage = source.StageEligibility
	case source.NotFoundInIONOS, source.AmbiguousServer, source.NotResolvedYet, source.InvalidRecord:
		stage = source.StageMatch
	case source.NoAddressOnLAN, source.OutsideSubnet:
		stage = source.StageAddress
	case source.SharedAddress:
		if !failed[source.StageClaim] {
			stage = source.StageAddress
		}
	}
	if stage != "" && !failed[stage] {
		t.Fatalf("left out for %s, and no step of %s failed:\n%s", m.omission.Reason, stage, e.text())
	}
	if m.omission.Reason != 0 && !strings.Contains(e.Conclusion, m.omission.Advice) {
		t.Fatalf("the verdict %q lacks the advice %q", e.Conclusion, m.omission.Advice)
	}
}

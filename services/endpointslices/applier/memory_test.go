package applier

import (
	"testing"
)

// Found by the search of small worlds (lab/search): a name that was deleted, taken again and deleted again, all of it before the
// cache saw any.
func TestCacheShowsNoDeletedSliceOfTheSameName(t *testing.T) {
	w := newWriter(t)
	both, one := desired("10.0.0.1", "10.0.0.2"), desired("10.0.0.1")
	both.MaxPerSlice, one.MaxPerSlice = 1, 1
	w.must(t, both)
	old, version := w.api.cache()
	for _, d := range []struct {
		name string
		want string
	}{{"deleted", "10.0.0.1"}, {"created again", "10.0.0.1 10.0.0.2"}, {"deleted again", "10.0.0.1"}} {
		next := one
		if d.name == "created again" {
			next = both
		}
		current := w.Observed(old, version)
		if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: next, Current: current}); err != nil {
			t.Fatal(err)
		}
		if got := listed(w.Observed(old, version)); got != d.want {
			t.Errorf("%s: %q", d.name, got)
		}
	}
}

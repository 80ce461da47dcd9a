package verdict

import (
	"fmt"
	"testing"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

func sizes(b *testing.B, run func(b *testing.B, w *world)) {
	for _, n := range []int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			w := newWorld(b, 0)
			s := w.source("blue")
			for i := range n {
				s.Members = append(s.Members, Member{Address: addr(i), Name: fmt.Sprint("node-", i), State: Ready, Since: start})
				w.probe(i, probe.Passing)
				w.hold(i, "blue", ready)
			}
			w.shrinks()
			w.mem, w.d = Decide(w.mem, w.in, w.now)
			run(b, w)
		})
	}
}

// Nothing has changed.
func BenchmarkDecideAtRest(b *testing.B) {
	sizes(b, func(b *testing.B, w *world) {
		b.ReportAllocs()
		for b.Loop() {
			w.mem, w.d = Decide(w.mem, w.in, w.now)
		}
	})
}

// The probe of one endpoint fails, then it passes, and so on; what was decided has been written.
func BenchmarkDecideChange(b *testing.B) {
	sizes(b, func(b *testing.B, w *world) {
		one := len(w.in.Current) / 2
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			want := Unready
			w.probe(one, probe.Failing)
			if i%2 == 1 {
				want = Serve
				w.probe(one, probe.Passing)
			}
			w.mem, w.d = Decide(w.mem, w.in, w.now)
			if got := w.d.Endpoints[one]; got.Verdict != want {
				b.Fatalf("it is %v: %s", got.Verdict, got.Reason)
			}
			w.in.Current[one].Conditions = w.d.Endpoints[one].Conditions
		}
	})
}

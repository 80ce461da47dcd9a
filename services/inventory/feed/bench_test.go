package feed

import (
	"fmt"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// BenchmarkChange changes one node and updates many readers that were up to date, up to the messages that
// they are sent.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint("readers=", n), func(b *testing.B) {
			set := NewSet("", "epoch")
			apply(set, nodeChanges(5000))
			set.Publish(publishedStatus(1), nil)
			readers := make([]*Reader, n)
			step := func(r *Reader) {
				_, messages := r.Next()
				for range messages {
				}
				r.Sent()
			}
			for i := range readers {
				readers[i] = set.NewReader(nil, nil, 0)
				step(readers[i])
			}
			both := [2][]roster.Change{
				{{Name: "worker-00007", Node: newNode("worker-00007", 7, roster.Ready)}},
				{{Name: "worker-00007", Node: newNode("worker-00007", 7, roster.NotReady)}},
			}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				apply(set, both[i%2])
				for _, r := range readers {
					step(r)
				}
			}
		})
	}
}

package endpoints

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

// heapInUse returns the memory of objects and stacks in use, after a collection.
func heapInUse() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// The memory of a stream does not depend on the number of endpoints. Both ends are in this process, so
// the writer's part is smaller; the connection is extra. docs/design/limits.md has the limit.
func TestMemoryPerClient(t *testing.T) {
	const askers = 30
	runTestServer(t, func(r *testServer) {
		for i := range 200 {
			r.store.Put(readyTarget(fmt.Sprint("service-", i), 5))
		}
		r.store.MarkSynced()
		come := func(i int) {
			s, err := r.client.WatchEndpoints(
				testkit.WithClientName(r.t.Context(), fmt.Sprint("asker-", i)),
				&writerv1.WatchEndpointsRequest{},
			)
			for synced := false; !synced; {
				if err != nil {
					t.Fatal(err)
				}
				var m *writerv1.WatchEndpointsResponse
				m, err = s.Recv()
				synced = m.GetSynced()
			}
		}
		come(0)
		before := heapInUse()
		for i := range askers {
			come(1 + i)
		}
		each := (heapInUse() - before) / askers / 1024
		t.Logf("a stream of 1,000 endpoints costs %.0f KB at both ends together", each)
		if each > 128 {
			t.Errorf("it costs %.0f KB, want at most 128", each)
		}
	})
}

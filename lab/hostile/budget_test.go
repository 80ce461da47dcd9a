package hostile

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Each reset stream is counted as a call, begun or refused; one takes 28 bytes and more. So what
// the inventory has counted tells how many bytes it has read.
func TestRapidResetsAreReadAtTheBudgetsRate(t *testing.T) {
	i := startInventory(t, 10)
	const (
		rate, burst = 128 << 10, 512 << 10 // docs/design/limits.md
		stream      = 28                   // bytes: two frame headers, an error code, six header fields
	)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	var attack sync.WaitGroup
	for n := range 16 {
		attack.Go(func() { rapidResets(ctx, i, rand.New(rand.NewPCG(uint64(n), 1))) })
	}
	for time.Since(began) < 2*attackLasts {
		i.metric("slicefeed_inventory_subscribers") // it is answered meanwhile
	}
	handled := i.metric("slicefeed_inventory_grpc_server_started_total")
	most := (burst + rate*time.Since(began).Seconds()) / stream
	cancel()
	attack.Wait()
	t.Logf("%.0f streams were begun, of at most %.0f", handled, most)
	if handled == 0 || handled > most {
		t.Errorf("%.0f streams were begun, and the budget of bytes has room for %.0f", handled, most)
	}
}

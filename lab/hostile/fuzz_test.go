package hostile

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzInventory has liars of any seed lie for three minutes. `go test -fuzz FuzzInventory` goes
// beyond the seeds that run as tests, which once found something, in the product or in these tests.
func FuzzInventory(f *testing.F) {
	for _, seed := range []uint64{1, 73, 148} {
		f.Add(seed, uint64(0))
	}
	f.Fuzz(func(t *testing.T, seed1, seed2 uint64) {
		synctest.Test(t, func(t *testing.T) {
			play(t, newLiar(seed1, seed2), 3*time.Minute, fmt.Sprintf("seeds %d and %d", seed1, seed2))
		})
	})
}

package probes

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/lab/netns"
)

func TestMain(m *testing.M) { netns.Main(checked{m}) }

type checked struct{ m *testing.M }

// Run fails if a prober left anything behind.
func (c checked) Run() int {
	code := c.m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// skipUnlessLoad skips what compares times on real sockets, for which other tests must leave the cores alone.
func skipUnlessLoad(t *testing.T) {
	t.Helper()
	if os.Getenv("SLICEFEED_LOAD") != "1" {
		t.Skip("it compares times, which takes both cores: make load, or SLICEFEED_LOAD=1 (make verify does)")
	}
}

// newBench starts a prober that ends with the test.
func newBench(t *testing.T) *Bench {
	b := Start()
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *Bench) add(t *testing.T, how Way, address netip.Addr) *Subject {
	t.Helper()
	s, err := b.Add(how, address)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *Bench) probes(t *testing.T, result string) float64 {
	t.Helper()
	n, err := b.Probes(result)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

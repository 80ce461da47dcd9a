package hostile

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// lasts is how long each of them lies.
const lasts = 12 * time.Minute

// lives is how many hostile inventories there are, each with a writer of its own.
func lives() uint64 {
	if os.Getenv("SLICEFEED_LONG") != "" {
		return 5000
	}
	return 60
}

func TestHostileInventoryIsHeldByAllowlistAndGuards(t *testing.T) {
	first, n := uint64(0), lives()
	if text := os.Getenv("SLICEFEED_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SLICEFEED_SEED=%q: want a number", text)
		}
		first, n = seed, 1
	}
	var mu sync.Mutex
	kinds, writes, most, lines := map[string]int{}, 0, 0, int64(0)
	t.Run("seed", func(t *testing.T) {
		for seed := first; seed < first+n; seed++ {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					life := play(t, newLiar(seed, 0), lasts, fmt.Sprintf("SLICEFEED_SEED=%d replays this", seed))
					if life.writes == 0 { // the seeds of FuzzInventory may report no address that is allowed
						t.Error("nothing was written")
					}
					mu.Lock()
					defer mu.Unlock()
					for kind, n := range life.breaches {
						kinds[kind] += n
					}
					writes, most, lines = writes+life.writes, max(most, life.writes), max(lines, life.lines)
				})
			})
		}
	})
	t.Logf("%d lives of %s: %d writes, at most %d in a life, at most %d lines of the log; breaches: %v", n, lasts, writes, most, lines,
		kinds)
	if n < 60 {
		return
	}
	for _, a := range acts {
		if a.bad != "" && a.bad != "-" && kinds[a.bad] == 0 {
			t.Errorf("no breach of kind %q was counted in any life", a.bad)
		}
	}
}

// life is what became of a writer.
type life struct {
	breaches map[string]int
	writes   int
	lines    int64
}

// play has a liar lie to a writer for a while, and judges each write.
func play(t *testing.T, l *liar, long time.Duration, replay string) (out life) {
	t.Helper()
	// Half of them can have it believed that nobody is left; the others never lie for long enough.
	threshold := 3
	if l.rand.IntN(2) == 0 {
		threshold = math.MaxInt32
	}
	var wrong []string
	work(t, threshold, func(s *grpc.Server) { inventoryv1.RegisterInventoryServiceServer(s, l) }, func(w *writer) {
		// While the writer works, what it wrote is held against what it had been told by then.
		judged, ready := 0, map[string]bool{}
		budget := &budget{}
		for end := time.Now().Add(long); time.Now().Before(end); {
			time.Sleep(time.Second)
			synctest.Wait()
			l.mu.Lock()
			believed := threshold == 3 && time.Since(l.believed) < 10*time.Second
			l.mu.Unlock()
			all := w.sights()
			for _, one := range all[judged:] {
				wrong = append(wrong, outside(one)...)
				if threshold != 3 { // what is believed in an empty source is not the shrink guard's
					wrong = append(wrong, budget.spend(one, ready)...)
				}
				if len(ready) > 0 && len(one.ready) == 0 && !believed {
					wrong = append(wrong, fmt.Sprintf("%s: none is ready any more, though nobody had it confirmed", clock(l, one.at)))
				}
				ready = one.ready
			}
			judged = len(all)
		}
		out = life{w.breaches(t), judged, w.lines.Load()}
		sum := 0
		for _, n := range out.breaches {
			sum += n
		}
		if logged := int(w.errors.Load()); logged != sum {
			wrong = append(wrong, fmt.Sprintf("%d breaches were counted, and %d logged", sum, logged))
		}
		if out.lines > int64(4*long/time.Second) {
			wrong = append(wrong, fmt.Sprintf("%d lines of the log in %s", out.lines, long))
		}
	})
	if len(wrong) > 0 {
		t.Errorf("%s\n%s\n%s", replay, strings.Join(wrong, "\n"), strings.Join(l.story, "\n"))
	}
	return out
}

func clock(l *liar, at time.Time) string { return fmt.Sprintf("%.1f s", at.Sub(l.began).Seconds()) }

// outside are the addresses that must never be written.
func outside(one sight) (wrong []string) {
	for _, text := range one.all {
		if !allowed(text) {
			wrong = append(wrong, fmt.Sprintf("%s is outside of the fence and was written", text))
		}
	}
	return wrong
}

// allowed reports whether an address may be written: inside the fence, and not the Service's own.
func allowed(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && fence.Contains(a) && a != netip.MustParseAddr("10.0.1.250")
}

// budget is the shrink guard's arithmetic, done anew: how many left ready in the present window.
type budget struct {
	opened time.Time
	most   int
	left   int
}

func (b *budget) spend(one sight, before map[string]bool) (wrong []string) {
	left := 0
	for a := range before {
		if !one.ready[a] {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	if b.opened.IsZero() || one.at.Sub(b.opened) >= shrinkWindow {
		*b = budget{opened: one.at, most: max(1, len(before)/2)}
	}
	if b.left += left; b.left > b.most {
		wrong = append(wrong,
			fmt.Sprintf("%d left ready within %s of the window's begin, and at most %d may", b.left, one.at.Sub(b.opened), b.most))
	}
	return wrong
}

func TestEachProtocolViolationIsCountedByKind(t *testing.T) {
	counted := 0
	defer func() {
		if counted < 10 {
			t.Errorf("only %d acts break the contract", counted)
		}
	}()
	for _, a := range acts {
		if a.bad == "" || a.bad == "-" {
			continue
		}
		counted++
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLiar(1, 1)
				said := make(chan struct{}, 1)
				work(t, 3, func(s *grpc.Server) {
					inventoryv1.RegisterInventoryServiceServer(s, &once{liar: l, act: a, said: said})
				}, func(w *writer) {
					<-said
					time.Sleep(30 * time.Second) // the next stream has told the truth by then
					synctest.Wait()
					if got := w.breaches(t); len(got) != 1 || got[a.bad] != 1 {
						t.Errorf("counted %v, want one of kind %q", got, a.bad)
					}
					if s := w.sub.Use("web/shop", ""); !s.SyncedInStream || len(s.Members) != len(l.set) {
						t.Errorf("afterwards: synced %t, %d nodes of %d", s.SyncedInStream, len(s.Members), len(l.set))
					}
					if got := w.sights(); len(got) != 1 || len(got[0].all) != len(l.set) {
						t.Errorf("%d writes, want the first alone", len(got))
					}
				})
			})
		})
	}
}

// once does one thing in its first stream, and is honest ever after.
type once struct {
	*liar

	act  act
	said chan struct{}
	done bool
}

// WatchNodes tells the whole set, and then what there is to say.
func (o *once) WatchNodes(_ *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[message]) error {
	o.mu.Lock()
	next := []any{}
	if o.done {
		next = append(next, o.whole())
	} else {
		o.done = true
		o.number, o.revision = 2, 2
		next = append(append(next, o.whole()), o.act.next(o.liar)...)
		defer func() { o.said <- struct{}{} }()
	}
	o.mu.Unlock()
	for _, m := range next {
		if err := to.SendMsg(m); err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Second):
		case <-to.Context().Done():
			return to.Context().Err()
		}
	}
	for beat := time.NewTicker(5 * time.Second); ; {
		select {
		case <-beat.C:
			if err := to.SendMsg(o.whole()); err != nil {
				return err
			}
		case <-to.Context().Done():
			beat.Stop()
			return to.Context().Err()
		}
	}
}

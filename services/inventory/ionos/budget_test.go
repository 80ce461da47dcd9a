package ionos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

// spender is a client that only spends its budget.
type spender struct {
	*Client

	out *bytes.Buffer

	mu     sync.Mutex
	sentAt []time.Time
}

func newSpender(tb testing.TB, perMinute int) *spender {
	out := new(bytes.Buffer)
	cfg := Config{Budget: perMinute, Log: slog.New(slog.NewTextHandler(out, nil))}
	return &spender{Client: newOfflineClient(tb, cfg, nil), out: out}
}

func (s *spender) send(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sentAt = append(s.sentAt, time.Now())
	return nil
}

// maxPerMinute is the maximum number of requests sent in any minute.
func (s *spender) maxPerMinute() int {
	most := 0
	for i, from := range s.sentAt {
		n := 0
		for _, at := range s.sentAt[i:] {
			if at.Sub(from) < time.Minute {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestBudgetLimitsRequestsPerMinute(t *testing.T) {
	for _, perMinute := range []int{2, 3, 7, 120} {
		t.Run(fmt.Sprintf("budget of %d", perMinute), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				pauses := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 90), 1, 2*perMinute), 1, 3).Draw(rt, "pauses in seconds")
				s := newSpender(t, perMinute)
				synctest.Test(t, func(t *testing.T) {
					var clients sync.WaitGroup
					for _, list := range pauses {
						clients.Go(func() {
							for _, pause := range list {
								time.Sleep(time.Duration(pause) * time.Second)
								if err := s.send(t.Context()); err != nil {
									t.Errorf("the budget failed a request: %v", err)
								}
							}
						})
					}
					clients.Wait()
				})
				if n := s.maxPerMinute(); n > perMinute {
					rt.Fatalf("%d requests in a minute: %v", n, s.sentAt)
				}
			})
		})
	}
}

func TestConfirmationsFitIntoDefaultBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpender(t, testBudget)
		start := time.Now()
		listing := func() {
			for range 7 { // 5,000 servers and a LAN
				if err := s.send(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 10 {
			listing()
			if took := time.Since(start); took != time.Duration(i)*5*time.Second {
				t.Fatalf("listing %d waited: at %s", i, took)
			}
			time.Sleep(5 * time.Second)
		}
		for range 100 {
			listing()
			time.Sleep(5 * time.Second)
		}
		if n := s.maxPerMinute(); n > testBudget {
			t.Errorf("%d in a minute", n)
		}
		if took, limit := time.Since(start), 110*7*time.Second; took > limit {
			t.Errorf("took %s, want at most %s", took, limit)
		}
	})
}

func TestBudgetWaitIsCountedAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpender(t, 4) // two immediately, then one every 30 s
		episode := func(n int) {
			for range n {
				if err := s.send(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		logged := func() int { return strings.Count(s.out.String(), "budget exhausted") }
		if episode(2); logged() != 0 || testutil.ToFloat64(s.metrics.budgetWait) != 0 {
			t.Errorf("logged %d times without a wait", logged())
		}
		if episode(5); logged() != 1 || math.Abs(testutil.ToFloat64(s.metrics.budgetWait)-150) > 0.001 {
			t.Errorf("logged %d times, waited %v s, want once and 150 s", logged(), testutil.ToFloat64(s.metrics.budgetWait))
		}
		time.Sleep(10 * time.Minute)
		if episode(4); logged() != 2 || !strings.Contains(s.out.String(), "budget=4") {
			t.Errorf("logged %d times in two episodes: %s", logged(), s.out)
		}
	})
}

func TestDeadlineBeforeBudgetFailsAtOnceAndTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpender(t, 2) // one immediately, then one per minute
		if err := s.send(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.send(ctx); err == nil || time.Since(start) != 0 {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		if err := s.send(t.Context()); err != nil || time.Since(start) > time.Minute+time.Millisecond {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
	})
}

// The timeout of a request is much shorter than its wait for the budget, after which it starts.
func TestBudgetDelaysButNeverFailsListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pager{servers: serverNumbers(10), before: func(n int, p *pager) {
			if n == 2 {
				p.servers = append([]int{99}, p.servers...) // inconsistent: read twice
			}
		}}
		c := newOfflineClient(t, Config{Budget: 2}, p).withPages(4)
		c.timeout = time.Second
		start := time.Now()
		got, err := c.List(t.Context())
		if err != nil || len(got.Servers) != 11 {
			t.Fatalf("got %v, %v", listedNumbers(got), err)
		}
		if want := time.Duration(p.requests) * time.Minute; (time.Since(start) - want).Abs() > time.Second {
			t.Errorf("%d requests took %s, want %s", p.requests, time.Since(start), want)
		}
	})
}

func TestCancellationEndsBudgetWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newOfflineClient(t, Config{Budget: 2}, serveFixed(serversJSON(""), plainLANJSON))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		if got, err := c.List(ctx); !errors.Is(err, context.Canceled) || got.Servers != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

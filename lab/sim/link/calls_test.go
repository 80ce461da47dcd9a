package link

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// conversation is what the subscriber has with an inventory from one pause to the next: a
// stream, or several of which each took over from the one before.
type conversation struct {
	begin, end time.Time
	synced     time.Time // the first synced message came; zero: none
}

// calls are the conversations, seen from where the subscriber meets gRPC, and the random numbers
// that it drew for the pauses between them.
type calls struct {
	mu       sync.Mutex
	live     int
	all      []conversation
	random   *rand.Rand
	drawn    []float64
	breaches []bool // of each conversation that ended: with one
}

// draw is the subscriber's chance.
func (c *calls) draw() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.random.Float64()
	c.drawn = append(c.drawn, n)
	return n
}

// under is how many streams there are at this moment.
func (c *calls) under() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

func (c *calls) intercept(
	ctx context.Context,
	desc *grpc.StreamDesc,
	cc *grpc.ClientConn,
	method string,
	streamer grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c.mu.Lock()
	if c.live == 0 {
		c.all = append(c.all, conversation{begin: time.Now()})
	}
	c.live++
	c.mu.Unlock()
	over := sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.live--
		c.all[len(c.all)-1].end = time.Now()
	})
	context.AfterFunc(ctx, over)
	cs, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		over()
		return nil, err
	}
	return &heard{cs, c, over}, nil
}

// heard is a stream whose messages are looked at.
type heard struct {
	grpc.ClientStream

	calls *calls
	over  func()
}

func (h *heard) RecvMsg(m any) error {
	if err := h.ClientStream.RecvMsg(m); err != nil {
		h.over()
		return err
	}
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	if last := &h.calls.all[len(h.calls.all)-1]; m.(*message).GetSynced() && last.synced.IsZero() {
		last.synced = time.Now()
	}
	return nil
}

// journal is what the subscriber logs to: it says which conversations ended with a breach.
type journal struct {
	*calls

	end bool // the line is about the end of one
}

// Enabled is always true.
func (j journal) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs knows the end of a conversation by what is said of every end.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journal{j.calls, j.end || slices.ContainsFunc(attrs, func(a slog.Attr) bool { return a.Key == "retry_in" })}
}

// WithGroup is of no matter.
func (j journal) WithGroup(string) slog.Handler { return j }

// Handle notes the end of a conversation.
func (j journal) Handle(_ context.Context, r slog.Record) error {
	if !j.end {
		return nil
	}
	breach := false
	r.Attrs(func(a slog.Attr) bool {
		breach = breach || a.Key == "kind"
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breaches = append(j.breaches, breach)
	return nil
}

// violationDelay is the longest delay after the protocol violations that there were.
func (c *calls) violationDelay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, violation := range c.breaches {
		if violation {
			n++
		}
	}
	return min(time.Second<<min(n, 16), 5*time.Minute)
}

// judge holds the pauses between the conversations against rule R14, whose arithmetic is done
// anew here. It returns what was wrong.
func (c *calls) judge() (wrong []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unstable, broken := 0, 0
	doubled := func(times int, most float64) float64 { return min(float64(int(1)<<min(times, 20)), most) }
	for i := range len(c.all) - 1 {
		this, next := c.all[i], c.all[i+1]
		stable := !this.synced.IsZero() && this.end.Sub(this.synced) >= 30*time.Second
		if stable {
			unstable = 0
		}
		most := doubled(unstable, 4)
		unstable++
		if c.breaches[i] {
			most = max(most, doubled(broken, 300))
			broken++
		} else if stable {
			broken = 0
		}
		want := 500*time.Millisecond + time.Duration(c.drawn[i]*(most-0.5)*float64(time.Second))
		if got := next.begin.Sub(this.end); (got - want).Abs() > time.Millisecond {
			wrong = append(
				wrong,
				fmt.Sprintf(
					"R14: the pause %d was %s, and should be %s (at most %.0f s, of which chance took %.2f; breach: %t, stable: %t)",
					i+1,
					got,
					want,
					most,
					c.drawn[i],
					c.breaches[i],
					stable,
				),
			)
		}
	}
	return wrong
}

package stream

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// The rules are tested where they are promised, at the two services that are made of this package.

func TestAdmitsNobodyOnceItHasStopped(t *testing.T) {
	s := New(Config{
		Service: "a.Service", Health: health.NewServer(), PerClient: 1,
		Metrics: NewMetrics(prometheus.NewRegistry(), "half", "Watch", func() uint64 { return 0 }),
	})
	leave, err := s.Admit("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit("a"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream: %v", err)
	}
	leave()
	s.Stop()
	if _, err := s.Admit("a"); status.Code(err) != codes.Unavailable {
		t.Errorf("after the stop: %v", err)
	}
	for reason, want := range map[string]float64{endRefused: 1, endStopping: 1} { // docs/metrics.md alerts on the first
		if got := testutil.ToFloat64(s.Metrics.Ended.WithLabelValues(reason)); got != want {
			t.Errorf("%v refusals count as %s, want %v", got, reason, want)
		}
	}
	s.Stop()
}

func TestR3AChangeIsCutIntoChunksAndNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat("x", rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 2*Budget)).Draw(t, "length"))
		})
		removed := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,200}`), 0, 20).Draw(t, "removed")
		removed = slices.Repeat(removed, rapid.IntRange(1, 40).Draw(t, "times"))
		upserts := slices.Repeat(rapid.SliceOfN(text, 0, 5).Draw(t, "upserts"), rapid.IntRange(1, 200).Draw(t, "times"))

		var gone, told []string
		first, over := true, false
		for c := range Chunks(removed, upserts, wrapperspb.String) {
			if over || c.First != first {
				t.Fatal("something comes after the last chunk, or another than the first says that it is that")
			}
			first = false
			size := 0
			for _, key := range c.Removed {
				size += len(key) + framing
			}
			for _, u := range c.Upserts {
				size += proto.Size(u) + framing
				told = append(told, u.GetValue())
			}
			if size > Budget && len(c.Upserts)+len(c.Removed) > 1 || len(c.Upserts) > maxChunk || len(c.Removed) > maxChunk {
				t.Fatalf("a chunk of %d bytes, %d upserts, %d removed", size, len(c.Upserts), len(c.Removed))
			}
			gone = append(gone, c.Removed...)
			over = c.Last
		}
		if !over || !slices.Equal(gone, removed) || !slices.Equal(told, upserts) {
			t.Fatalf("%d of %d removed and %d of %d upserts were told, the last chunk was seen: %t", len(gone), len(removed), len(told), len(upserts), over)
		}
	})
}

func TestATextIsBoundedAndFitToBeSent(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 2000), "x" + strings.Repeat("é", 2000), "\xff\xfe", ""} {
		if got := Text(text, 1024); len(got) > 1024 || !utf8.ValidString(got) {
			t.Errorf("%.20q became %d bytes, valid: %t", text, len(got), utf8.ValidString(got))
		}
	}
	if got := Text("told as it is", 1024); got != "told as it is" {
		t.Errorf("a short text became %q", got)
	}
}

// bad is a reader of which nothing can be told.
type bad struct{}

func (bad) Changed() <-chan struct{} { return nil }
func (bad) Next() (Kind, iter.Seq[*Message[wrapperspb.StringValue]]) {
	panic("on purpose")
}
func (bad) Told() {}

type someStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s someStream) Context() context.Context { return s.ctx }

func TestAPanicOfAReaderIsThatOfItsHandler(t *testing.T) {
	s := New(Config{
		Service: "a.Service", Health: health.NewServer(),
		Metrics: NewMetrics(prometheus.NewRegistry(), "half", "Watch", func() uint64 { return 0 }),
	})
	defer s.Stop()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "on purpose") || !strings.Contains(p, "bad.Next") {
			t.Errorf("the handler panicked with %s, want what the reader did, and where", p)
		}
	}()
	Tell(s, someStream{ctx: t.Context()}, bad{})
}

func TestAMessageIsSharedForAMomentByThoseWhoLackTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		var a Alike[int, wrapperspb.StringValue]
		say := func(key int) *Message[wrapperspb.StringValue] {
			return a.Say(key, func() *wrapperspb.StringValue { made++; return wrapperspb.String(fmt.Sprint(key)) })
		}
		first := say(1)
		time.Sleep(moment - 1)
		if say(1) != first || say(2) == first || made != 2 {
			t.Errorf("%d messages were made for two keys", made)
		}
		time.Sleep(time.Nanosecond)
		if say(1) == first {
			t.Error("an old message is told")
		}
		for i := range 2 * mostAlike {
			if m := say(i); m.Content.GetValue() != fmt.Sprint(i) {
				t.Errorf("key %d gets %v", i, m.Content)
			}
		}
		if len(a.said) > mostAlike {
			t.Errorf("%d messages are kept", len(a.said))
		}
	})
}

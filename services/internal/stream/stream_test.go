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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The rules are tested in the packages of the two services, nodeserver and endpointserver.

func TestAdmitRejectsAfterStop(t *testing.T) {
	s := New(Config{
		Service: "a.Service", Health: health.NewServer(), MaxPerClient: 1,
		Metrics: NewMetrics(prometheus.NewRegistry(), "inventory", "Watch", func() uint64 { return 0 }),
	})
	release, err := s.Admit("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit("a"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream: %v", err)
	}
	release()
	s.Stop()
	if _, err := s.Admit("a"); status.Code(err) != codes.Unavailable {
		t.Errorf("after the stop: %v", err)
	}
	for reason, want := range map[string]float64{reasonTooManyStreams: 1, reasonStopping: 1} { // docs/reference/metrics.md names the first
		if got := testutil.ToFloat64(s.Metrics.Ended.WithLabelValues(reason)); got != want {
			t.Errorf("%v streams ended with %s, want %v", got, reason, want)
		}
	}
	s.Stop()
}

func TestR3ChunksCarryEveryEntryWithinLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat("x", rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 2*PayloadBudget)).Draw(t, "length"))
		})
		removed := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,200}`), 0, 20).Draw(t, "removed")
		removed = slices.Repeat(removed, rapid.IntRange(1, 40).Draw(t, "times"))
		upserts := slices.Repeat(rapid.SliceOfN(text, 0, 5).Draw(t, "upserts"), rapid.IntRange(1, 200).Draw(t, "times"))

		var gotRemoved, gotUpserts []string
		first, done := true, false
		for c := range Chunks(removed, upserts, wrapperspb.String) {
			if done || c.First != first {
				t.Fatal("a chunk follows the last one, or First is wrong")
			}
			first = false
			size := 0
			for _, key := range c.Removed {
				size += len(key) + entryOverhead
			}
			for _, u := range c.Upserts {
				size += proto.Size(u) + entryOverhead
				gotUpserts = append(gotUpserts, u.GetValue())
			}
			if size > PayloadBudget && len(c.Upserts)+len(c.Removed) > 1 || len(c.Upserts) > contract.MaxChunk ||
				len(c.Removed) > contract.MaxChunk {
				t.Fatalf("a chunk of %d bytes, %d upserts, %d removed", size, len(c.Upserts), len(c.Removed))
			}
			gotRemoved = append(gotRemoved, c.Removed...)
			done = c.Last
		}
		if !done || !slices.Equal(gotRemoved, removed) || !slices.Equal(gotUpserts, upserts) {
			t.Fatalf(
				"got %d of %d removed keys and %d of %d upserts, last chunk: %t",
				len(gotRemoved),
				len(removed),
				len(gotUpserts),
				len(upserts),
				done,
			)
		}
	})
}

// panickingReader panics in Next.
type panickingReader struct{}

func (panickingReader) Changed() <-chan struct{} { return nil }
func (panickingReader) Next() (Kind, iter.Seq[*Message[wrapperspb.StringValue]]) {
	panic("on purpose")
}
func (panickingReader) Sent() {}

type fakeStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s fakeStream) Context() context.Context { return s.ctx }

func TestReaderPanicReachesHandler(t *testing.T) {
	s := New(Config{
		Service: "a.Service", Health: health.NewServer(),
		Metrics: NewMetrics(prometheus.NewRegistry(), "inventory", "Watch", func() uint64 { return 0 }),
	})
	defer s.Stop()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "on purpose") || !strings.Contains(p, "panickingReader.Next") {
			t.Errorf("the handler panicked with %s, want the panic of the reader with its stack", p)
		}
	}()
	Serve(s, fakeStream{ctx: t.Context()}, panickingReader{})
}

func TestMessageCacheSharesRecentMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		built := 0
		var cache MessageCache[int, wrapperspb.StringValue]
		get := func(key int) *Message[wrapperspb.StringValue] {
			return cache.GetOrBuild(key, func() *wrapperspb.StringValue { built++; return wrapperspb.String(fmt.Sprint(key)) })
		}
		first := get(1)
		time.Sleep(shareFor - 1)
		if get(1) != first || get(2) == first || built != 2 {
			t.Errorf("%d messages were built for two keys", built)
		}
		time.Sleep(time.Nanosecond)
		if get(1) == first {
			t.Error("an expired message was shared")
		}
		for i := range 2 * maxCachedMessages {
			if m := get(i); m.Content.GetValue() != fmt.Sprint(i) {
				t.Errorf("key %d: got %v", i, m.Content)
			}
		}
		if len(cache.messages) > maxCachedMessages {
			t.Errorf("%d cached messages", len(cache.messages))
		}
	})
}

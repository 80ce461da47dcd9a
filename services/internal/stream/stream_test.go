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

// The rules of streams are tested in the packages of the two services, inventory/feed and writer/endpoints.

func TestAdmitRejectsAfterStop(t *testing.T) {
	s := New(Config{
		Service: "a.Service", Health: health.NewServer(), MaxPerClient: 1,
		Registerer: prometheus.NewRegistry(),
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
		text := rapid.Custom(func(t *rapid.T) *Entry[string] {
			length := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 2*PayloadBudget)).Draw(t, "length")
			return NewEntry("", "", strings.Repeat("x", length), wrapperspb.String(strings.Repeat("x", length)))
		})
		removed := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,200}`), 0, 20).Draw(t, "removed")
		removed = slices.Repeat(removed, rapid.IntRange(1, 40).Draw(t, "times"))
		upserts := slices.Repeat(rapid.SliceOfN(text, 0, 5).Draw(t, "upserts"), rapid.IntRange(1, 200).Draw(t, "times"))
		c := &Changes[string]{Removed: removed, Upserts: upserts}

		var gotRemoved []string
		var gotUpserts []*Entry[string]
		for offset := 0; ; {
			removed, upserts, counted := c.chunk(offset)
			size := 0
			for _, key := range removed {
				size += len(key) + keyOverhead
			}
			for _, u := range upserts {
				size += proto.Size(wrapperspb.String(u.Value)) + entryOverhead
			}
			if counted != size {
				t.Fatalf("a chunk of %d bytes counts as %d", size, counted)
			}
			if size > PayloadBudget && len(upserts)+len(removed) > 1 || len(upserts) > contract.MaxChunk ||
				len(removed) > contract.MaxChunk {
				t.Fatalf("a chunk of %d bytes, %d upserts, %d removed", size, len(upserts), len(removed))
			}
			gotRemoved, gotUpserts = append(gotRemoved, removed...), append(gotUpserts, upserts...)
			if offset += len(removed) + len(upserts); offset == c.Size() {
				break
			}
			if len(removed)+len(upserts) == 0 {
				t.Fatalf("an empty chunk at %d of %d", offset, c.Size())
			}
		}
		if !slices.Equal(gotRemoved, removed) || !slices.Equal(gotUpserts, upserts) {
			t.Fatalf("got %d of %d removed keys and %d of %d upserts", len(gotRemoved), len(removed), len(gotUpserts), len(upserts))
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
		Registerer: prometheus.NewRegistry(),
	})
	defer s.Stop()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "on purpose") || !strings.Contains(p, "panickingReader.Next") {
			t.Errorf("the handler panicked with %s, want the panic of the reader with its stack", p)
		}
	}()
	Serve(s, fakeStream{ctx: t.Context()}, panickingReader{})
}

func TestSharesRecentMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		encoded := 0
		f := NewFeed(NewSet[string]("e", 4, 4), FeedConfig[string, int, wrapperspb.StringValue]{
			Encode: func(p Part[string, int]) *wrapperspb.StringValue {
				encoded++
				return wrapperspb.String(fmt.Sprint(p.Status))
			},
			Same: func(a, b int, _ *Selection) bool { return a == b },
		})
		get := func(status int) *Message[wrapperspb.StringValue] {
			f.Publish(status, false, func(*Set[string]) {})
			f.version = uint64(status)
			u := f.Since(nil, nil)
			return f.message(&u, nil, 0, 0)
		}
		first := get(1)
		time.Sleep(shareFor - 1)
		if get(1) != first || get(2) == first || encoded != 2 {
			t.Errorf("%d messages were encoded for two keys", encoded)
		}
		time.Sleep(time.Nanosecond)
		if get(1) == first {
			t.Error("an expired message was shared")
		}
		for i := range 2 * maxSharedMessages {
			if m := get(i); m.Content.GetValue() != fmt.Sprint(i) {
				t.Errorf("status %d: got %v", i, m.Content)
			}
		}
		if len(f.messages) > maxSharedMessages {
			t.Errorf("%d messages are shared", len(f.messages))
		}
		time.Sleep(shareFor)
		for i := range 2 * maxSharedMessages {
			large := &Entry[string]{Key: fmt.Sprint(i), Fingerprint: contract.Digest{byte(i), byte(i >> 8)}, size: 3 << 20}
			f.Publish(i, true, func(s *Set[string]) { s.Replace("", []*Entry[string]{large}) })
			u := f.Since(nil, nil)
			f.message(&u, nil, 0, 0)
		}
		if len(f.messages) > 1 {
			t.Errorf("%d messages of 3 MB are shared", len(f.messages))
		}
	})
}

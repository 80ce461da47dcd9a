package records

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestNumbersVerifications(t *testing.T) {
	text, readErr := validJSON, error(nil)
	f := newTestPipeline(&fakeReader{read: func(context.Context) ([]byte, error) { return []byte(text), readErr }})
	for want := uint64(1); want < 4; want++ {
		before := time.Now()
		number, err := f.source.Verify(t.Context(), roster.LightVerification)
		update := f.source.Take()
		if err != nil || number != want || update.Verified != want || update.LastContact.Before(before) {
			t.Fatalf("verification %d: number %d, %v, update %+v", want, number, err, update)
		}
		if again := f.source.Take(); !again.LastContact.IsZero() || again.Changed != nil || again.Verified != want {
			t.Errorf("reported twice: %+v", again)
		}
	}
	readErr = errors.New("boom")
	if number, err := f.source.Verify(t.Context(), roster.FullVerification); err == nil || number != 0 {
		t.Errorf("got %d, %v", number, err)
	}
	if update := f.source.Take(); update.Verified != 3 || update.Failure != "boom" || update.Removed != nil ||
		!update.LastContact.IsZero() {
		t.Errorf("after an error: %+v", update)
	}
}

func TestReportsRecordsWithReasons(t *testing.T) {
	f := newTestPipeline(&fakeReader{read: func(context.Context) ([]byte, error) {
		return []byte(
			arrayJSON(recordJSON("w", "::ffff:10.0.0.11", false, true), recordJSON("m", "fd00:0::1", true, false), `{"name":"x"}`),
		), nil
	}})
	if _, err := f.source.Verify(t.Context(), roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	want := []roster.Node{
		{
			Name:        "m",
			State:       roster.Ready,
			InternalIPs: []netip.Addr{netip.MustParseAddr("fd00::1")},
			Excluded:    roster.ControlPlane,
			ExcludedBy:  "its record has worker false",
			StateReason: "its record in the test has ready true",
		},
		{
			Name: "w", State: roster.NotReady, InternalIPs: []netip.Addr{netip.MustParseAddr("10.0.0.11")},
			StateReason: "its record in the test has ready false",
		},
		{
			Name: "x", Invalid: "private_ip is missing, ready is missing, worker is missing",
			StateReason: `its record in the test is invalid: {"name":"x"}`,
		},
	}
	if d := cmp.Diff(want, f.source.Take().Changed, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

func TestKeepsValidRecordThatTurnsInvalidBeforeTake(t *testing.T) {
	text := validJSON
	f := newTestPipeline(&fakeReader{read: func(context.Context) ([]byte, error) { return []byte(text), nil }})
	f.source.Verify(t.Context(), roster.FullVerification)
	text = arrayJSON(recordA, `{"name":"b"}`)
	if err := f.verify(t.Context()); err != nil || f.summary() != degradedSet {
		t.Errorf("%v, %s", err, f.summary())
	}
}

func TestReadsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, reading := make(chan struct{}), atomic.Int32{}
		f := newTestPipeline(&fakeReader{read: func(context.Context) ([]byte, error) {
			if reading.Add(1) > 1 {
				t.Error("two reads at the same time")
			}
			defer reading.Add(-1)
			<-free
			return []byte(validJSON), nil
		}})
		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := f.source.Verify(t.Context(), roster.FullVerification)
				done <- err
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.source.Verify(ctx, roster.FullVerification); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(free)
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
}

func TestReadTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		startedAt := time.Now()
		f := newTestPipeline(&fakeReader{read: func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return []byte("[]"), ctx.Err()
		}})
		err := f.verify(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no data within 30s") || time.Since(startedAt) != 30*time.Second {
			t.Errorf("got %v after %s", err, time.Since(startedAt))
		}
	})
}

func TestReportsChangeImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, change := validJSON, make(chan struct{})
		f := newTestPipeline(&fakeReader{
			read: func(context.Context) ([]byte, error) { return []byte(text), nil },
			watch: func(ctx context.Context, changed func()) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-change:
						changed()
					}
				}
			},
		})
		defer startSource(t, f.source)()
		f.verify(t.Context())
		<-f.source.Changed()
		text = arrayJSON(recordA)
		startedAt := time.Now()
		change <- struct{}{}
		<-f.source.Changed()
		update := f.source.Take()
		if d := cmp.Diff(
			[]string{"b"},
			update.Removed,
		); d != "" || update.Verified != 1 || update.LastContact.IsZero() ||
			time.Since(startedAt) > 0 {
			t.Errorf("after %s: %+v\n%s", time.Since(startedAt), update, d)
		}
	})
}

func TestRetriesPartiallyWrittenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts, change := []string{"", "[", validJSON}, make(chan struct{})
		f := newTestPipeline(&fakeReader{
			read: func(context.Context) ([]byte, error) {
				text := texts[0]
				if len(texts) > 1 {
					texts = texts[1:]
				}
				return []byte(text), nil
			},
			watch: func(ctx context.Context, changed func()) error { <-change; changed(); <-ctx.Done(); return nil },
		})
		defer startSource(t, f.source)()
		startedAt := time.Now()
		change <- struct{}{}
		<-f.source.Changed()
		if update := f.source.Take(); len(update.Changed) != 2 || update.Failure != "" || time.Since(startedAt) > time.Second {
			t.Errorf("after %s: %+v", time.Since(startedAt), update)
		}
		if got := testutil.ToFloat64(f.source.reads.WithLabelValues("change", "failed")); got != 2 {
			t.Errorf("%v failed reads counted", got)
		}
	})
}

func TestLeavesUnreadableChangeToNextVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		f := newTestPipeline(&fakeReader{
			read:  func(context.Context) ([]byte, error) { reads++; return nil, errors.New("boom") },
			watch: func(ctx context.Context, changed func()) error { changed(); <-ctx.Done(); return nil },
		})
		defer startSource(t, f.source)()
		time.Sleep(time.Hour) // fake time of the bubble
		synctest.Wait()
		if update := f.source.Take(); reads != 5 || update.Failure != "" {
			t.Errorf("%d reads, %+v", reads, update)
		}
	})
}

func TestSuccessfulReadAdvancesNextVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, change := validJSON, make(chan struct{})
		f := newTestPipeline(&fakeReader{
			read:  func(context.Context) ([]byte, error) { return []byte(text), nil },
			watch: func(ctx context.Context, changed func()) error { <-change; changed(); <-ctx.Done(); return nil },
		})
		defer startSource(t, f.source)()
		f.verify(t.Context())
		text = ""
		for range 6 {
			f.verify(t.Context())
		}
		if ask := f.roster.NextActions(time.Now()); ask.Verify != roster.NoVerification {
			t.Fatalf("the roster verifies immediately after a failure: %+v", ask)
		}
		text = validJSON
		for len(f.source.Changed()) > 0 {
			<-f.source.Changed()
		}
		change <- struct{}{}
		<-f.source.Changed()
		f.roster.Apply(time.Now(), roster.Input{Source: f.source.Take()})
		if ask := f.roster.NextActions(time.Now()); ask.Verify == roster.NoVerification {
			t.Errorf("the roster waits %s although the source works again", time.Until(ask.Wake))
		}
	})
}

func TestRetriesFailedWatchAndLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		watches := 0
		s := New(Config{
			Reader: &fakeReader{
				read:  func(context.Context) ([]byte, error) { return []byte(validJSON), nil },
				watch: func(context.Context, func()) error { watches++; return errors.New("too many open files") },
			},
			Name: "the test", Log: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
		})
		stop := startSource(t, s)
		time.Sleep(10 * watchRetryInterval)
		stop()
		if n := strings.Count(log.String(), "too many open files"); n != 1 || watches < 5 {
			t.Errorf("%d watches, logged %d times:\n%s", watches, n, log.String())
		}
	})
}

func TestRunsReaderWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		startSource(t, newTestPipeline(Text(validJSON)).source)()
	})
}

// startSource runs a source until stop is called, which waits for it.
func startSource(t *testing.T, s *Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

package applier

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (w *writer) wantSent(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.api.sent()); diff != "" {
		t.Errorf("requests: %s", diff)
	}
}

func TestWritesOnlyDifferences(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1"))
	w.must(t, desired("10.0.0.1"))
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	w.wantSent(t, "POST endpointslices", "PUT shop-nodes")

	d := desired("10.0.0.1", "10.0.0.2")
	d.MaxPerSlice = 1
	w.must(t, d)
	d.Endpoints = d.Endpoints[:1]
	w.must(t, d)
	w.wantSent(t, "POST endpointslices", "PUT shop-nodes", "DELETE shop-nodes-2")
	if got := w.countWrites(Update, ResultOK); got != 2 {
		t.Errorf("%d updates reported", got)
	}
}

func TestObservedIsNeverOlderThanOwnWrites(t *testing.T) {
	w := newWriter(t)
	empty, before := w.api.cache()
	w.must(t, desired("10.0.0.1"))
	if got := listed(w.Observed(empty, before)); got != "10.0.0.1" {
		t.Errorf("a cache that has not seen the create shows %q", got)
	}

	old, version := w.api.cache()
	w.must(t, desired("10.0.0.2"))
	current := w.Observed(old, version)
	if got := listed(current); got != "10.0.0.2" {
		t.Errorf("a cache that has not seen the update shows %q", got)
	}
	if got := listed(w.LastApplied(shop, current)); got != "10.0.0.2" {
		t.Errorf("held %q", got)
	}
	if plan, err := w.Apply(
		t.Context(),
		Order{Service: shop, Desired: desired("10.0.0.2"), Current: current},
	); err != nil ||
		!plan.Empty() {
		t.Errorf("%d writes, %v", plan.Writes(), err)
	}

	d := desired("10.0.0.2", "10.0.0.3")
	d.MaxPerSlice = 1
	w.must(t, d)
	old, version = w.api.cache()
	d.Endpoints = d.Endpoints[:1]
	w.must(t, d)
	if got := listed(w.Observed(old, version)); got != "10.0.0.2" {
		t.Errorf("a cache that has not seen the delete shows %q", got)
	}
}

func TestRepairsWhatOthersDoToOwnedSlices(t *testing.T) {
	for name, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"a removed endpoint":  func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] },
		"an added endpoint":   func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, endpoint("10.9.9.9")) },
		"an altered endpoint": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.9.9.9" },
		"endpoints out of order": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "10.0.0.9"
			s.Endpoints[1].Addresses[0] = "10.0.0.1"
		},
		"a deleted slice": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			w.must(t, desired("10.0.0.1", "10.0.0.2"))
			w.api.edit("shop-nodes", edit)
			current := w.Observed(w.api.cache())
			if got := listed(w.LastApplied(shop, current)); got != "10.0.0.1 10.0.0.2" {
				t.Errorf("held %q", got)
			}
			w.api.sent()
			w.must(t, desired("10.0.0.1", "10.0.0.2"))
			list, _ := w.api.cache()
			if got := listed(list); got != "10.0.0.1 10.0.0.2" || len(w.api.sent()) != 1 {
				t.Errorf("left as %q", got)
			}
			if w.repaired != 1 {
				t.Errorf("%d repairs reported", w.repaired)
			}
		})
	}
}

func TestSlicesFoundRightCountAsLastApplied(t *testing.T) {
	first := newWriter(t)
	first.must(t, desired("10.0.0.1", "10.0.0.2"))
	second := newWriter(t)
	second.api.slices = first.api.slices
	second.must(t, desired("10.0.0.1", "10.0.0.2"))
	second.wantSent(t)
	second.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	current := second.Observed(second.api.cache())
	if got := listed(second.LastApplied(shop, current)); got != "10.0.0.1 10.0.0.2" {
		t.Errorf("held %q", got)
	}

	t.Run("until it is forgotten", func(t *testing.T) {
		second.StartTerm()
		if got := listed(second.LastApplied(shop, current)); got != "" {
			t.Errorf("held %q", got)
		}
	})
	t.Run("not for another Service of the name", func(t *testing.T) {
		again := shop
		again.UID = "svc-2"
		if got := listed(first.LastApplied(again, nil)); got != "" {
			t.Errorf("held %q", got)
		}
	})
}

func TestReadsSlicesAgainAfterConflict(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1"))
	old, version := w.api.cache()
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, endpoint("10.9.9.9")) })

	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: w.Observed(old, version)})
	if stale := (*StaleError)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes" {
		t.Fatalf("got %v", err)
	}
	current := w.Observed(old, version)
	if got := listed(current); got != "10.0.0.1 10.9.9.9" {
		t.Errorf("current is %q", got)
	}
	if got := listed(w.LastApplied(shop, current)); got != "10.0.0.1" {
		t.Errorf("held %q", got)
	}
	if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: current}); err != nil {
		t.Fatal(err)
	}
	list, _ := w.api.cache()
	if got := listed(list); got != "10.0.0.2" {
		t.Errorf("left as %q", got)
	}
}

func TestCreatesDeletedSliceAgain(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1"))
	old, version := w.api.cache()
	w.api.edit("shop-nodes", nil)
	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: w.Observed(old, version)})
	if stale := (*StaleError)(nil); !errors.As(err, &stale) {
		t.Fatalf("got %v", err)
	}
	if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: w.Observed(old, version)}); err != nil {
		t.Fatal(err)
	}
	w.wantSent(t, "POST endpointslices", "PUT shop-nodes", "POST endpointslices")
}

func TestLeavesNameOfForeignSlice(t *testing.T) {
	w := newWriter(t)
	none, version := w.api.cache()
	w.api.edit("shop-nodes", func(*discoveryv1.EndpointSlice) {})
	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1"), Current: w.Observed(none, version)})
	if stale := (*StaleError)(nil); !errors.As(err, &stale) {
		t.Fatalf("got %v", err)
	}
	if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1"), Current: w.Observed(none, version)}); err != nil {
		t.Fatal(err)
	}
	if w.api.slices["shop-nodes-2"] == nil || len(w.api.slices["shop-nodes"].Endpoints) != 0 {
		t.Error("the other's slice was used")
	}
}

func TestDeleteOfMissingSliceSucceeds(t *testing.T) {
	w := newWriter(t)
	d := desired("10.0.0.1", "10.0.0.2")
	d.MaxPerSlice = 1
	w.must(t, d)
	list, version := w.api.cache()
	w.api.edit("shop-nodes-2", nil)
	d.Endpoints = d.Endpoints[:1]
	if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: d, Current: w.Observed(list, version)}); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownOutcomeIsResolvedBeforeTheNextWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		after bool
		fault func(*http.Request) (*http.Response, error)
		takes time.Duration
		held  string
	}{
		"written, then silence":         {true, hangs, deadline, "10.0.0.2"},
		"silence, nothing written":      {false, hangs, deadline, "10.0.0.1"},
		"written, then cut":             {true, cut, 0, "10.0.0.2"},
		"cut, nothing written":          {false, cut, 0, "10.0.0.1"},
		"written, and an answer of 500": {true, answers(500, nil), 0, "10.0.0.2"},
		"500, nothing written":          {false, answers(500, nil), 0, "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(t)
				w.must(t, desired("10.0.0.1"))
				old, version := w.api.cache()
				w.api.setFault(tc.after, tc.fault)
				began := time.Now()
				_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: w.Observed(old, version)})
				if err == nil || !strings.Contains(err.Error(), "outcome unknown") {
					t.Fatalf("got %v", err)
				}
				if took := time.Since(began); took != tc.takes {
					t.Errorf("took %s", took)
				}
				w.api.setFault(false, nil)
				w.api.sent()

				_, err = w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: w.Observed(old, version)})
				if stale := (*StaleError)(nil); !errors.As(err, &stale) {
					t.Fatalf("got %v", err)
				}
				w.wantSent(t)
				current := w.Observed(old, version)
				if got := listed(w.LastApplied(shop, current)); got != tc.held {
					t.Errorf("held %q", got)
				}
				plan, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.2"), Current: current})
				if err != nil || plan.Empty() != (tc.held == "10.0.0.2") {
					t.Errorf("%d writes, %v", plan.Writes(), err)
				}
			})
		})
	}
}

func TestReportsRejectionOncePerTerm(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnprocessableEntity} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			w := newWriter(t)
			rejection := answers(code, nil)
			w.api.setFault(false, rejection)
			w.dropsReports = true
			for range 2 {
				_ = w.apply(t, desired("10.0.0.1"))
			}
			if len(w.rejected) != 2 {
				t.Errorf("%d of 2 rejections are reported, though none could be", len(w.rejected))
			}
			w.dropsReports, w.rejected = false, nil
			began := time.Now()
			for range 2 {
				if err := w.apply(t, desired("10.0.0.1")); err == nil || !strings.Contains(err.Error(), "create slice shop-nodes") {
					t.Fatalf("got %v", err)
				}
			}
			if n := len(
				w.rejected,
			); n != 1 || w.rejected[0].Slice != "shop-nodes" || w.rejected[0].Verb != Create ||
				w.rejected[0].Err == nil {
				t.Errorf("reported %d times: %+v", n, w.rejected)
			}
			w.api.setFault(false, nil)
			w.must(t, desired("10.0.0.1"))
			w.must(t, desired("10.0.0.1"))
			if n := len(w.recoveries); n != 1 || w.recoveries[0].Before(began) {
				t.Errorf("recovery reported %d times: %v", n, w.recoveries)
			}
			w.api.setFault(false, rejection)
			if err := w.apply(t, desired("10.0.0.2")); err == nil || len(w.rejected) != 2 {
				t.Errorf("rejected again, reported %d times: %v", len(w.rejected), err)
			}
			w.StartTerm() // another replica leads for a while
			if err := w.apply(t, desired("10.0.0.2")); err == nil || len(w.rejected) != 3 {
				t.Errorf("in the next term, reported %d times: %v", len(w.rejected), err)
			}
			if n := len(w.recoveries); n != 1 {
				t.Errorf("recovery reported %d times, though the write is still rejected", n)
			}
		})
	}
}

func TestRejectedWriteStopsOnlyWhatNeedsIt(t *testing.T) {
	type endpoints = []planner.Endpoint
	at := func(address, source string) planner.Endpoint {
		return planner.Endpoint{Address: netip.MustParseAddr(address), Group: source, Ready: true, Serving: true}
	}
	without := func(e planner.Endpoint, serving bool) planner.Endpoint {
		e.Ready, e.Serving, e.Terminating = false, serving, serving
		return e
	}
	one, two, green := at("10.0.0.1", "default"), at("10.0.0.2", "default"), at("10.0.0.9", "green")
	for name, tt := range map[string]struct {
		before, after endpoints
		sent          []string
	}{
		"one of two fails":           {endpoints{one, two}, endpoints{without(one, false), two, green}, []string{"PUT shop-nodes"}},
		"one of two leaves":          {endpoints{one, two}, endpoints{two, green}, []string{"PUT shop-nodes"}},
		"the only one fails":         {endpoints{one}, endpoints{without(one, false), green}, []string{"PUT shop-nodes"}},
		"the only one drains":        {endpoints{one}, endpoints{without(one, true), green}, nil},
		"the only ready one leaves":  {endpoints{one, without(two, false)}, endpoints{without(two, false), green}, nil},
		"one moves":                  {endpoints{one, two}, endpoints{one, at("10.0.0.2", "green")}, nil},
		"another one is to be added": {endpoints{one}, endpoints{one, two, green}, []string{"PUT shop-nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			d := desired()
			d.Endpoints = tt.before
			w.must(t, d)
			w.api.sent()
			forbidden := answers(http.StatusForbidden, nil)
			w.api.setFault(false, func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					return forbidden(r)
				}
				return nil, nil
			})
			d.Endpoints = tt.after
			if err := w.apply(t, d); err == nil || !strings.Contains(err.Error(), "create slice shop-nodes-green") {
				t.Errorf("got %v", err)
			}
			w.wantSent(t, append([]string{"POST endpointslices"}, tt.sent...)...)
			w.api.setFault(false, nil)
			w.must(t, d)
			w.must(t, d)
			if now, _ := w.api.cache(); w.repaired != 0 || len(planner.CurrentEndpoints(d, now)) != len(tt.after) {
				t.Errorf("when it is allowed again, %d slices are repaired and %q is listed", w.repaired, listed(now))
			}
		})
	}
}

// A webhook may fail for one slice alone.
func TestInternalErrorDoesNotStopOtherWrites(t *testing.T) {
	w := newWriter(t)
	d := desired("10.0.0.1", "10.0.0.2")
	w.must(t, d)
	w.api.sent()
	broken := answers(http.StatusInternalServerError, nil)
	w.api.setFault(false, func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			return broken(r)
		}
		return nil, nil
	})
	d.Endpoints[0].Ready, d.Endpoints[0].Serving = false, false
	d.Endpoints = append(
		d.Endpoints,
		planner.Endpoint{Address: netip.MustParseAddr("10.0.0.9"), Group: "green", Ready: true, Serving: true},
	)
	if err := w.apply(t, d); err == nil || !strings.Contains(err.Error(), "create slice shop-nodes-green failed, outcome unknown") {
		t.Errorf("got %v", err)
	}
	w.wantSent(t, "POST endpointslices", "PUT shop-nodes")
}

func TestObeysThrottling(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		wait   time.Duration
	}{
		"that says no time":            {answers(429, nil), time.Second},
		"that asks for a long time":    {asksToWait(60), time.Minute}, // longer than a request may take
		"that asks for a short moment": {asksToWait(1), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(t)
				w.api.setFault(false, row.answer)
				began := time.Now()
				err := w.apply(t, desired("10.0.0.1"))
				later := (*RetryLaterError)(nil)
				if !errors.As(err, &later) || later.At.Sub(began) != row.wait || time.Since(began) != 0 {
					t.Fatalf("got %v after %s", err, time.Since(began))
				}
				w.wantSent(t, "POST endpointslices")
			})
		})
	}
}

// asksToWait answers changes as API Priority and Fairness does.
func asksToWait(seconds int) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, nil
		}
		w := httptest.NewRecorder()
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		answer := w.Result()
		answer.Request = r
		return answer, nil
	}
}

func TestBacksOffAfterRepeatedConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.must(t, desired("10.0.0.1"))
		conflict := answers(409, nil)
		w.api.setFault(false, conflict)
		var waits []string
		for range 10 {
			err := w.apply(t, desired("10.0.0.2"))
			stale, later := (*StaleError)(nil), (*RetryLaterError)(nil)
			switch {
			case errors.As(err, &stale):
				waits = append(waits, "0s")
			case errors.As(err, &later):
				waits = append(waits, time.Until(later.At).String())
			default:
				t.Fatalf("got %v", err)
			}
		}
		want := "0s 0s 0s 250ms 500ms 1s 2s 4s 4s 4s"
		if got := strings.Join(waits, " "); got != want {
			t.Errorf("waits %s, want %s", got, want)
		}
		w.api.setFault(false, nil)
		w.must(t, desired("10.0.0.2"))
		w.api.setFault(false, conflict)
		if err := w.apply(t, desired("10.0.0.3")); !errors.As(err, new(*StaleError)) {
			t.Errorf("the next one, long after: %v", err)
		}
	})
}

func TestWithdrawDeletesSlicesOnlyWhileLeading(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1"))
	cached, version := w.api.cache()
	w.api.sent()

	w.leading = false
	order := Order{Service: shop, Desired: desired(), Current: w.Observed(cached, version), Withdraw: true}
	if _, err := w.Apply(t.Context(), order); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("got %v", err)
	}
	w.wantSent(t)
	w.leading = true
	if _, err := w.Apply(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	w.wantSent(t, "DELETE shop-nodes")
	if left := w.Observed(cached, version); len(left) != 0 { // though the cache still shows it
		t.Errorf("left: %v", left)
	}
}

// A listing, as at a leader's start, shows all slices of the Service. Once it is newer than the cache, Observed returns
// them all.
func TestWithdrawLeavesSlicesOfOthers(t *testing.T) {
	w := newWriter(t)
	for name, manager := range map[string]string{"by-hand": "hand", "of-blue": "blue-controller"} {
		w.api.edit(name, func(s *discoveryv1.EndpointSlice) {
			s.Labels = map[string]string{
				discoveryv1.LabelServiceName: "shop",
				discoveryv1.LabelManagedBy:   manager,
				labelInstance:                "a",
			}
			s.Endpoints = []discoveryv1.Endpoint{endpoint("10.0.0.7")}
		})
	}
	w.must(t, desired("10.0.0.1"))
	w.api.sent()
	plan, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired(), Current: w.Observed(nil, "1"), Withdraw: true})
	if err != nil || plan.Writes() != 1 {
		t.Errorf("%d writes, %v", plan.Writes(), err)
	}
	w.wantSent(t, "DELETE shop-nodes")
	if plan, err := w.Apply(
		t.Context(),
		Order{Service: shop, Desired: desired(), Current: w.Observed(nil, "1"), Withdraw: true},
	); err != nil ||
		!plan.Empty() {
		t.Errorf("the slices of others: %d writes, %v", plan.Writes(), err)
	}
	w.wantSent(t)
}

func TestWithdrawReadsWhetherItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.must(t, desired("10.0.0.1"))
		successor := func(s *discoveryv1.EndpointSlice) { s.Labels = map[string]string{discoveryv1.LabelServiceName: "shop"} }
		w.api.edit("successor", successor)
		cached, version := w.api.cache() // shows the successor, which is gone
		w.api.edit("successor", nil)
		w.api.sent()
		order := Order{
			Service:   shop,
			Desired:   desired(),
			Withdraw:  true,
			Condition: func(all []*discoveryv1.EndpointSlice) bool { return len(all) > 1 },
		}
		for _, exists := range []bool{false, true} {
			if exists {
				w.api.edit("successor", successor)
			}
			order.Current = w.Observed(cached, version)
			_, err := w.Apply(t.Context(), order)
			if later := (*RetryLaterError)(nil); errors.As(err, &later) == exists || !exists && time.Until(later.At) != time.Second {
				t.Errorf("the successor exists: %t: %v", exists, err)
			}
		}
		w.wantSent(t, "DELETE shop-nodes")
	})
}

func TestSendsNothingWithoutTheLease(t *testing.T) {
	w := newWriter(t)
	w.leading = false
	if err := w.apply(t, desired("10.0.0.1")); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("got %v", err)
	}
	w.wantSent(t)
	if err := w.apply(t, desired()); err != nil {
		t.Errorf("with nothing to write: %v", err)
	}

	t.Run("from the moment it is lost", func(t *testing.T) {
		w.leading = true
		w.api.setFault(true, onWrite(func() { w.leading = false }))
		d := desired("10.0.0.1", "10.0.0.2")
		d.MaxPerSlice = 1
		if err := w.apply(t, d); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("got %v", err)
		}
		w.wantSent(t, "POST endpointslices")
	})

	t.Run("nor by a client that repeats by itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api, leading := newAPI(t), true
			throttled := answers(429, http.Header{"Retry-After": {"1"}})
			api.setFault(false, func(r *http.Request) (*http.Response, error) { leading = false; return throttled(r) })
			client := api.client(LeaderOnly(func() bool { return leading })).DiscoveryV1().EndpointSlices("web")
			if _, err := client.Create(
				t.Context(),
				&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
				metav1.CreateOptions{},
			); err == nil {
				t.Fatal("no error")
			}
			if got := api.sent(); len(got) != 1 {
				t.Errorf("sent %v", got)
			}
		})
	})
}

func TestLeaderOnlyConcernsNoOtherResource(t *testing.T) {
	answer := roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{}, nil })
	standby := LeaderOnly(func() bool { return false })(answer)
	for path, want := range map[string]error{
		"/apis/discovery.k8s.io/v1/namespaces/web/endpointslices/shop":                   ErrNotLeader,
		"/k8s/clusters/c-1/apis/discovery.k8s.io/v1/namespaces/web/endpointslices":       ErrNotLeader,
		"/apis/coordination.k8s.io/v1/namespaces/endpointslices/leases/slicefeed":        nil,
		"/apis/events.k8s.io/v1/namespaces/endpointslices/events":                        nil,
		"/apis/coordination.k8s.io/v1/namespaces/web/leases/slicefeed-endpointslices-1/": nil,
	} {
		r := httptest.NewRequest(http.MethodPut, path, nil)
		if _, err := standby.RoundTrip(r); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

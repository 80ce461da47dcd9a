package election

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLease(t *testing.T, client *fake.Clientset, identity string) (*Lease, func()) {
	t.Helper()
	l, err := NewLease(Config{
		Client: client, Namespace: "slicefeed", Name: "slicefeed-default", Identity: identity,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return l, func() {
		cancel()
		if l.leads() {
			t.Error("leads while it ends")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (l *Lease) leads() bool { return !l.LeadingSince().IsZero() }

func awaitLeading(t *testing.T, l *Lease, leading bool) time.Duration {
	t.Helper()
	began := time.Now()
	for l.leads() != leading {
		select {
		case <-l.Changed():
		case <-time.After(time.Minute):
			t.Fatalf("leading is still %t", !leading)
		}
	}
	return time.Since(began)
}

func TestStandbyTakesOverWhenLeaseIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, stopFirst := newLease(t, client, "first")
		awaitLeading(t, first, true)
		second, stopSecond := newLease(t, client, "second")
		defer stopSecond()
		time.Sleep(time.Minute)
		if !first.leads() || second.leads() || second.Holder() != "first" {
			t.Fatalf("first %t, second %t, holder %s", first.leads(), second.leads(), second.Holder())
		}
		stopFirst()
		if took := awaitLeading(t, second, true); took > 5*time.Second {
			t.Errorf("took %s although it was released", took)
		}
	})
}

func TestHandsOverToAnyOtherCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, stopFirst := newLease(t, client, "first")
		defer stopFirst()
		awaitLeading(t, first, true)
		second, stopSecond := newLease(t, client, "second")
		time.Sleep(30 * time.Second)
		handOver := first.Release()
		if first.leads() {
			t.Error("leads after Release")
		}
		time.Sleep(time.Minute)
		if first.leads() || second.leads() {
			t.Errorf("before it is handed over: first leads %t, second %t, want neither", first.leads(), second.leads())
		}
		handOver()
		if took := awaitLeading(t, second, true); took > 5*time.Second {
			t.Errorf("took %s although it was released", took)
		}
		time.Sleep(time.Minute)
		if first.leads() {
			t.Error("both lead")
		}
		first.Release()() // it does not hold the Lease
		if !second.leads() {
			t.Error("the Lease of another holder was released")
		}
		stopSecond()
		if took := awaitLeading(t, first, true); took > 5*time.Second {
			t.Errorf("took %s: it paused although it did not lead", took)
		}
	})
}

func TestTakesReleasedLeaseAgainWithoutOtherCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := newLease(t, fake.NewClientset(), "only")
		defer stop()
		for range 2 {
			awaitLeading(t, l, true)
			l.Release()()
			if took := awaitLeading(t, l, true); took < duration || took > duration+5*time.Second {
				t.Errorf("it was taken again after %s, want one duration of the Lease, and little more", took)
			}
		}
	})
}

func TestStopsLeadingWhenLeaseCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if cut.Load() {
				return true, nil, errors.New("no route to host")
			}
			return false, nil, nil
		})
		l, stop := newLease(t, client, "first")
		defer stop()
		awaitLeading(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		cut.Store(true)
		time.Sleep(renewDeadline - 2*time.Second)
		if !l.leads() {
			t.Error("a short outage should not end it")
		}
		time.Sleep(3 * time.Second) // the last renewal was sent longer ago than the deadline
		if l.leads() {
			t.Error("leads though it could not renew in time")
		}
		time.Sleep(time.Minute)
		cut.Store(false)
		awaitLeading(t, l, true)
	})
}

// What leading decides is decided again then: nothing else may happen while the API server is away.
func TestLossOfTheLeaseIsSignaledWhenItHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no route to host")
		})
		l, stop := newLease(t, client, "first")
		defer stop()
		awaitLeading(t, l, true)
		time.Sleep(29 * time.Second) // renewals signal nothing
		for len(l.Changed()) > 0 {
			<-l.Changed()
		}
		time.Sleep(30 * time.Second)
		cut.Store(true)
		select {
		case <-l.Changed():
		case <-time.After(time.Minute):
			t.Fatal("nobody was told")
		}
		if l.leads() {
			t.Error("signaled while it leads")
		}
	})
}

func TestNewTermAfterLeaseWasLostAndTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no route to host")
		})
		l, stop := newLease(t, client, "first")
		defer stop()
		awaitLeading(t, l, true)
		time.Sleep(30 * time.Second)
		if since := time.Since(l.LeadingSince()); since < 30*time.Second || since > 31*time.Second {
			t.Errorf("renewed, it was taken %s ago", since)
		}
		cut.Store(true)
		time.Sleep(2 * renewDeadline)
		if l.leads() {
			t.Error("it leads though the Lease is lost")
		}
		cut.Store(false)
		time.Sleep(30 * time.Second)
		if since := time.Since(l.LeadingSince()); since < 15*time.Second || since > 30*time.Second {
			t.Errorf("it was taken %s ago", since)
		}
	})
}

// A standby may take the Lease counted from when the renewal was sent, however late its answer came.
func TestLateRenewalCountsFromWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var slow, cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if cut.Load() {
				return true, nil, errors.New("no route to host")
			}
			if slow.Load() {
				cut.Store(true) // from the next one on
				time.Sleep(8 * time.Second)
			}
			return false, nil, nil
		})
		l, stop := newLease(t, client, "first")
		defer stop()
		awaitLeading(t, l, true)
		time.Sleep(30 * time.Second)
		slow.Store(true)
		time.Sleep(13 * time.Second) // sent within a few seconds, and answered after 8 s more
		if l.leads() {
			t.Error("leads longer than the deadline after the last renewal was sent")
		}
	})
}

// newStrictClient returns a client whose server rejects an update of the Lease with a version from before
// it was taken. The fake client accepts any version.
func newStrictClient() *fake.Clientset {
	client := fake.NewClientset()
	var taken atomic.Bool
	client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		sent := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		if taken.Load() && sent.ResourceVersion != "taken" {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), sent.Name, errors.New("it was taken"))
		}
		taken.Store(sent.ResourceVersion == "taken")
		return false, nil, nil
	})
	return client
}

// takeLease sets another holder, as after an expiry or an edit.
func takeLease(t *testing.T, client *fake.Clientset) {
	t.Helper()
	leases := client.CoordinationV1().Leases("slicefeed")
	lease, err := leases.Get(t.Context(), "slicefeed-default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity, lease.ResourceVersion = new("another"), "taken"
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func readHolder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("slicefeed").Get(t.Context(), "slicefeed-default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

func TestDoesNotReleaseLeaseOfAnotherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newStrictClient()
		l, stop := newLease(t, client, "first")
		awaitLeading(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		takeLease(t, client)
		stop()
		if got := readHolder(t, client); got != "another" {
			t.Errorf("the Lease is held by %q", got)
		}
	})
}

func TestStopsLeadingWhenAnotherHasTakenTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newStrictClient()
		l, stop := newLease(t, client, "first")
		defer stop()
		awaitLeading(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		takeLease(t, client)
		if took := awaitLeading(t, l, false); took > 4*time.Second {
			t.Errorf("leads for %s more", took)
		}
		if time.Sleep(10 * time.Second); l.leads() || readHolder(t, client) != "another" {
			t.Errorf("leads: %t; the Lease is held by %q", l.leads(), readHolder(t, client))
		}
	})
}

func TestConfirmReadsTheHolder(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*testing.T, *fake.Clientset)
		want   error
		leads  bool
	}{
		"this process": {func(*testing.T, *fake.Clientset) {}, nil, true},
		"another":      {takeLease, applier.ErrNotLeader, false},
		"none": {func(t *testing.T, client *fake.Clientset) {
			if err := client.CoordinationV1().Leases("slicefeed").Delete(t.Context(), "slicefeed-default", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, applier.ErrNotLeader, false},
		"unknown": {func(_ *testing.T, client *fake.Clientset) {
			client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errNoRoute })
		}, errNoRoute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newStrictClient()
				l, stop := newLease(t, client, "first")
				defer stop()
				awaitLeading(t, l, true)
				synctest.Wait()
				c.before(t, client)
				if err := l.Confirm(t.Context()); !errors.Is(err, c.want) || l.leads() != c.leads {
					t.Errorf("got %v, and leads: %t", err, l.leads())
				}
			})
		})
	}
}

var errNoRoute = errors.New("no route to host")

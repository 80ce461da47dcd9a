package applier

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func newLease(t *testing.T, client *fake.Clientset, identity string) (*Lease, func()) {
	t.Helper()
	l, err := NewLease(LeaseConfig{
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
		if l.Leading() {
			t.Error("leads while it ends")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func await(t *testing.T, l *Lease, leading bool) time.Duration {
	t.Helper()
	began := time.Now()
	for l.Leading() != leading {
		select {
		case <-l.Changed():
		case <-time.After(time.Minute):
			t.Fatalf("leading is still %t", !leading)
		}
	}
	return time.Since(began)
}

func TestOneLeadsAndTheOtherFollowsWhenItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, stopFirst := newLease(t, client, "first")
		await(t, first, true)
		second, stopSecond := newLease(t, client, "second")
		defer stopSecond()
		time.Sleep(time.Minute)
		if !first.Leading() || second.Leading() || second.Holder() != "first" {
			t.Fatalf("first %t, second %t, holder %s", first.Leading(), second.Leading(), second.Holder())
		}
		stopFirst()
		if took := await(t, second, true); took > 5*time.Second {
			t.Errorf("took %s although it was given up", took)
		}
	})
}

func TestALeaseThatIsGivenUpGoesToAnyOtherCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, stopFirst := newLease(t, client, "first")
		defer stopFirst()
		await(t, first, true)
		second, stopSecond := newLease(t, client, "second")
		time.Sleep(30 * time.Second)
		handOver := first.Release()
		if first.Leading() {
			t.Error("leads though it has given the Lease up")
		}
		time.Sleep(time.Minute)
		if first.Leading() || second.Leading() {
			t.Errorf("before it is handed over: first leads %t, second %t, want neither", first.Leading(), second.Leading())
		}
		handOver()
		if took := await(t, second, true); took > 5*time.Second {
			t.Errorf("took %s although it was given up", took)
		}
		time.Sleep(time.Minute)
		if first.Leading() {
			t.Error("both lead")
		}
		first.Release()() // what is not its own
		if !second.Leading() {
			t.Error("another one's Lease was given up")
		}
		stopSecond()
		if took := await(t, first, true); took > 5*time.Second {
			t.Errorf("took %s: it has stood aside though it did not lead", took)
		}
	})
}

func TestALeaseThatNobodyElseWantsIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := newLease(t, fake.NewClientset(), "only")
		defer stop()
		for range 2 {
			await(t, l, true)
			l.Release()()
			if took := await(t, l, true); took < 15*time.Second || took > 20*time.Second {
				t.Errorf("it was taken again after %s, want one duration of the Lease, and little more", took)
			}
		}
	})
}

func TestALeaseThatCannotBeRenewedIsNotOursAnyMore(t *testing.T) {
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
		await(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		cut.Store(true)
		time.Sleep(7 * time.Second)
		if !l.Leading() {
			t.Error("a short trouble should not end it")
		}
		time.Sleep(4 * time.Second) // the last renewal was sent more than 10 s ago
		if l.Leading() {
			t.Error("leads though it could not renew in time")
		}
		time.Sleep(time.Minute)
		cut.Store(false)
		await(t, l, true)
	})
}

// Whoever did not look meanwhile knows by the term that the Lease was lost.
func TestALeaseThatWasLostUnseenIsAnotherTermWhenItIsOursAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no route to host")
		})
		l, stop := newLease(t, client, "first")
		defer stop()
		await(t, l, true)
		time.Sleep(30 * time.Second)
		if got := l.Term(); got != 1 {
			t.Errorf("renewed, it is term %d", got)
		}
		cut.Store(true)
		time.Sleep(14 * time.Second) // the last renewal was sent more than 10 s ago
		if got := l.Term(); got != 0 {
			t.Errorf("lost, it is term %d", got)
		}
		cut.Store(false)
		time.Sleep(30 * time.Second)
		if got := l.Term(); got != 2 {
			t.Errorf("taken again, it is term %d", got)
		}
	})
}

// The Lease is another's to take from the time on that the renewal was sent, however late its answer came.
func TestARenewalThatIsAnsweredLateCountsFromWhenItWasSent(t *testing.T) {
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
		await(t, l, true)
		time.Sleep(30 * time.Second)
		slow.Store(true)
		time.Sleep(13 * time.Second) // sent within 2 s, and answered after 8 s more
		if l.Leading() {
			t.Error("leads more than 10 s after the last renewal was sent")
		}
	})
}

// strict is a client whose server refuses to renew or give up the Lease by a version from before
// it was taken. The fake one refuses no write for its version.
func strict() *fake.Clientset {
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

// take lets another hold the Lease from now on, as if it had expired, or by hand.
func take(t *testing.T, client *fake.Clientset) {
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

func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("slicefeed").Get(t.Context(), "slicefeed-default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

func TestALeaseThatAnotherHasTakenIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := strict()
		l, stop := newLease(t, client, "first")
		await(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		take(t, client)
		stop()
		if got := holder(t, client); got != "another" {
			t.Errorf("the Lease is held by %q", got)
		}
	})
}

func TestALeaseThatAnotherHasTakenIsNotOursAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := strict()
		l, stop := newLease(t, client, "first")
		defer stop()
		await(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		take(t, client)
		if took := await(t, l, false); took > 4*time.Second {
			t.Errorf("leads for %s more", took)
		}
		if time.Sleep(10 * time.Second); l.Leading() || holder(t, client) != "another" {
			t.Errorf("leads: %t; the Lease is held by %q", l.Leading(), holder(t, client))
		}
	})
}

func TestWhoseTheLeaseIsCanBeConfirmedBeforeItIsRenewed(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*testing.T, *fake.Clientset)
		want   error
		leads  bool
	}{
		"our own":   {func(*testing.T, *fake.Clientset) {}, nil, true},
		"another's": {take, ErrNotLeading, false},
		"there is none": {func(t *testing.T, client *fake.Clientset) {
			if err := client.CoordinationV1().Leases("slicefeed").Delete(t.Context(), "slicefeed-default", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, ErrNotLeading, false},
		"not to be seen": {func(_ *testing.T, client *fake.Clientset) {
			client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errNoRoute })
		}, errNoRoute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := strict()
				l, stop := newLease(t, client, "first")
				defer stop()
				await(t, l, true)
				synctest.Wait()
				c.before(t, client)
				if err := l.Confirm(t.Context()); !errors.Is(err, c.want) || l.Leading() != c.leads {
					t.Errorf("got %v, and leads: %t", err, l.Leading())
				}
			})
		})
	}
}

var errNoRoute = errors.New("no route to host")

func TestAWarningIsToldOncePerEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		r := NewReporter(ReporterConfig{Client: client, Instance: "writer-1", Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		events := func() []eventsv1.Event {
			synctest.Wait()
			list, err := client.EventsV1().Events("web").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		fence := Warning{Reason: "Fence", Note: "10.9.9.9 is outside of 10.0.0.0/24."}
		r.Now(shop, []Warning{fence})
		r.Now(shop, []Warning{fence})
		got := events()
		if len(got) != 1 || got[0].Reason != "Fence" || got[0].Regarding.Name != "shop" || got[0].Series != nil || got[0].Note != fence.Note {
			t.Fatalf("told %+v", got)
		}
		r.Now(shop, nil)
		time.Sleep(time.Minute)
		r.Now(shop, []Warning{fence})
		if got := events(); len(got) != 1 || got[0].Series == nil || got[0].Series.Count != 2 {
			t.Errorf("the second episode should join the first: %+v", got)
		}
		time.Sleep(time.Hour)
		r.Tell(shop, fence)
		if got := events(); len(got) != 2 {
			t.Errorf("an hour later it is a new one: %d", len(got))
		}
	})
}

package election

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Whoever may write the Lease may record anything in it: no candidate waits longer for it than for an honest
// holder, nor does what is recorded make the candidate's own record one that the API server rejects.
func TestPoisonedLeaseIsTakenAfterOwnDurationAndMargin(t *testing.T) {
	for name, spec := range map[string]coordinationv1.LeaseSpec{
		"a duration of 68 years":     {LeaseDurationSeconds: new(int32(math.MaxInt32)), LeaseTransitions: new(int32(3))},
		"as many terms as there are": {LeaseDurationSeconds: new(int32(15)), LeaseTransitions: new(int32(math.MaxInt32))},
		"both, and the far future": {
			LeaseDurationSeconds: new(int32(math.MaxInt32)), LeaseTransitions: new(int32(math.MaxInt32)),
			AcquireTime: &metav1.MicroTime{Time: time.Now().AddDate(100, 0, 0)}, RenewTime: &metav1.MicroTime{Time: time.Now().AddDate(100, 0, 0)},
		},
		"nothing but a holder": {},
		"a coordinated election": {
			LeaseDurationSeconds: new(int32(math.MaxInt32)), Strategy: new(coordinationv1.OldestEmulationVersion), PreferredHolder: new("thief"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec.HolderIdentity = new("thief")
				client := fake.NewClientset(&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{
						Namespace:  "slicefeed",
						Name:       "slicefeed-default",
						Finalizers: []string{"example.org/never"},
					},
					Spec: spec,
				})
				client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					sent := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease) // as the API server's validation
					return *sent.Spec.LeaseTransitions < 0, nil, errors.New("spec.leaseTransitions: must be greater than or equal to 0")
				})
				l, stop := newLease(t, client, "honest")
				defer stop()
				if took := awaitLeading(t, l, true); took > 25*time.Second {
					t.Errorf("took %s, want what a Lease lasts, the margin of 5 s and a retry or two", took)
				}
				lease, err := client.CoordinationV1().Leases("slicefeed").Get(t.Context(), "slicefeed-default", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if *lease.Spec.HolderIdentity != "honest" || *lease.Spec.LeaseDurationSeconds != int32(duration/time.Second) ||
					lease.Spec.Strategy != nil {
					t.Errorf("the Lease now records %+v", lease.Spec)
				}
			})
		})
	}
}

// The same holds for a Lease that is held: an edit that only makes it last longer does not outlive its holder.
func TestLeaseLengthenedWhileHeldIsTakenWhenItsHolderIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			sent := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			return cut.Load() && *sent.Spec.HolderIdentity == "first", nil, errNoRoute
		})
		first, stopFirst := newLease(t, client, "first")
		defer stopFirst()
		awaitLeading(t, first, true)
		second, stopSecond := newLease(t, client, "second")
		defer stopSecond()
		time.Sleep(time.Minute)
		synctest.Wait()
		lease, err := client.CoordinationV1().Leases("slicefeed").Get(t.Context(), "slicefeed-default", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.LeaseDurationSeconds = new(int32(math.MaxInt32))
		if _, err := client.CoordinationV1().Leases("slicefeed").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		cut.Store(true)
		if took := awaitLeading(t, second, true); took < renewDeadline || took > 25*time.Second {
			t.Errorf("took %s, want what a Lease lasts, the margin of 5 s and a retry or two", took)
		}
	})
}

// Who may write the Lease can also take it, which RBAC and the admission policy cannot tell from a takeover: then
// the leader steps down within two retries, and a line of its log names the new holder.
func TestLeaseTakenFromRunningLeaderIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newStrictClient()
		var log bytes.Buffer
		l, stop := newLease(t, client, "first")
		l.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		awaitLeading(t, l, true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		takeLease(t, client)
		if took := awaitLeading(t, l, false); took > 4*time.Second {
			t.Errorf("leads for %s more", took)
		}
		time.Sleep(time.Minute)
		stop()
		if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "holder=another") {
			t.Errorf("want one warning that names the new holder, got:\n%s", log.String())
		}
	})
}

// A recorded duration does not shorten a Lease: its holder uses its own duration, and would still lead.
func TestLeaseShortenedWhileHeldIsNotTakenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "slicefeed", Name: "slicefeed-default"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("leader"), LeaseDurationSeconds: new(int32(1))},
		})
		l, stop := newLease(t, client, "standby")
		defer stop()
		if took := awaitLeading(t, l, true); took < duration {
			t.Errorf("taken after %s, while its holder may still lead", took)
		}
	})
}

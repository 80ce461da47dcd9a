package attack

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// leaseOf is the writer's Lease as a writer makes it, altered.
func leaseOf(alter ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: "slicefeed-default"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("thief_ABCDEFGH"),
			LeaseDurationSeconds: new(int32(12)),
			AcquireTime:          &now,
			RenewTime:            &now,
			LeaseTransitions:     new(int32(0)),
		},
	}
	for _, one := range alter {
		one(lease)
	}
	return lease
}

func createLease(alter ...func(*coordinationv1.Lease)) attempt {
	return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
		lease := leaseOf(alter...)
		_, err := as.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func changeLease(alter ...func(*coordinationv1.Lease)) attempt {
	return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
		leases := as.CoordinationV1().Leases(pair.Namespace)
		lease, err := leases.Get(ctx, "slicefeed-default", metav1.GetOptions{})
		if err != nil {
			return errors.Join(errors.New("read it first"), err)
		}
		for _, one := range alter {
			one(lease)
		}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{DryRun: dry})
		return err
	}
}

func TestAttackLeaseThatOutlivesTheCredential(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	extraRightsGiven(s)
	thief, _ := accounts(s)
	poison := []struct {
		name  string
		alter func(*coordinationv1.Lease)
		says  string
	}{
		{
			"lasts for 68 years",
			func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(math.MaxInt32)) },
			"15 seconds at most",
		},
		{"lasts for 16 seconds", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(16)) }, "15 seconds at most"},
		{"says no duration", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, "15 seconds at most"},
		{
			"is held by a long name",
			func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new(strings.Repeat("x", 100_000) + "_ABCDEFGH") },
			"8,192 bytes",
		},
		{
			"cannot be deleted",
			func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.org/never"} },
			"labels, annotations, owners or finalizers",
		},
		{"keeps its owner from being deleted", func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Service", Name: s.Service.Name, UID: s.Service.UID, BlockOwnerDeletion: new(true)},
			}
		}, "labels, annotations, owners or finalizers"},
		{"has a label", func(l *coordinationv1.Lease) {
			l.Labels = map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}
		}, "labels, annotations, owners or finalizers"},
		{
			"is 200 KB large",
			func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"a": strings.Repeat("x", 200_000)} },
			"labels, annotations, owners or finalizers",
		},
		{"has large notes of who set which field", func(l *coordinationv1.Lease) {
			l.ManagedFields = append(l.ManagedFields, largeManagedFields("coordination.k8s.io/v1", 1_000_000))
		}, "8,192 bytes"},
	}
	all := []attack{
		{
			"another controller's Lease",
			createLease(func(l *coordinationv1.Lease) { l.Name = "their-controller" }),
			"the Lease web/slicefeed-default alone",
		},
		{
			"the Lease of another class",
			createLease(func(l *coordinationv1.Lease) { l.Name = "slicefeed-blue" }),
			"the Lease web/slicefeed-default alone",
		},
		{
			"a Lease with a name that the server finds",
			createLease(func(l *coordinationv1.Lease) { l.Name, l.GenerateName = "", "slicefeed-default" }),
			"the Lease web/slicefeed-default alone",
		},
	}
	for _, one := range poison {
		all = append(all, attack{"a new Lease that " + one.name, createLease(one.alter), one.says})
	}
	refusedByPolicy(s, "slicefeed-writer-lease", all)

	s.Must(createLease()(s.Ctx(), thief, nil))
	all = nil
	for _, one := range poison {
		all = append(all, attack{"a Lease changed so that it " + one.name, changeLease(one.alter), one.says})
	}
	refusedByPolicy(s, "slicefeed-writer-lease", all)
	s.Must(changeLease(func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) })(s.Ctx(), thief, nil))
	s.Must(changeLease(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new(""), new(int32(1))
	})(s.Ctx(), thief, nil))
}

// A Lease as it could be written before there was a policy: the account was replaced since, and nobody renews it.
func TestAttackPoisonedLeaseDelaysNewLeaderBySeconds(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	_, err := s.ConsumingClient().CoordinationV1().Leases(pair.Namespace).Create(s.Ctx(), leaseOf(func(l *coordinationv1.Lease) {
		l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = new(int32(math.MaxInt32)), new(int32(math.MaxInt32))
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().AddDate(60, 0, 0)}
		l.Finalizers = []string{"example.org/never"}
	}), metav1.CreateOptions{})
	s.Must(err)
	t.Cleanup(func() {
		_, err := s.ConsumingClient().CoordinationV1().Leases(pair.Namespace).Patch(context.WithoutCancel(t.Context()), "slicefeed-default",
			types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	s.StartAll()
	took := time.Since(began)
	t.Logf("leads after %s", took.Round(100*time.Millisecond))
	if took > 40*time.Second {
		t.Errorf("leads after %s, want the 12 s of a Lease, the margin of 5 s and the time to start", took)
	}
	s.Join(1)
}

// No policy can distinguish the leader's renewal from a thief's update. It is not silent, and does not last.
func TestAttackLeaseTakenFromTheLeader(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	s.Join(1)
	thief := s.ClientWith(s.WriterKubeconfig())
	s.Must(changeLease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("thief_ABCDEFGH") })(s.Ctx(), thief, nil))
	began := time.Now()
	s.AwaitMetric(s.Writers[0], e2e.Leads, e2e.Equals(0))
	t.Logf("the leader stepped down within %s", time.Since(began).Round(10*time.Millisecond))
	s.Until("its log names the new holder", func() bool {
		return e2e.ContainsAll(s.LogOf(s.Writers[0]), "Lease taken by another writer", "thief_ABCDEFGH")
	})
	s.AwaitMetric(s.Writers[0], e2e.Leads, e2e.Equals(1))
	t.Logf("it leads again after %s", time.Since(began).Round(100*time.Millisecond))
	s.Join(1)
}

// eventOf is an Event as the writer tells it, altered.
func eventOf(service *corev1.Service, alter ...func(*eventsv1.Event)) *eventsv1.Event {
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pair.Namespace, Name: service.Name + ".attack"},
		EventTime:           metav1.NowMicro(),
		ReportingController: "slicefeed.dev/writer",
		ReportingInstance:   "writer",
		Action:              "Reconcile",
		Reason:              "Attack",
		Type:                corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Service",
			Namespace:  pair.Namespace,
			Name:       service.Name,
			UID:        service.UID,
		},
		Note: strings.Repeat("n", 1024),
	}
	for _, one := range alter {
		one(event)
	}
	return event
}

func TestAttackEventsThatAreNotTheWriters(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	extraRightsGiven(s)
	thief, _ := accounts(s)
	report := func(alter ...func(*eventsv1.Event)) attempt {
		return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
			event := eventOf(s.Service, alter...)
			_, err := as.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{DryRun: dry})
			return err
		}
	}
	patch := func(name, what string) attempt {
		return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
			_, err := as.EventsV1().Events(pair.Namespace).
				Patch(ctx, name, types.MergePatchType, []byte(what), metav1.PatchOptions{DryRun: dry})
			return err
		}
	}
	named := func(name string) func(*eventsv1.Event) { return func(e *eventsv1.Event) { e.Name = name } }
	s.Must(
		report(named("theirs"), func(e *eventsv1.Event) { e.ReportingController = "their-controller" })(s.Ctx(), s.ConsumingClient(), nil),
	)
	s.Must(report(named("ours"))(s.Ctx(), thief, nil))
	t.Cleanup(func() {
		for _, name := range []string{"theirs", "ours"} {
			if err := s.ConsumingClient().
				EventsV1().
				Events(pair.Namespace).
				Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	const fields, own = "labels, annotations, owners or finalizers", "Events whose reportingController is slicefeed.dev/writer"
	refusedByPolicy(s, "slicefeed-writer-events", []attack{
		{"another's Event patched", patch("theirs", `{"series":{"count":9,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`), own},
		{"another's Event labelled", patch("theirs", `{"metadata":{"labels":{"a":"b"}}}`), own},
		{"an Event in another's name", report(func(e *eventsv1.Event) { e.ReportingController = "kubelet" }), own},
		{"an Event on a Node", report(func(e *eventsv1.Event) { e.Regarding.Kind = "Node" }), "on Services of the Event's namespace"},
		{
			"an Event with a second object",
			report(func(e *eventsv1.Event) { e.Related = &corev1.ObjectReference{Kind: "Secret", Name: "x"} }),
			"on Services of the Event's namespace",
		},
		{"an Event that cannot be deleted", report(func(e *eventsv1.Event) { e.Finalizers = []string{"example.org/never"} }), fields},
		{"ours made so that it cannot be deleted", patch("ours", `{"metadata":{"finalizers":["example.org/never"]}}`), fields},
		{"an Event that keeps its owner from being deleted", report(func(e *eventsv1.Event) {
			e.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Service", Name: s.Service.Name, UID: s.Service.UID, BlockOwnerDeletion: new(true)},
			}
		}), fields},
		{
			"an Event of 200 KB",
			report(func(e *eventsv1.Event) { e.Annotations = map[string]string{"a": strings.Repeat("x", 200_000)} }),
			fields,
		},
		{
			"an Event on a long name",
			report(func(e *eventsv1.Event) { e.Regarding.FieldPath = strings.Repeat("x", 200_000) }),
			"4,096 bytes",
		},
		{"an Event with large notes of who set which field", report(func(e *eventsv1.Event) {
			e.ManagedFields = []metav1.ManagedFieldsEntry{largeManagedFields("events.k8s.io/v1", 1_000_000)}
		}), "4,096 bytes"},
	})
	s.Must(patch("ours", `{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`)(s.Ctx(), thief, nil))
}

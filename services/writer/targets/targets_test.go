package targets

import (
	"context"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// watching starts Targets over a fake cluster and gives a function that waits for a view.
func watching(t *testing.T, client *fake.Clientset) func(what string, ok func(View) bool) View {
	t.Helper()
	targets, err := New(Config{Client: client, Target: spec(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- targets.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func(what string, ok func(View) bool) View {
		t.Helper()
		limit := time.After(20 * time.Second)
		for {
			select {
			case <-targets.Changed():
				if view := targets.Get(); ok(view) {
					return view
				}
			case <-limit:
				t.Fatalf("never seen: %s; now %+v", what, targets.Get())
			}
		}
	}
}

func TestTheTargetIsFollowedThroughItsLife(t *testing.T) {
	client := fake.NewClientset(slice("by-hand", "hand"))
	await := watching(t, client)
	services := client.CoreV1().Services("web")
	ctx := context.Background()

	view := await("no Service", func(v View) bool { return v.Synced && v.Refusal != nil })
	if view.Refusal.Reason != "ServiceNotFound" || view.Service.UID != "" {
		t.Errorf("refused: %v", view.Refusal)
	}

	if _, err := services.Create(ctx, service(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	view = await("the Service", func(v View) bool { return v.Refusal == nil })
	if view.Target.UID != "svc-1" || view.Service.UID != "svc-1" {
		t.Errorf("UID is %s", view.Target.UID)
	}
	if len(view.Slices) != 1 || view.Slices[0].Endpoints != nil {
		t.Errorf("a foreign slice should come without endpoints: %+v", view.Slices)
	}

	selecting := service()
	selecting.Spec.Selector = map[string]string{"app": "shop"}
	if _, err := services.Update(ctx, selecting, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("the selector", func(v View) bool {
		return v.Refusal != nil && v.Refusal.Reason == "ServiceHasSelector" && v.Service.UID == "svc-1"
	})

	if err := services.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("the Service's end", func(v View) bool { return v.Refusal != nil && v.Refusal.Reason == "ServiceNotFound" })

	again := service()
	again.UID = types.UID("svc-2")
	if _, err := services.Create(ctx, again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("the Service created again", func(v View) bool { return v.Refusal == nil && v.Target.Owner.UID == "svc-2" })

	if _, err := client.DiscoveryV1().EndpointSlices("web").Create(ctx, slice("shop-nodes", "slicefeed-default"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("our slice, whole", func(v View) bool { return len(v.Slices) == 2 && len(v.Slices[1].Endpoints) == 1 })
}

func TestOtherServicesAreNotTakenForTheTarget(t *testing.T) {
	other := service()
	other.Name = "cart"
	await := watching(t, fake.NewClientset(other))
	view := await("the cache", func(v View) bool { return v.Synced })
	if view.Refusal == nil || view.Refusal.Reason != "ServiceNotFound" {
		t.Errorf("refused: %v", view.Refusal)
	}
}

func TestAnEmptyClusterIsToldToo(t *testing.T) {
	await := watching(t, fake.NewClientset())
	await("the empty cache", func(v View) bool { return v.Synced })
}

package attack

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// What a further namespace opens to a thief of the writer's credential: what the manifest
// for it says, and of that only what the policy lets pass.
func TestAttackInAFurtherNamespace(t *testing.T) {
	e2e.Long(t)
	f := e2e.NewLabeled(t, e2e.Options{})
	f.Must(f.OpenNamespace(f.Ctx(), pair.OtherNamespace))
	thief := f.ClientWith(f.WriterKubeconfig())
	const there = pair.OtherNamespace
	template := changed(e2e.NewSlice("new", "slicefeed-default", netip.MustParseAddr("10.0.1.66")), in(there))
	foreign := changed(template, managedBy("somebody"), func(slice *discoveryv1.EndpointSlice) { slice.Name = "foreign" })
	f.Must(create(foreign)(f.Ctx(), f.ConsumingClient(), nil))
	service := f.CreateService(e2e.NewService("cart", e2e.InNamespace(there)))
	f.Until("the authorizer knows the new role", func() bool {
		return create(template)(f.Ctx(), thief, []string{metav1.DryRunAll}) == nil
	})
	before := everySlice(f)
	for _, one := range []struct {
		name    string
		attempt attempt
		says    []string
	}{
		{"a foreign slice changed", change(there, "foreign", pointTo("10.0.1.67")), []string{"ValidatingAdmissionPolicy", `managed by "somebody"`}},
		{"a foreign slice taken", change(there, "foreign", managedBy("slicefeed-default")), []string{"ValidatingAdmissionPolicy", `managed by "somebody"`}},
		{"a foreign slice deleted", remove(there, "foreign"), []string{"ValidatingAdmissionPolicy", `managed by "somebody"`}},
		{"an address outside", create(changed(template, pointTo("10.0.2.66"))), []string{"ValidatingAdmissionPolicy", "10.0.2.66"}},
		{"a port outside", create(changed(template, atPort(new(int32(6443))))), []string{"ValidatingAdmissionPolicy", "port 6443"}},
		{"a slice without a manager", create(changed(template, managedByNobody)), []string{"ValidatingAdmissionPolicy", `as managed by ""`}},
		{"a Service taken for ours", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().Services(there).Patch(ctx, service.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"slicefeed.dev/class":"default"}}}`), metav1.PatchOptions{})
			return err
		}, []string{`cannot patch resource "services"`}},
		{"a Lease there", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoordinationV1().Leases(there).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "slicefeed-default"}}, metav1.CreateOptions{})
			return err
		}, []string{`cannot create resource "leases"`}},
		{"a Pod there", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().Pods(there).List(ctx, metav1.ListOptions{})
			return err
		}, []string{`cannot list resource "pods"`}},
		{"Services of all namespaces read", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().Services(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
			return err
		}, []string{`cannot list resource "services"`}},
	} {
		t.Run(one.name, func(t *testing.T) {
			if err := one.attempt(t.Context(), thief, nil); !apierrors.IsForbidden(err) || !e2e.ContainsAll(err.Error(), one.says...) {
				t.Errorf("got %v, want a refusal that says %q", err, one.says)
			}
		})
	}
	if diff := cmp.Diff(before, everySlice(f)); diff != "" {
		t.Errorf("slices have changed (-before +after):\n%s", diff)
	}
}

package attack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// elsewhere is a namespace that is none of the writer's.
const elsewhere = "elsewhere"

// extraRights let the writer's account into namespaces that are none of its own, as a person
// would do who mistakes them for target namespaces: only the policy is then in its way. The
// twin may do in all of them what the writer may, and the policy does not know it.
const extraRights = `
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: twin, namespace: web}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: slices}
rules:
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slices, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: slices}
subjects:
- {kind: ServiceAccount, name: slicefeed-writer, namespace: web}
- {kind: ServiceAccount, name: twin, namespace: web}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slices, namespace: elsewhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: slices}
subjects:
- {kind: ServiceAccount, name: slicefeed-writer, namespace: web}
- {kind: ServiceAccount, name: twin, namespace: web}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: twin, namespace: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slicefeed-writer}
subjects:
- {kind: ServiceAccount, name: twin, namespace: web}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: twin-lease, namespace: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slicefeed-writer-lease}
subjects:
- {kind: ServiceAccount, name: twin, namespace: web}
`

// extraRightsGiven gives the extra rights for this test only.
func extraRightsGiven(s *e2e.Setup) {
	s.T.Helper()
	s.Must(s.Consuming.ApplyYAML(s.Ctx(), []byte(extraRights)))
	client := s.ConsumingClient()
	s.T.Cleanup(func() {
		ctx, at := context.WithoutCancel(s.T.Context()), metav1.DeleteOptions{}
		for _, err := range []error{
			client.RbacV1().RoleBindings("default").Delete(ctx, "slices", at),
			client.RbacV1().RoleBindings(elsewhere).Delete(ctx, "slices", at),
			client.RbacV1().RoleBindings(pair.Namespace).Delete(ctx, "twin", at),
			client.RbacV1().RoleBindings(pair.Namespace).Delete(ctx, "twin-lease", at),
			client.RbacV1().ClusterRoles().Delete(ctx, "slices", at),
			client.CoreV1().ServiceAccounts(pair.Namespace).Delete(ctx, "twin", at),
			client.DiscoveryV1().EndpointSlices(elsewhere).DeleteCollection(ctx, at, metav1.ListOptions{}),
		} {
			if err != nil {
				s.T.Error(err)
			}
		}
	})
}

// attempt is one request of an attack. With dry it changes nothing even if it passes.
type attempt func(ctx context.Context, as *kubernetes.Clientset, dry []string) error

// attack is an attempt that the policy has to refuse.
type attack struct {
	name    string
	attempt attempt
	says    string // in the refusal
}

// accounts are clients with the writer's own credential, and with that of a twin: it has the same rights, and no
// policy knows it. So what the twin's dry run passes, the policy alone refuses.
func accounts(s *e2e.Setup) (thief, twin *kubernetes.Clientset) {
	s.T.Helper()
	kubeconfig, err := s.Consuming.ServiceAccountKubeconfig(s.Ctx(), pair.Namespace, "twin")
	s.Must(err)
	return s.ClientWith(s.WriterKubeconfig()), s.ClientWith(kubeconfig)
}

// refusedByPolicy wants each attack to be refused by a policy, and by nothing else. Rights and policies take a moment to work.
func refusedByPolicy(s *e2e.Setup, policy string, all []attack) {
	s.T.Helper()
	policy += "." + pair.Namespace
	thief, twin := accounts(s)
	s.Until("the policy works", func() bool {
		err := all[0].attempt(s.T.Context(), thief, []string{metav1.DryRunAll})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
	})
	for _, one := range all {
		s.T.Run(one.name, func(t *testing.T) {
			inner := *s
			inner.T = t
			var err error
			inner.Until("nothing but the policy refuses it", func() bool {
				if err = one.attempt(t.Context(), twin, []string{metav1.DryRunAll}); err != nil {
					return false
				}
				err = one.attempt(t.Context(), thief, nil)
				return err == nil || strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
			})
			if !apierrors.IsForbidden(err) || !e2e.ContainsAll(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'", one.says) {
				t.Errorf("got %v, want a refusal that says %q", err, one.says)
			}
		})
	}
}

func create(slice *discoveryv1.EndpointSlice) attempt {
	return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
		_, err := as.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func remove(namespace, name string) attempt {
	return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
		return as.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
}

func change(namespace, name string, how ...func(*discoveryv1.EndpointSlice)) attempt {
	return func(ctx context.Context, as *kubernetes.Clientset, dry []string) error {
		slices := as.DiscoveryV1().EndpointSlices(namespace)
		slice, err := slices.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return errors.Join(errors.New("read it first"), err)
		}
		for _, one := range how {
			one(slice)
		}
		_, err = slices.Update(ctx, slice, metav1.UpdateOptions{DryRun: dry})
		return err
	}
}

func changed(slice *discoveryv1.EndpointSlice, how ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	slice = slice.DeepCopy()
	for _, one := range how {
		one(slice)
	}
	return slice
}

func managedBy(value string) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.Labels[discoveryv1.LabelManagedBy] = value }
}

func managedByNobody(slice *discoveryv1.EndpointSlice) {
	delete(slice.Labels, discoveryv1.LabelManagedBy)
}

func in(namespace string) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.Namespace = namespace }
}

func serviceName(name string) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.Labels[discoveryv1.LabelServiceName] = name }
}

// pointTo replaces the first endpoint's addresses.
func pointTo(all ...string) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.Endpoints[0].Addresses = all }
}

func ofType(family discoveryv1.AddressType) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.AddressType = family }
}

func atPort(number *int32) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.Ports[0].Port = number }
}

func withOwner(owner metav1.OwnerReference) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { slice.OwnerReferences = append(slice.OwnerReferences, owner) }
}

// full fills a slice to what the writer writes at most: 100 endpoints, at as many ports as the API server takes.
func full(slice *discoveryv1.EndpointSlice) {
	slice.Endpoints, slice.Ports = nil, nil
	for i := range 100 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("fd00:1::aaaa:bbbb:cccc:%x", i+1)}})
	}
	for i := range 100 {
		name := fmt.Sprint("port-", i)
		slice.Ports = append(slice.Ports,
			discoveryv1.EndpointPort{Name: &name, Protocol: new(corev1.ProtocolTCP), Port: new(int32(32000 + i))})
	}
	slice.AddressType = discoveryv1.AddressTypeIPv6
}

func TestAttackWithTheWritersOwnCredential(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	extraRightsGiven(s)
	thief, _ := accounts(s)

	const manager = "slicefeed-default"
	inside, outside := netip.MustParseAddr("10.0.1.66"), "10.0.2.66"
	template := e2e.NewSlice("new", manager, inside, inside.Next())
	s.Must(create(changed(template, func(slice *discoveryv1.EndpointSlice) { slice.Name = "ours" }))(s.Ctx(), thief, nil))
	plant := func(name string, how ...func(*discoveryv1.EndpointSlice)) string {
		how = append(how, func(slice *discoveryv1.EndpointSlice) { slice.Name = name })
		s.Must(create(changed(template, how...))(s.Ctx(), s.ConsumingClient(), nil))
		return name
	}
	foreign := plant("foreign", managedBy("somebody"))
	empty := plant("empty", managedBy(""))
	nobodys := plant("nobodys", managedByNobody)
	plant("away", in(elsewhere))

	here, before := pair.Namespace, everySlice(s)
	refusedByPolicy(s, "slicefeed-writer", []attack{
		{"the API server's own slice rewritten", change("default", "kubernetes", pointTo(inside.String())), "namespace default"},
		{"the API server's own slice labelled as ours", change("default", "kubernetes", managedBy(manager)), "namespace default"},
		{"the API server's own slice deleted", remove("default", "kubernetes"), "namespace default"},
		{"a second slice for the API server's Service", create(changed(template, in("default"), func(slice *discoveryv1.EndpointSlice) {
			slice.Labels[discoveryv1.LabelServiceName] = "kubernetes"
		})), "namespace default"},
		{
			"a slice of a Service named kubernetes in the writer's own namespace",
			create(changed(template, serviceName("kubernetes"))),
			"Service named kubernetes",
		},
		{"ours for a Service named kubernetes", change(here, "ours", serviceName("kubernetes")), "Service named kubernetes"},
		{"a slice in a foreign namespace", create(changed(template, in(elsewhere))), "namespace elsewhere"},
		{"a slice with our label in a foreign namespace, changed", change(elsewhere, "away", pointTo("10.0.1.67")), "namespace elsewhere"},
		{"a slice with our label in a foreign namespace, deleted", remove(elsewhere, "away"), "namespace elsewhere"},

		{"a foreign slice changed", change(here, foreign, pointTo("10.0.1.67")), `managed by "somebody"`},
		{"a foreign slice deleted", remove(here, foreign), `managed by "somebody"`},
		{"a foreign slice taken in two steps: labelled as ours", change(here, foreign, managedBy(manager)), `managed by "somebody"`},
		{
			"a foreign slice taken in two steps: then changed",
			change(here, foreign, managedBy(manager), pointTo("10.0.1.67")),
			`managed by "somebody"`,
		},
		{
			"a foreign slice taken in two steps: then labelled as before",
			change(here, foreign, managedBy("somebody")),
			`managed by "somebody"`,
		},
		{"a slice with an empty label taken", change(here, empty, managedBy(manager)), `managed by ""`},
		{"a slice with an empty label deleted", remove(here, empty), `managed by ""`},
		{"a slice without the label taken", change(here, nobodys, managedBy(manager)), `managed by ""`},
		{"a slice without the label deleted", remove(here, nobodys), `managed by ""`},
		{"ours passed off as somebody else's", change(here, "ours", managedBy("somebody")), `as managed by "somebody"`},
		{
			"ours passed off as the cluster's own",
			change(here, "ours", managedBy("endpointslice-controller.k8s.io")),
			`as managed by "endpointslice-controller.k8s.io"`,
		},
		{"ours with the label emptied", change(here, "ours", managedBy("")), `as managed by ""`},
		{"ours without the label", change(here, "ours", managedByNobody), `as managed by ""`},
		{"a new slice in somebody else's name", create(changed(template, managedBy("somebody"))), `as managed by "somebody"`},
		{"a new slice with an empty label", create(changed(template, managedBy(""))), `as managed by ""`},
		{"a new slice without the label", create(changed(template, managedByNobody)), `as managed by ""`},
		{
			"a new slice without any label",
			create(changed(template, func(slice *discoveryv1.EndpointSlice) { slice.Labels = nil })),
			`as managed by ""`,
		},

		{"a new slice with an address outside", create(changed(template, pointTo(outside))), "endpoint 10.0.2.66 is outside"},
		{"ours with an address outside", change(here, "ours", pointTo(outside)), "endpoint 10.0.2.66 is outside"},
		{"ours pointed at the API server", change(here, "ours", pointTo(pair.ConsumingAddress.String())), "endpoint 10.0.0.12 is outside"},
		{"an address outside behind one inside", change(here, "ours", pointTo(inside.String(), outside)), "one address of an endpoint"},
		{"an address outside in the last of a hundred endpoints", create(changed(template, full, func(slice *discoveryv1.EndpointSlice) {
			slice.Endpoints[99].Addresses[0] = "fd00:2::1"
		})), "endpoint fd00:2::1 is outside"},
		{
			"an IPv6 address outside",
			create(changed(template, ofType(discoveryv1.AddressTypeIPv6), pointTo("fd00:1::1"), func(slice *discoveryv1.EndpointSlice) {
				slice.Endpoints[1].Addresses = []string{"fd00:1:0:1::1"}
			})),
			"endpoint fd00:1:0:1::1 is outside",
		},
		{
			"names instead of addresses",
			create(changed(template, ofType(discoveryv1.AddressTypeFQDN), pointTo("evil.example"), func(slice *discoveryv1.EndpointSlice) {
				slice.Endpoints[1].Addresses = []string{"10-0-1-67.evil.example"}
			})),
			"addresses of type FQDN",
		},
		{"a port outside", change(here, "ours", atPort(new(int32(22)))), "port 22 is not"},
		{"a port just outside", create(changed(template, atPort(new(int32(32768))))), "port 32768 is not"},
		{"a port outside behind those inside", create(changed(template, full, func(slice *discoveryv1.EndpointSlice) {
			slice.Ports[99].Port = new(int32(6443))
		})), "port 6443 is not"},
		{"a port without a number", change(here, "ours", atPort(nil)), "without a number"},

		{"an owner that is no Service", change(here, "ours", withOwner(metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: "1",
		})), "only add a Service as owner"},
		{"an owner of a kind that is no target here", change(here, "ours", withOwner(metav1.OwnerReference{
			APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport", Name: "shop", UID: "1",
		})), "only add a Service as owner"},
		{"an owner that may not be deleted", change(here, "ours", withOwner(metav1.OwnerReference{
			APIVersion: "v1", Kind: "Service", Name: s.Service.Name, UID: s.Service.UID, BlockOwnerDeletion: new(true),
		})), "only add a Service as owner"},
		{"a slice that will not go away", change(here, "ours", func(slice *discoveryv1.EndpointSlice) {
			slice.Finalizers = []string{"example.org/never"}
		}), "no finalizers"},
	})
	if diff := cmp.Diff(before, everySlice(s)); diff != "" {
		t.Errorf("slices have changed (-before +after):\n%s", diff)
	}

	patch := func(what string) []byte { return []byte(`{"metadata":{"labels":{"a":"` + what + `"}}}`) }
	for _, one := range []struct {
		name    string
		attempt attempt
		says    string
	}{
		{"a Service patched", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().Services(here).Patch(ctx, pair.Service, types.MergePatchType, patch("b"), metav1.PatchOptions{})
			return err
		}, `cannot patch resource "services"`},
		{"a Service updated", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().Services(here).Update(ctx, s.Service, metav1.UpdateOptions{})
			return err
		}, `cannot update resource "services"`},
		{"legacy Endpoints made, to be mirrored", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			return as.CoreV1().RESTClient().Post().Namespace(here).Resource("endpoints").
				Body([]byte(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"shop"}}`)).Do(ctx).Error()
		}, `cannot create resource "endpoints"`},
		{"a slice patched", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.DiscoveryV1().EndpointSlices(here).Patch(ctx, foreign, types.MergePatchType, patch("b"), metav1.PatchOptions{})
			return err
		}, `cannot patch resource "endpointslices"`},
		{"all slices deleted at once", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			return as.DiscoveryV1().EndpointSlices(here).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}, `cannot deletecollection resource "endpointslices"`},
		{"a slice in a namespace without a Role", create(changed(template, in("kube-system"))), `cannot create resource "endpointslices"`},
		{"the policy deleted", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			return as.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, "slicefeed-writer.web", metav1.DeleteOptions{})
		}, `cannot delete resource "validatingadmissionpolicies"`},
		{"the policy's binding deleted", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			return as.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "slicefeed-writer.web", metav1.DeleteOptions{})
		}, `cannot delete resource "validatingadmissionpolicybindings"`},
		{"a right more", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.RbacV1().RoleBindings(here).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "more"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			}, metav1.CreateOptions{})
			return err
		}, `cannot create resource "rolebindings"`},
		{"the token of an account that the policy does not know", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().ServiceAccounts(here).CreateToken(ctx, "twin", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		}, `cannot create resource "serviceaccounts/token"`},
		{"a Secret read", func(ctx context.Context, as *kubernetes.Clientset, _ []string) error {
			_, err := as.CoreV1().Secrets(here).List(ctx, metav1.ListOptions{})
			return err
		}, `cannot list resource "secrets"`},
	} {
		t.Run(one.name, func(t *testing.T) {
			if err := one.attempt(t.Context(), thief, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), one.says) {
				t.Errorf("got %v, want a refusal that says %q", err, one.says)
			}
		})
	}
}

// everySlice is each slice of the cluster with its version.
func everySlice(s *e2e.Setup) map[string]string {
	s.T.Helper()
	all, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	versions := map[string]string{}
	for _, slice := range all.Items {
		versions[slice.Namespace+"/"+slice.Name] = slice.ResourceVersion
	}
	return versions
}

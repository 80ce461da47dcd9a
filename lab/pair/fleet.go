package pair

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
	"github.com/slicefeed/slicefeed/lab/pair/watch"
)

// OtherNamespace is one more that the admission policy lets the writers write in. They have no
// role in it before OpenNamespace.
const OtherNamespace = "checkout"

// OpenNamespace makes a namespace, unless it is there, and lets the writers into it by the
// manifest that users apply.
func (p *Pair) OpenNamespace(ctx context.Context, namespace string) error {
	_, err := p.consumingClient.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("open namespace %s: %w", namespace, err)
	}
	return p.applyManifest(ctx, "writer-rbac-namespace.yaml", "namespace: "+OtherNamespace+"\n", "namespace: "+namespace+"\n")
}

// OpenEverywhere lets the writers into all namespaces, by the manifest that users apply, and
// returns how to take that back.
func (p *Pair) OpenEverywhere(ctx context.Context) (undo func(context.Context) error, err error) {
	roles := p.consumingClient.RbacV1()
	return func(ctx context.Context) error {
		return errors.Join(roles.ClusterRoleBindings().Delete(ctx, "slicefeed-writer", metav1.DeleteOptions{}),
			roles.ClusterRoles().Delete(ctx, "slicefeed-writer", metav1.DeleteOptions{}))
	}, p.applyManifest(ctx, "writer-rbac-everywhere.yaml")
}

// importKinds is what makes ServiceImports targets in the admission policies.
const importKinds = "['Service', 'ServiceImport']"

// OpenImports lets the writers follow ServiceImports of their namespace, by the manifest that users apply, and has the
// admission policies take them for targets. It returns how to take that back.
func (p *Pair) OpenImports(ctx context.Context) (undo func(context.Context) error, err error) {
	if err := p.applyManifest(ctx, "writer-rbac-imports.yaml"); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return errors.Join(p.setKinds(ctx, "['Service']"), p.applyManifest(ctx, "writer-rbac.yaml"))
	}, p.setKinds(ctx, importKinds)
}

// setKinds sets the list kinds of both policies.
func (p *Pair) setKinds(ctx context.Context, kinds string) error {
	policies := p.consumingClient.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, name := range []string{policyName, policyName + "-events"} {
		policy, err := policies.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("set the kinds of targets: %w", err)
		}
		at := slices.IndexFunc(policy.Spec.Variables, func(v admissionregistrationv1.Variable) bool { return v.Name == "kinds" })
		if at < 0 {
			return fmt.Errorf("set the kinds of targets: policy %s has no variable kinds", name)
		}
		policy.Spec.Variables[at].Expression = kinds
		if _, err := policies.Update(ctx, policy, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set the kinds of targets: %w", err)
		}
	}
	return nil
}

// applyManifest applies one of the writer's, with replacements as a user would make them with sed.
func (p *Pair) applyManifest(ctx context.Context, name string, replacements ...string) error {
	raw, err := os.ReadFile(filepath.Join(p.root, "deploy", "manifests", name))
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	return p.Consuming.ApplyYAML(ctx, []byte(strings.NewReplacer(replacements...).Replace(string(raw))))
}

// Where the writer of another installation lives.
const rivalNamespace = "rival"

var rivalAddress = netip.MustParseAddr("10.0.0.31")

// RivalUser is the account of the other installation's writer.
const RivalUser = "system:serviceaccount:" + rivalNamespace + ":slicefeed-writer"

// AddRival prepares the writer of another installation: it has a namespace, an account and a
// Lease of its own, may write slices of this class where the first one may, in these namespaces, and
// is set like it; its class is for the caller to set.
// The caller ends it.
func (p *Pair) AddRival(ctx context.Context, class string, namespaces ...string) (*Half, error) {
	h, err := p.addRival(ctx, class, namespaces)
	if err != nil {
		return nil, fmt.Errorf("prepare another installation: %w", err)
	}
	return h, nil
}

func (p *Pair) addRival(ctx context.Context, class string, namespaces []string) (*Half, error) {
	err := p.applyManifest(
		ctx,
		"writer-rbac.yaml",
		"namespace: "+Namespace+"\n",
		"namespace: "+rivalNamespace+"\n",
		"name: "+Namespace+"\n",
		"name: "+rivalNamespace+"\n",
		"slicefeed-default",
		"slicefeed-"+class,
	)
	if err == nil {
		// The policies, and the ones in their bindings.
		err = p.applyPolicy(ctx, WriterUser, RivalUser, "ame: slicefeed-writer", "ame: slicefeed-writer-of-"+rivalNamespace,
			"'"+Namespace+"/slicefeed-default'", "'"+rivalNamespace+"/slicefeed-"+class+"'", "slicefeed-default", "slicefeed-"+class)
	}
	if err != nil {
		return nil, err
	}
	for _, namespace := range namespaces {
		_, err := p.consumingClient.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "rival"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "slicefeed-writer"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: rivalNamespace, Name: "slicefeed-writer"}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	kubeconfig, err := p.Consuming.ServiceAccountKubeconfig(ctx, rivalNamespace, "slicefeed-writer")
	if err != nil {
		return nil, err
	}
	first := p.Writers[0]
	return p.newFurther(rivalAddress, "rival", first.program, first.settings(), map[string]string{"TARGET_KUBECONFIG": kubeconfig})
}

// Fleet is what can be seen of all Services at once, in every namespace.
type Fleet struct {
	slices *watch.Set[*discoveryv1.EndpointSlice]
	events *watch.Set[*eventsv1.Event]
}

// Follow follows all EndpointSlices and Events of the consuming cluster until ctx ends.
func (p *Pair) Follow(ctx context.Context) (*Fleet, error) {
	f := &Fleet{}
	var err error
	slices := cache.NewListWatchFromClient(
		p.consumingClient.DiscoveryV1().RESTClient(),
		"endpointslices",
		metav1.NamespaceAll,
		fields.Everything(),
	)
	if f.slices, err = watch.Follow(ctx, slices, &discoveryv1.EndpointSlice{}); err != nil {
		return nil, err
	}
	events := cache.NewListWatchFromClient(p.consumingClient.EventsV1().RESTClient(), "events", metav1.NamespaceAll, fields.Everything())
	f.events, err = watch.Follow(ctx, events, &eventsv1.Event{})
	return f, err
}

// Wait returns when nothing is followed any more; the context of Follow must have ended.
func (f *Fleet) Wait() {
	f.slices.Wait()
	f.events.Wait()
}

// Of returns a Service's EndpointSlices.
func (f *Fleet) Of(service types.NamespacedName) []*discoveryv1.EndpointSlice {
	return of(service, f.slices.Now())
}

func of(service types.NamespacedName, all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var its []*discoveryv1.EndpointSlice
	for _, one := range all {
		if one.Namespace == service.Namespace && one.Labels[discoveryv1.LabelServiceName] == service.Name {
			its = append(its, one)
		}
	}
	return its
}

// WaitSince waits until a Service's slices are as told, and returns how long after start
// they first were.
func (f *Fleet) WaitSince(
	ctx context.Context,
	start time.Time,
	service types.NamespacedName,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	took, err := f.slices.Since(ctx, start, func(all []*discoveryv1.EndpointSlice) bool { return are(of(service, all)) })
	if err != nil {
		return 0, fmt.Errorf("the EndpointSlices of %s are not as expected but: %s: %w", service, Describe(f.Of(service)), err)
	}
	return took, nil
}

// Saw reports whether a Service's slices were as told at any time since start.
func (f *Fleet) Saw(start time.Time, service types.NamespacedName, are func([]*discoveryv1.EndpointSlice) bool) bool {
	over, end := context.WithCancel(context.Background())
	end()
	_, err := f.WaitSince(over, start, service, are)
	return err == nil
}

// WaitEach waits until the slices of each of these Services are as told, all at once, and
// returns how long after start they first were.
func (f *Fleet) WaitEach(
	ctx context.Context,
	start time.Time,
	services []types.NamespacedName,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	missing := 0
	took, err := f.slices.Since(ctx, start, func(all []*discoveryv1.EndpointSlice) bool {
		by := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
		for _, one := range all {
			service := types.NamespacedName{Namespace: one.Namespace, Name: one.Labels[discoveryv1.LabelServiceName]}
			by[service] = append(by[service], one)
		}
		missing = 0
		for _, service := range services {
			if !are(by[service]) {
				missing++
			}
		}
		return missing == 0
	})
	if err != nil {
		return 0, fmt.Errorf("the EndpointSlices of %d of %d Services are not as expected: %w", missing, len(services), err)
	}
	return took, nil
}

// WaitEvent waits for an Event about an object that is as told, or finds one from before.
func (f *Fleet) WaitEvent(ctx context.Context, about types.UID, is func(*eventsv1.Event) bool) (*eventsv1.Event, error) {
	var found *eventsv1.Event
	_, err := f.events.Since(ctx, time.Now(), func(all []*eventsv1.Event) bool {
		for _, e := range all {
			if e.Regarding.UID == about && is(e) {
				found = e
				return true
			}
		}
		return false
	})
	return found, err
}

// Events returns all that has been told about an object.
func (f *Fleet) Events(about types.UID) []*eventsv1.Event {
	var its []*eventsv1.Event
	for _, e := range f.events.Now() {
		if e.Regarding.UID == about {
			its = append(its, e)
		}
	}
	return its
}

// WritesBy returns a user's writes of EndpointSlices so far, in all namespaces.
func (p *Pair) WritesBy(ctx context.Context, user string) ([]audit.Write, error) {
	return p.audit.Writes(ctx, user)
}

// newFurther makes a half beside those that every pair has. Stop ends it too.
func (p *Pair) newFurther(address netip.Addr, name, program string, settings ...map[string]string) (*Half, error) {
	if err := netns.AddAddr(address); err != nil {
		return nil, err
	}
	own := map[string]string{"ADMIN_ADDRESS": port(address, adminPort), "DEBUG_ADDRESS": debugAddress(address)}
	h, err := newHalf(p.dir, program, address, name, append(settings, own)...)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.further = append(p.further, h)
	return h, nil
}

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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
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
		return errors.Join(roles.ClusterRoleBindings().Delete(ctx, policyName, metav1.DeleteOptions{}),
			roles.ClusterRoles().Delete(ctx, policyName, metav1.DeleteOptions{}))
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
	for _, name := range []string{policyName, "slicefeed-writer-events." + Namespace} {
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
func (p *Pair) AddRival(ctx context.Context, class string, namespaces ...string) (*Component, error) {
	h, err := p.addRival(ctx, class, namespaces)
	if err != nil {
		return nil, fmt.Errorf("prepare another installation: %w", err)
	}
	return h, nil
}

func (p *Pair) addRival(ctx context.Context, class string, namespaces []string) (*Component, error) {
	err := p.applyManifest(ctx, "writer-rbac.yaml", "namespace: "+Namespace+"\n", "namespace: "+rivalNamespace+"\n",
		"name: "+Namespace+"\n", "name: "+rivalNamespace+"\n", "slicefeed-default", "slicefeed-"+class)
	if err == nil {
		err = p.applyPolicy(ctx, WriterUser, RivalUser, "."+Namespace+"\n", "."+rivalNamespace+"\n", "namespace: "+Namespace+"\n",
			"namespace: "+rivalNamespace+"\n", "'"+Namespace+"/slicefeed-default'", "'"+rivalNamespace+"/slicefeed-"+class+"'",
			"slicefeed-default", "slicefeed-"+class)
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

// WritesBy returns a user's writes of EndpointSlices so far, in all namespaces.
func (p *Pair) WritesBy(ctx context.Context, user string) ([]audit.Write, error) {
	return p.audit.Writes(ctx, user)
}

// newFurther makes a component beside those that every pair has. Stop ends it too.
func (p *Pair) newFurther(address netip.Addr, name, program string, settings ...map[string]string) (*Component, error) {
	if err := netns.AddAddr(address); err != nil {
		return nil, err
	}
	own := map[string]string{"ADMIN_ADDRESS": port(address, adminPort), "DEBUG_ADDRESS": debugAddress(address)}
	h, err := newComponent(p.dir, program, address, name, append(settings, own)...)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.further = append(p.further, h)
	return h, nil
}

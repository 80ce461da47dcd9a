package preflight

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

func TestPermissionString(t *testing.T) {
	for want, p := range map[string]Permission{
		"list nodes":                         {Verb: "list", Resource: "nodes"},
		"get leases it in web":               {Verb: "get", Resource: "leases", Namespace: "web", Name: "it"},
		"update services in all namespaces":  {Verb: "update", Resource: "services", Namespace: AllNamespaces},
		"delete endpointslices in elsewhere": {Verb: "delete", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: "elsewhere"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestGroupsPermissionsByNamespace(t *testing.T) {
	var needed []Permission
	for _, namespace := range []string{"web", "shop", "depot", "yard"} {
		for _, verb := range []string{"list", "watch"} {
			needed = append(needed, Permission{Verb: verb, Resource: "services", Namespace: namespace})
		}
	}
	needed = append(needed, Permission{Verb: "get", Resource: "services", Namespace: "web"}, Permission{Verb: "get", Resource: "services", Namespace: "shop"},
		Permission{Verb: "get", Resource: "leases", Namespace: "web", Name: "it"},
		Permission{Verb: "list", Resource: "nodes"}, Permission{Verb: "list", Resource: "services", Namespace: AllNamespaces})
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		review := a.(ktesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview) //nolint:forcetypeassert // by its verb and resource
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = asked.Verb != "watch" || asked.Namespace == "shop"
		return true, review, nil
	})
	var got []string
	for _, c := range (Cluster{Reviews: client.AuthorizationV1().SelfSubjectAccessReviews(), Role: "deploy/half"}).Checks(needed, nil) {
		if c.Name == APIServer || c.Name == APIClock || c.Name == "no more permissions" {
			continue
		}
		saw, err := c.Run(t.Context())
		if err != nil {
			saw = "FAIL " + err.Error()
		}
		got = append(got, c.Name+": "+saw)
	}
	want := []string{
		"list services in 4 namespaces: allowed",
		"watch services in 4 namespaces: FAIL the credential may not watch services in web, depot, yard: bind the role of deploy/half to it",
		"get services in web, shop: allowed",
		"get leases it in web: allowed",
		"list nodes: allowed",
		"list services in all namespaces: allowed",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestPermissionChecks(t *testing.T) {
	needed := []Permission{{Verb: "list", Resource: "nodes"}, {Verb: "get", Resource: "services", Namespace: "web"}}
	excessive := []Permission{{Verb: "create", Resource: "pods", Namespace: "web"}, {Verb: "update", Resource: "services", Namespace: AllNamespaces}}
	for _, tt := range []struct {
		name    string
		allowed func(authorizationv1.ResourceAttributes) bool
		err     error
		want    []string
	}{
		{"what is needed and no more", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "list" || a.Verb == "get" }, nil, []string{
			"ok list nodes allowed", "ok get services in web allowed", "ok no more permissions the credential may do nothing dangerous of what was tried",
		}},
		{"less", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "list" }, nil, []string{
			"ok list nodes allowed", "FAIL get services in web the credential may not get services in web: bind the role of deploy/half to it", "ok no more",
		}},
		{"more", func(a authorizationv1.ResourceAttributes) bool { return a.Verb != "*" }, nil, []string{
			"ok list", "ok get", "WARN no more permissions the credential may also create pods in web, update services in all namespaces, which the half never does: give the half one of its own, with the role of deploy/half",
		}},
		{"more, but not everywhere", func(a authorizationv1.ResourceAttributes) bool { return a.Verb != "*" && a.Namespace != "" }, nil, []string{
			"FAIL list", "ok get", "WARN no more permissions the credential may also create pods in web, which",
		}},
		{"everything", func(authorizationv1.ResourceAttributes) bool { return true }, nil, []string{"ok list", "ok get", "WARN no more permissions the credential may do everything"}},
		{"no answer", nil, errors.New("away"), []string{"FAIL list nodes ask whether the credential may list nodes: away", "FAIL get", "FAIL no more"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "selfsubjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
				review := a.(ktesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview) //nolint:forcetypeassert // by its verb and resource
				if tt.err == nil {
					review.Status.Allowed = tt.allowed(*review.Spec.ResourceAttributes)
				}
				return true, review, tt.err
			})
			checks := Cluster{Reviews: client.AuthorizationV1().SelfSubjectAccessReviews(), Clock: &Clock{}, Component: "the half", Setting: "KUBECONFIG", Role: "deploy/half"}.Checks(needed, excessive)
			for i := range checks {
				checks[i].DependsOn = nil
			}
			var out bytes.Buffer
			Run(t.Context(), &out, checks[2:]) // what it says is looked at; the first two want a server
			var got []string
			for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
				line = strings.Join(strings.Fields(line), " ")
				if i < len(tt.want) && strings.HasPrefix(line, tt.want[i]) {
					line = tt.want[i]
				}
				got = append(got, line)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

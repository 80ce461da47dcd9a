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

	"github.com/slicefeed/slicefeed/services/internal/command"
)

func TestPermissionString(t *testing.T) {
	for want, p := range map[string]Permission{
		"list nodes":                         {Verb: "list", Resource: "nodes"},
		"get leases writer in web":           {Verb: "get", Resource: "leases", Namespaces: []string{"web"}, Name: "writer"},
		"update services in all namespaces":  {Verb: "update", Resource: "services", Namespaces: []string{AllNamespaces}},
		"delete endpointslices in elsewhere": {Verb: "delete", Group: "discovery.k8s.io", Resource: "endpointslices", Namespaces: []string{"elsewhere"}},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNamesNamespacesWithoutPermission(t *testing.T) {
	four, two := []string{"web", "shop", "depot", "yard"}, []string{"web", "shop"}
	needed := []Permission{
		{Verb: "list", Resource: "services", Namespaces: four},
		{Verb: "watch", Resource: "services", Namespaces: four},
		{Verb: "get", Resource: "services", Namespaces: two},
		{Verb: "get", Resource: "leases", Namespaces: []string{"web"}, Name: "writer"},
		{Verb: "list", Resource: "nodes"},
		{Verb: "list", Resource: "services", Namespaces: []string{AllNamespaces}},
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		review := a.(ktesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview) //nolint:forcetypeassert // by its verb and resource
		p := review.Spec.ResourceAttributes
		review.Status.Allowed = p.Verb != "watch" || p.Namespace == "shop"
		return true, review, nil
	})
	var got []string
	for _, c := range (&Cluster{Client: client, Role: "deploy/component"}).Checks(needed, nil) {
		if c.Name == APIServer || c.Name == APIClock || c.Name == ExcessPermissions {
			continue
		}
		observed, err := c.Run(t.Context())
		if err != nil {
			observed = "FAIL " + err.Error()
		}
		got = append(got, c.Name+": "+observed)
	}
	want := []string{
		"list services in 4 namespaces: allowed",
		"watch services in 4 namespaces: FAIL permission to watch services in web, depot, yard missing; bind the role of deploy/component to the credential",
		"get services in web, shop: allowed",
		"get leases writer in web: allowed",
		"list nodes: allowed",
		"list services in all namespaces: allowed",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestPermissionChecks(t *testing.T) {
	needed := []Permission{{Verb: "list", Resource: "nodes"}, {Verb: "get", Resource: "services", Namespaces: []string{"web"}}}
	excessive := []Permission{
		{Verb: "create", Resource: "pods", Namespaces: []string{"web"}},
		{Verb: "update", Resource: "services", Namespaces: []string{AllNamespaces}},
	}
	for _, tt := range []struct {
		name    string
		allowed func(authorizationv1.ResourceAttributes) bool
		err     error
		want    []string
	}{
		{"the needed permissions", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "list" || a.Verb == "get" }, nil, []string{
			"ok list nodes allowed", "ok get services in web allowed", "ok excess permissions none found",
		}},
		{"a missing permission", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "list" }, nil, []string{
			"ok list nodes allowed", "FAIL get services in web permission to get services in web missing; bind the role of deploy/component to the credential", "ok excess permissions none found",
		}},
		{"excess permissions", func(a authorizationv1.ResourceAttributes) bool { return a.Verb != "*" }, nil, []string{
			"ok list", "ok get", "WARN excess permissions create pods in web, update services in all namespaces; the component never needs them; use a separate credential with the role of deploy/component",
		}},
		{"excess permissions in a namespace", func(a authorizationv1.ResourceAttributes) bool { return a.Verb != "*" && a.Namespace != "" }, nil, []string{
			"FAIL list", "ok get", "WARN excess permissions create pods in web; the component",
		}},
		{"all permissions", func(authorizationv1.ResourceAttributes) bool { return true }, nil, []string{"ok list", "ok get", "WARN excess permissions all permissions; a stolen"}},
		{"no response", nil, errors.New("unreachable"), []string{"FAIL list nodes review permission to list nodes: unreachable", "FAIL get", "FAIL excess"}},
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
			checks := (&Cluster{Client: client, clock: &clock{}, Component: "the component", Setting: "KUBECONFIG", Role: "deploy/component"}).Checks(
				needed,
				excessive,
			)
			for i := range checks {
				checks[i].DependsOn = nil
			}
			var out bytes.Buffer
			Run(t.Context(), &out, command.Table, checks[2:]) // the output is checked below; the first two checks need a server
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

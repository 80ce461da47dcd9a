package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCheck returns a check with a fixed result.
func newCheck(name, observed string, err error) Check {
	return Check{Name: name, Run: func(context.Context) (string, error) { return observed, err }}
}

func TestPrintsChecks(t *testing.T) {
	gate := newCheck("API server", "", errors.New("https://10.0.0.1: no route; check the network"))
	gate.Gate = true
	for _, tt := range []struct {
		name   string
		checks []Check
		want   []string
		err    string
	}{
		{"all pass", []Check{newCheck("one", "allowed", nil), newCheck("number two", "v1", nil)}, []string{
			"one         ok       allowed",
			"number two  ok       v1",
		}, "<nil>"},
		{"a warning fails nothing", []Check{newCheck("one", "", Warning("expires in %d days; renew it", 10)), newCheck("two", "fine", nil)}, []string{
			"one  warning  expires in 10 days",
			"              renew it",
			"two  ok       fine",
		}, "<nil>"},
		{"a failure, and its advice", []Check{newCheck("one", "", errors.New("EOF; rejected; start it")), newCheck("two", "", errors.New("no"))}, []string{
			"one  FAILED   EOF; rejected",
			"              start it",
			"two  FAILED   no",
		}, "2 of 2 checks failed"},
		{"nothing runs after a gate that failed", []Check{newCheck("one", "fine", nil), gate, newCheck("two", "fine", nil)}, []string{
			"one         ok       fine",
			"API server  FAILED   https://10.0.0.1: no route",
			"                     check the network",
		}, "1 of 2 checks failed"},
		{"text from outside stays in its line", []Check{newCheck("one", "", errors.New("a\r\ntwo  ok  \x1b[2Jfine\xff\u0085;\n b"+strings.Repeat("é", 1400)))}, []string{
			"one  FAILED   a two ok [2Jfine? ; b" + strings.Repeat("é", 988) + "…",
		}, "1 of 1 checks failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(t.Context(), &out, command.Table, tt.checks)
			if d := cmp.Diff(strings.Join(tt.want, "\n")+"\n", out.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if got := fmt.Sprint(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
		})
	}
}

func TestPrintsChecksAsJSON(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), &out, command.JSON, []Check{
		newCheck("API server", "https://10.0.0.12:6443", nil),
		newCheck("nodes", "", errors.New("may not list nodes; bind the role\nof deploy/slicefeed-inventory to the credential")),
		newCheck("excess permissions", "", Warning("may list secrets, and never does; use a separate credential")),
	})
	if got := fmt.Sprint(err); got != "1 of 3 checks failed" {
		t.Error(got)
	}
	if err := testkit.CheckOutput("../../../docs/reference/output.md", "preflight", out.String()); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestChecksTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := Check{Name: "one", Run: func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }}
		startedAt := time.Now()
		if err := Run(
			t.Context(),
			new(bytes.Buffer),
			command.Table,
			[]Check{hangs, hangs},
		); err == nil ||
			time.Since(startedAt) != 2*timeout {
			t.Errorf("after %s: %v", time.Since(startedAt), err)
		}
	})
}

func TestStopsOnCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	interrupt := Check{Name: "one", Run: func(context.Context) (string, error) { cancel(); return "fine", nil }}
	for _, format := range []command.Format{command.Table, command.JSON} {
		if err := Run(
			ctx,
			&out,
			format,
			[]Check{interrupt, newCheck("two", "fine", nil)},
		); !errors.Is(err, context.Canceled) ||
			out.Len() > 0 {
			t.Errorf("%v:\n%s", err, out.String())
		}
	}
}

func TestReviewsPermissions(t *testing.T) {
	needed := []Permission{
		{Resource: "nodes", Verbs: []string{"list"}},
		{Resource: "services", Verbs: []string{"get", "list"}, Namespaces: []string{"web", "shop"}},
		{Resource: "leases", Name: "writer", Verbs: []string{"get"}, Namespaces: []string{"web"}},
		{Resource: "pods", Verbs: []string{"list"}, Namespaces: []string{AllNamespaces}},
	}
	excess := []Permission{
		{Resource: "pods", Verbs: []string{"create"}, Namespaces: []string{"web"}},
		{Resource: "services", Verbs: []string{"update"}, Namespaces: []string{AllNamespaces}},
	}
	for _, tt := range []struct {
		name    string
		allowed func(authorizationv1.ResourceAttributes) bool
		err     error
		want    []string
	}{
		{"what is needed", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "list" || a.Verb == "get" }, nil, []string{
			"nodes ok may list nodes",
			"services ok may get services in web, list services in web, get services in shop, list services in shop",
			"leases writer ok may get leases writer in web",
			"pods ok may list pods in all namespaces",
			"excess permissions ok none found",
		}},
		{"less", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "get" && a.Namespace == "web" }, nil, []string{
			"nodes FAILED may not list nodes",
			"bind the role of deploy/component to the credential",
			"services FAILED may not list services in web, get services in shop, list services in shop",
			"bind the role of deploy/component to the credential",
			"leases writer ok may get leases writer in web",
			"pods FAILED may not list pods in all namespaces",
			"bind the role of deploy/component to the credential",
			"excess permissions ok none found",
		}},
		{"more", func(authorizationv1.ResourceAttributes) bool { return true }, nil, []string{
			"nodes ok may list nodes", "services ok may", "leases writer ok", "pods ok",
			"excess permissions warning may create pods in web, update services in all namespaces, and never does",
			"use a separate credential with the role of deploy/component",
		}},
		{"no response", nil, errors.New("unreachable"), []string{
			"nodes FAILED review permission to list nodes: unreachable", "services FAILED", "leases writer FAILED", "pods FAILED", "excess permissions FAILED",
		}},
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
			checks := (&Cluster{Client: client, Chart: "deploy/component", Needed: needed, Excess: excess}).Checks()
			expectPrefixes(t, checks[1:], tt.want)
		})
	}
}

func TestReachesAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	check := (&Cluster{Client: client, Host: server.URL, Setting: "KUBECONFIG"}).Checks()[:1]
	expectPrefixes(t, check, []string{"API server ok " + server.URL})
	server.Close()
	expectPrefixes(t, check, []string{"API server FAILED " + server.URL + ": ", "check the address and CA in KUBECONFIG, and the network"})
}

// expectPrefixes compares the beginnings of the printed lines, without alignment.
func expectPrefixes(t *testing.T, checks []Check, want []string) {
	t.Helper()
	var out bytes.Buffer
	Run(t.Context(), &out, command.Table, checks)
	var got []string
	for line := range strings.Lines(out.String()) {
		line = strings.Join(strings.Fields(line), " ")
		if n := len(got); n < len(want) && strings.HasPrefix(line, want[n]) {
			line = want[n]
		}
		got = append(got, line)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

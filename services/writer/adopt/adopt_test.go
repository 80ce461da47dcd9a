package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// adoptResult is what the command changed and printed.
type adoptResult struct {
	err            error
	stdout, stderr string
	patches        []clienttesting.PatchActionImpl
	now            *discoveryv1.EndpointSlice
}

func runAdopt(t *testing.T, client *fake.Clientset, cfg Config) adoptResult {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cfg.Class = "default"
	err := adoptSlice(
		t.Context(),
		client,
		types.NamespacedName{Namespace: "web", Name: "by-hand"},
		command.Invocation[Config]{Config: &cfg, Out: &stdout, Err: &stderr},
	)
	result := adoptResult{err: err, stdout: stdout.String(), stderr: stderr.String()}
	for _, action := range client.Actions() {
		if patch, ok := action.(clienttesting.PatchActionImpl); ok {
			result.patches = append(result.patches, patch)
		} else if action.GetVerb() != "get" {
			t.Errorf("it did: %v", action)
		}
	}
	result.now, _ = client.DiscoveryV1().EndpointSlices("web").Get(context.Background(), "by-hand", metav1.GetOptions{})
	return result
}

func TestAdoptionChangesOneLabelOfCheckedSlice(t *testing.T) {
	slice := foreignSlice()
	slice.Labels[discoveryv1.LabelManagedBy] = "endpoint-updater"
	slice.Annotations = map[string]string{"theirs": "stays"}
	got := runAdopt(t, fake.NewClientset(slice, newService()), Config{})
	if got.err != nil || len(got.patches) != 1 {
		t.Fatalf("%v; patches: %v", got.err, got.patches)
	}
	want := slice.DeepCopy()
	want.Labels[discoveryv1.LabelManagedBy] = "slicefeed-default"
	if diff := cmp.Diff(want, got.now); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var sent map[string]any
	if err := json.Unmarshal(got.patches[0].Patch, &sent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"metadata": map[string]any{
		"uid": "slice-1", "resourceVersion": "7", "labels": map[string]any{discoveryv1.LabelManagedBy: "slicefeed-default"},
	}}, sent); diff != "" {
		t.Errorf("the patch (-want +got):\n%s", diff)
	}
	for _, part := range []string{"web/by-hand of Service shop adopted", "~ label endpointslice.kubernetes.io/managed-by endpoint-updater -> slicefeed-default", "endpoints (2) and ports (1) unchanged"} {
		if !strings.Contains(got.stdout, part) {
			t.Errorf("it does not say %q:\n%s", part, got.stdout)
		}
	}
	if !strings.Contains(got.stderr, `warning: it was managed by "endpoint-updater"`) {
		t.Errorf("it does not warn:\n%s", got.stderr)
	}
}

func TestDryRunIsSentToAPIServer(t *testing.T) {
	got := runAdopt(t, fake.NewClientset(foreignSlice(), newService()), Config{DryRun: true})
	if got.err != nil || len(got.patches) != 1 || !cmp.Equal(got.patches[0].PatchOptions.DryRun, []string{metav1.DryRunAll}) {
		t.Errorf("%v; patches: %+v", got.err, got.patches)
	}
	if !strings.Contains(got.stdout, "would be adopted (dry run)\n  + label endpointslice.kubernetes.io/managed-by slicefeed-default") {
		t.Errorf("it says:\n%s", got.stdout)
	}
}

func TestWritesNothingWithoutNeedOrPermission(t *testing.T) {
	owned, of, gone := foreignSlice(), newService(), foreignSlice()
	owned.Labels[discoveryv1.LabelManagedBy] = "slicefeed-default"
	of.Spec.Selector = map[string]string{"app": "shop"}
	gone.Name = "another"
	for name, tc := range map[string]struct {
		objects []runtime.Object
		err     string
		says    string
	}{
		"owned already":          {[]runtime.Object{owned, newService()}, "", "nothing to do"},
		"rejected":               {[]runtime.Object{foreignSlice(), of}, "web/by-hand cannot be adopted: its Service web/shop has a selector", ""},
		"no such slice":          {[]runtime.Object{gone, newService()}, "read EndpointSlice web/by-hand: ", ""},
		"a Service that is gone": {[]runtime.Object{foreignSlice()}, "Service web/shop in its label", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := runAdopt(t, fake.NewClientset(tc.objects...), Config{})
			if (got.err == nil) != (tc.err == "") || got.err != nil && !strings.Contains(got.err.Error(), tc.err) ||
				!strings.Contains(got.stdout, tc.says) {
				t.Errorf("%v\n%s", got.err, got.stdout)
			}
			if len(got.patches) != 0 {
				t.Errorf("patches: %v", got.patches)
			}
		})
	}
}

func TestAPIServerErrorsGiveAdvice(t *testing.T) {
	resource := discoveryv1.Resource("endpointslices")
	for name, tc := range map[string]struct {
		answer error
		verb   string
		says   string
	}{
		"modified since":               {apierrors.NewConflict(resource, "by-hand", errors.New("the object has been modified")), "patch", "stop the other writer first"},
		"the credential may not":       {apierrors.NewForbidden(resource, "by-hand", errors.New("no")), "patch", "credential of your own"},
		"not even read":                {apierrors.NewForbidden(resource, "by-hand", errors.New("no")), "get", "read "},
		"it fails for its own reasons": {apierrors.NewInternalError(errors.New("etcd is away")), "patch", "etcd is away"},
	} {
		for _, of := range []string{"endpointslices", "services"} {
			if of == "services" && tc.verb != "get" {
				continue
			}
			t.Run(name+", "+of, func(t *testing.T) {
				client := fake.NewClientset(foreignSlice(), newService())
				client.PrependReactor(tc.verb, of, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, tc.answer
				})
				got := runAdopt(t, client, Config{})
				if got.err == nil || !strings.Contains(got.err.Error(), tc.says) || got.stdout != "" {
					t.Errorf("%v\n%s", got.err, got.stdout)
				}
			})
		}
	}
}

func TestValidatesCommandLineBeforeRequests(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(empty, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		says string
	}{
		"no slice":                       {nil, nil, "NAMESPACE/SLICE"},
		"no namespace":                   {[]string{"by-hand"}, nil, `"by-hand": want a namespace, a slash`},
		"a kind in front":                {[]string{"web/endpointslice/by-hand"}, nil, "want a namespace"},
		"a class that cannot be":         {[]string{"web/by-hand", "--class=Blue Moon"}, nil, "CLASS="},
		"a reserved label":               {[]string{"web/by-hand"}, map[string]string{"TARGET_NAMESPACE": "web", "TARGET_SERVICE_NAME": "shop", "TARGET_MANAGED_BY": "x.k8s.io"}, "TARGET_MANAGED_BY=\"x.k8s.io\": want a value that does not end in .k8s.io"},
		"a label that is none":           {[]string{"web/by-hand"}, map[string]string{"TARGET_NAMESPACE": "web", "TARGET_SERVICE_NAME": "shop", "TARGET_MANAGED_BY": "a/b"}, "TARGET_MANAGED_BY="},
		"part of a target":               {[]string{"web/by-hand", "--target-service-name=shop"}, nil, "TARGET_NAMESPACE is not set"},
		"a label of no target":           {[]string{"web/by-hand", "--target-managed-by=x"}, nil, "TARGET_MANAGED_BY=\"x\": want no value, because TARGET_SERVICE_NAME is not set"},
		"a kubeconfig that is not there": {[]string{"web/by-hand"}, map[string]string{"KUBECONFIG": "/nonexistent"}, "/nonexistent"},
		"a context that is not there":    {[]string{"web/by-hand", "--kubeconfig=" + empty, "--kube-context=moon"}, nil, "moon"},
		"files without the context":      {[]string{"web/by-hand", "--kube-context=moon"}, map[string]string{"KUBECONFIG": empty + ":/nonexistent"}, "moon"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			component := command.Component[struct{}]{Name: "slicefeed-writer", Standalone: []command.StandaloneCommand{NewCommand()}}
			cmd := component.Command(func(name string) string { return tc.env[name] })
			cmd.SetArgs(append([]string{"adopt"}, tc.args...))
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			if settings.ExitCode(err) != 2 || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("exit code %d, want 2 and %q: %v", settings.ExitCode(err), tc.says, err)
			}
		})
	}
}

func TestFindsClusterLikeKubectl(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, current string) string {
		path := filepath.Join(dir, name)
		text := "apiVersion: v1\nkind: Config\ncurrent-context: " + current + "\nclusters: [{name: c, cluster: {server: 'https://" + name + "'}}]\n" +
			"contexts: [{name: " + name + ", context: {cluster: c}}, {name: nowhere, context: {cluster: none}}]\n"
		if name == "second" { // a merged file's names are its own
			text = strings.NewReplacer("name: c,", "name: d,", "cluster: c}", "cluster: d}").Replace(text)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second := file("first", "first"), file("second", "")
	t.Setenv("KUBECONFIG", file("third", "third"))
	for name, tc := range map[string]struct{ kubeconfig, context, host string }{
		"by its one file":            {first, "", "https://first"},
		"by several":                 {first + ":" + second, "", "https://first"},
		"by a context of the second": {first + ":" + second, "second", "https://second"},
		"by several, one missing":    {filepath.Join(dir, "lost") + ":" + first, "", "https://first"},
		"by the usual rules":         {"", "", "https://third"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Kubeconfig: tc.kubeconfig, Context: tc.context}
			_, host, err := cfg.newClient()
			if err != nil || host != tc.host {
				t.Errorf("%q, %v; want %q", host, err, tc.host)
			}
		})
	}
	for name, cfg := range map[string]Config{
		"a file that is not there":    {Kubeconfig: filepath.Join(dir, "lost")},
		"a context that is not there": {Kubeconfig: first, Context: "moon"},
		"a context of nothing":        {Kubeconfig: first, Context: "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, host, err := cfg.newClient(); settings.ExitCode(err) != 2 {
				t.Errorf("%q, %v", host, err)
			}
		})
	}
}

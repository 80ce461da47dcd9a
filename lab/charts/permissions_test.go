package charts

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestAccountsMayDoWhatTheirProgramsNeedAndNoMore runs each program's preflight with the chart's environment and the
// credential of the chart's ServiceAccount. The API server must allow what preflight requires, and the chart's roles
// must grant nothing else. The end-to-end tests run both programs with these roles, so preflight requires enough.
func TestAccountsMayDoWhatTheirProgramsNeedAndNoMore(t *testing.T) {
	c := startCluster(t)
	const minimal = "-f deploy/%/examples/minimal.yaml "
	for _, row := range []struct{ name, chart, flags string }{
		{"nodes", inventory, ""},
		{"workload", inventory, "--set settings.WORKLOAD=ingress/app=gateway"},
		{"service", inventory, "--set settings.SOURCE_KIND=service,settings.SOURCE_SERVICE=shop/web"},
		{"exports", inventory, `--set settings.SOURCE_KIND=service,settings.SOURCE_SERVICE_SELECTOR=export=true
			--set-json 'allowedClients=[{"san":"writer.example.org","role":"subscriber","services":["shop/*","till/*"]}]'`},
		{"writer", writer, ""},
		{"namespaces", writer, `--set 'settings.WATCH_NAMESPACES=shop\,till'`},
		{"everywhere", writer, "--set 'settings.WATCH_NAMESPACES=*,policy.namespaces={shop}'"},
		{"imports", writer, "--set settings.SERVICE_IMPORTS=true"},
	} {
		flags := strings.ReplaceAll(minimal, "%", row.chart) + strings.ReplaceAll(row.flags, "\n", " ")
		text, objects := c.render(row.name, row.chart, flags)
		c.must(c.ApplyYAML(t.Context(), []byte(text)))
		output := c.preflight(row.name, row.chart, objects)
		if diff := gocmp.Diff(granted(t, objects), allowed(output)); diff != "" {
			t.Errorf("%s (-granted by the chart +required by preflight):\n%s\n%s", row.name, diff, output)
		}
		if !regexp.MustCompile(`(?m)^excess permissions +ok +none found`).MatchString(output) {
			t.Errorf("%s: preflight prints\n%s", row.name, output)
		}
	}
}

// preflight runs a program as the Deployment's Pod would, and returns what it prints. Without certificates or a link, some
// checks fail.
func (c *cluster) preflight(release, chart string, objects []*unstructured.Unstructured) string {
	c.t.Helper()
	account, err := c.ServiceAccountKubeconfig(c.t.Context(), release, release)
	c.must(err)
	replaced := []string{map[string]string{inventory: "SECURED_KUBECONFIG=", writer: "TARGET_KUBECONFIG="}[chart] + account}
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.root, ".bin", chart), "preflight")
	clients := filepath.Join(c.t.TempDir(), "clients.yaml")
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			for _, v := range convert[appsv1.Deployment](c.t, o).Spec.Template.Spec.Containers[0].Env {
				cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
			}
		case "ConfigMap":
			c.must(os.WriteFile(clients, []byte(convert[corev1.ConfigMap](c.t, o).Data["clients.yaml"]), 0o600))
			replaced = append(replaced, "ALLOWED_CLIENTS_FILE="+clients)
		}
	}
	cmd.Env = append(cmd.Env, replaced...) // the last value of a variable counts
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 1 {
		c.t.Fatalf("%s preflight: %v\n%s", chart, err, out)
	}
	return string(out)
}

// allowed returns the permissions that a preflight requires and has, one for each namespace.
func allowed(output string) (permissions []string) {
	for _, match := range regexp.MustCompile(`(?m) ok +may (.*)$`).FindAllStringSubmatch(output, -1) {
		for permission := range strings.SplitSeq(match[1], ", ") {
			permissions = append(permissions, strings.Replace(permission, " in ", " ", 1))
		}
	}
	slices.Sort(permissions)
	return permissions
}

// granted returns the permissions of all roles that are bound, one for each namespace.
func granted(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	permissions := map[string]bool{}
	for _, o := range objects {
		if kind := o.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		for _, rule := range convert[rbacv1.Role](t, o).Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					for _, name := range names {
						where := o.GetNamespace()
						if where == "" && resource != "nodes" {
							where = "all namespaces"
						}
						permissions[strings.Join(strings.Fields(verb+" "+resource+" "+name+" "+where), " ")] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(permissions))
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) (object T) {
	t.Helper()
	raw, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

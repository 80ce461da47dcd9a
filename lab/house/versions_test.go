package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// kubernetes is the version of Kubernetes that a module of lab/upstream builds its programs of.
func kubernetes(t *testing.T, module string) string {
	t.Helper()
	return upstreamVersion(t, module, "k8s.io/kubernetes")
}

// upstreamVersion is the version of something that a module of lab/upstream requires.
func upstreamVersion(t *testing.T, module, of string) string {
	t.Helper()
	path := filepath.Join(root, "lab/upstream", module, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range parsed.Require {
		if r.Mod.Path == of {
			return strings.TrimPrefix(r.Mod.Version, "v")
		}
	}
	t.Fatalf("%s requires no %s", path, of)
	return ""
}

// What is said of versions is what the end-to-end tests are run against.
func TestTheVersionsOfKubernetesThatAreNamedAreThoseThatAreRun(t *testing.T) {
	newest, oldest := kubernetes(t, ""), kubernetes(t, "oldest")
	if controllers := kubernetes(t, "controllers"); controllers != newest {
		t.Errorf("the controllers are of Kubernetes %s, and the API servers of %s", controllers, newest)
	}
	coreDNS := "CoreDNS " + upstreamVersion(t, "coredns", "github.com/coredns/coredns")
	managers := map[string]string{}
	for _, name := range []string{"cert-manager", "trust-manager"} {
		path := "github.com/cert-manager/" + name
		managers[name] = upstreamVersion(t, "crds", path)
		if run := upstreamVersion(t, strings.ReplaceAll(name, "-", ""), path); run != managers[name] {
			t.Errorf("%s %s is run with the definitions of %s", name, run, managers[name])
		}
	}
	minor := oldest[:strings.LastIndex(oldest, ".")]
	for file, says := range map[string][]string{
		"README.md":                             {"Kubernetes " + minor + " or newer"},
		"docs/deploy/upgrade.md":                {"Kubernetes " + minor + " or newer", oldest, newest, coreDNS},
		"docs/use/consumers.md":                 {coreDNS},
		"docs/use/service-imports.md":           {coreDNS},
		"docs/deploy/certificates.md":           {"cert-manager " + managers["cert-manager"], "trust-manager " + managers["trust-manager"]},
		"docs/design/policy.md":                 {"Kubernetes " + minor + " or newer"},
		"deploy/slicefeed-inventory/Chart.yaml": {`kubeVersion: ">=` + minor + `.0-0"`},
		"deploy/slicefeed-writer/Chart.yaml":    {`kubeVersion: ">=` + minor + `.0-0"`},
	} {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		text := strings.Join(strings.Fields(string(raw)), " ") // lines are broken anywhere
		for _, want := range says {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q, and that is what is run", file, want)
			}
		}
	}
}

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// umbrella is a chart that has both of ours as dependencies, each under a condition, as people do who install all of a
// cluster's software by one chart. Helm passes global to each dependency, and the condition is one of its values.
const umbrella = `apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: slicefeed-inventory, version: 0.1.0, repository: "file://%[1]s/deploy/slicefeed-inventory", condition: slicefeed-inventory.enabled}
- {name: slicefeed-writer, version: 0.1.0, repository: "file://%[1]s/deploy/slicefeed-writer", condition: slicefeed-writer.enabled}
`

// umbrella makes the chart, and returns where.
func (s *stage) umbrella() (dir string) {
	s.t.Helper()
	dir = filepath.Join(s.Dir(), "umbrella")
	s.must(os.MkdirAll(dir, 0o700))
	s.must(os.WriteFile(filepath.Join(dir, "Chart.yaml"), fmt.Appendf(nil, umbrella, s.root), 0o600))
	s.run(`helm dependency build "$DIR/umbrella" || helm dependency update "$DIR/umbrella"`)
	return dir
}

func TestEachChartRendersInUmbrellaAsItDoesAlone(t *testing.T) {
	s := enter(t)
	dir := s.umbrella()
	for _, chart := range []string{Inventory, Writer} {
		t.Run(chart, func(t *testing.T) {
			s := &stage{s.World, t}
			values, err := os.ReadFile(filepath.Join(s.root, "deploy", chart, "examples", "minimal.yaml"))
			s.must(err)
			other := map[string]string{Inventory: Writer, Writer: Inventory}[chart]
			text := "global: {clusterDomain: example.org, imageRegistry: registry.example.org}\n" + other + ": {enabled: false}\n" +
				chart + ":\n  enabled: true\n  " + strings.ReplaceAll(string(values), "\n", "\n  ") + "\n"
			s.must(os.WriteFile(filepath.Join(dir, chart+".yaml"), []byte(text), 0o600))
			alone := s.run(fmt.Sprintf("helm template %s deploy/%[1]s -n shop -f deploy/%[1]s/examples/minimal.yaml", chart))
			below := s.run(fmt.Sprintf(`helm template %s "$DIR/umbrella" -n shop -f "$DIR/umbrella/%[1]s.yaml"`, chart))
			below = strings.ReplaceAll(below, "# Source: platform/charts/", "# Source: ")
			if diff := cmp.Diff(alone, below); diff != "" {
				t.Errorf("%s (-alone +in an umbrella chart):\n%s", chart, diff)
			}
			if out, err := s.Run(
				s.ctx(),
				fmt.Sprintf(`helm template x "$DIR/umbrella" -n shop -f "$DIR/umbrella/%s.yaml" --set %[1]s.enabledd=true`, chart),
			); err == nil ||
				!strings.Contains(out, "enabledd") {
				t.Errorf("a value that neither knows was accepted: %v\n%s", err, out)
			}
		})
	}
}

// One release of an umbrella chart has both components, under two names.
func TestAnUmbrellaIsInstalled(t *testing.T) {
	s := enter(t)
	dir := s.umbrella()
	s.must(os.WriteFile(filepath.Join(dir, "both.yaml"), []byte(`global: {clusterDomain: example.org}
slicefeed-inventory:
  fullnameOverride: nodes
  podSecurityContext: {runAsGroup: null}
  settings: {SOURCE_KIND: static, SECURED_SUBNET_CIDR: 10.0.1.0/24, INVENTORY_STATIC: '[{"name": "one", "private_ip": "10.0.1.203", "ready": true, "worker": true}]'}
  allowedClients: [{san: "spiffe://example.org/slicefeed/writer", role: subscriber}]
slicefeed-writer:
  fullnameOverride: slices
  podSecurityContext: {runAsGroup: null}
  settings: {INVENTORY_ADDRESS: "nodes.umbrella.svc:9443", INVENTORY_SAN: "spiffe://example.org/slicefeed/inventory", SECURED_SUBNET_CIDR: 10.0.1.0/24}
`), 0o600))
	const k = "kubectl --context consuming -n umbrella "
	s.run(k + `create namespace umbrella
deploy/certificates.sh --inventory-namespace umbrella --writer-namespace umbrella --secured-context consuming all "$DIR/umbrella/pki" >"$DIR/umbrella/pki.sh"
sh -e "$DIR/umbrella/pki.sh"
helm --kube-context consuming install platform "$DIR/umbrella" -n umbrella -f "$DIR/umbrella/both.yaml" --wait --timeout 50s`)
	defer s.run(`helm --kube-context consuming uninstall platform -n umbrella --wait; ` + k + `delete namespace umbrella --wait=false`)
	s.wantLines(s.run(k+"exec deployment/nodes -- /slicefeed-inventory preflight"), "ok +first observation")
	out, _ := s.Run(s.ctx(), k+"exec deployment/slices -- /slicefeed-writer preflight") // no DNS has the inventory's name
	s.wantLines(out, "ok +admission policy +a slice", "ok +excess permissions +none found")
	for _, name := range []string{"nodes", "slices"} { // null reaches a chart below another
		if ids := s.run(
			k + "get deployment " + name + " -o jsonpath='{.spec.template.spec.securityContext}'",
		); strings.Contains(ids, "runAsGroup") ||
			!strings.Contains(ids, `"runAsUser":65532`) {
			t.Errorf("%s has the security context %s", name, ids)
		}
	}
}

// In Helm, null removes a default. The charts render without any of theirs.
func TestMapsAndListsCanBeTakenAway(t *testing.T) {
	s := enter(t)
	for _, chart := range []string{Inventory, Writer} {
		out := s.run(
			"helm template x deploy/" + chart + " -f deploy/" + chart + "/examples/minimal.yaml --set monitoring.alerts=true,monitoring.podMonitor=true,monitoring.dashboard=true" +
				" --set podLabels=null,commonLabels=null,podAnnotations=null,podSecurityContext=null,securityContext=null,monitoring.labels=null,monitoring.alertLabels=null" +
				",monitoring.relabelings=null,topologySpreadConstraints=null,extraEnv=null,extraArgs=null,extraVolumes=null,extraVolumeMounts=null,affinity=null,serviceAccount.annotations=null",
		)
		if n := len(s.objects(out)); n < 9 {
			t.Errorf("%s renders %d objects", chart, n)
		}
	}
}

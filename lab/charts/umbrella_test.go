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

func TestEachChartRendersInUmbrellaAsItDoesAlone(t *testing.T) {
	s := enter(t)
	dir := filepath.Join(s.Dir(), "umbrella")
	s.must(os.MkdirAll(dir, 0o700))
	s.must(os.WriteFile(filepath.Join(dir, "Chart.yaml"), fmt.Appendf(nil, umbrella, s.root), 0o600))
	s.run(`helm dependency build "$DIR/umbrella" || helm dependency update "$DIR/umbrella"`)
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
			if out, err := s.Run(s.ctx(), fmt.Sprintf(`helm template x "$DIR/umbrella" -n shop -f "$DIR/umbrella/%s.yaml" --set %[1]s.enabledd=true`, chart)); err == nil || !strings.Contains(out, "enabledd") {
				t.Errorf("a value that neither knows was accepted: %v\n%s", err, out)
			}
		})
	}
}

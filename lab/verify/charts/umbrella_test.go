package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/charts"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// umbrella depends on both charts, each with a condition. Helm passes global to each dependency, and the condition is one of its
// values.
const umbrella = `apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: slicefeed-inventory, version: 0.1.0, repository: "file://%[1]s/deploy/slicefeed-inventory", condition: slicefeed-inventory.enabled}
- {name: slicefeed-writer, version: 0.1.0, repository: "file://%[1]s/deploy/slicefeed-writer", condition: slicefeed-writer.enabled}
`

func TestEachChartRendersInUmbrellaAsItDoesAlone(t *testing.T) {
	if !verifies {
		t.Skip("part of make verify")
	}
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command string) string {
		out, err := charts.Run(t.Context(), command)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	write("Chart.yaml", fmt.Sprintf(umbrella, root))
	run("helm dependency update " + dir)
	for chart, other := range map[string]string{inventory: writer, writer: inventory} {
		values := run("cat deploy/" + chart + "/examples/minimal.yaml")
		write(chart+".yaml", "global: {clusterDomain: example.org, imageRegistry: registry.example.org}\n"+other+": {enabled: false}\n"+
			chart+":\n  enabled: true\n  "+strings.ReplaceAll(values, "\n", "\n  ")+"\n")
		alone := run(fmt.Sprintf("helm template %s deploy/%[1]s -n shop -f deploy/%[1]s/examples/minimal.yaml", chart))
		below := fmt.Sprintf("helm template %s %s -n shop -f %[2]s/%[1]s.yaml", chart, dir)
		if diff := cmp.Diff(alone, strings.ReplaceAll(run(below), "# Source: platform/charts/", "# Source: ")); diff != "" {
			t.Errorf("%s (-alone +in an umbrella chart):\n%s", chart, diff)
		}
		if _, err := charts.Run(t.Context(), below+" --set "+chart+".enabledd=true"); err == nil ||
			!strings.Contains(err.Error(), "enabledd") {
			t.Errorf("a value that neither chart knows was accepted: %v", err)
		}
	}
}

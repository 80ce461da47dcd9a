package house

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// chart is a Chart.yaml as far as Artifact Hub reads it.
type chart struct {
	Version     string `json:"version"`
	AppVersion  string `json:"appVersion"`
	Icon        string `json:"icon"`
	Maintainers []struct {
		Name string `json:"name"`
	} `json:"maintainers"`
	Annotations map[string]string `json:"annotations"`
}

// Artifact Hub shows what a chart's annotations say, and no tool compares them with the chart.
func TestArtifactHubsAnnotationsFitTheCharts(t *testing.T) {
	for _, component := range halves {
		var c chart
		must(t, yaml.Unmarshal([]byte(read(t, ofChart(component, "Chart.yaml"))), &c))
		var values struct {
			Image struct {
				Repository string `json:"repository"`
			} `json:"image"`
		}
		must(t, yaml.Unmarshal([]byte(read(t, ofChart(component, "values.yaml"))), &values))
		var images []struct {
			Name      string   `json:"name"`
			Image     string   `json:"image"`
			Platforms []string `json:"platforms"`
		}
		must(t, yaml.UnmarshalStrict([]byte(c.Annotations["artifacthub.io/images"]), &images))
		if want := values.Image.Repository + ":" + c.AppVersion; len(images) != 1 || images[0].Image != want {
			t.Errorf("%s: the images are %v, want %s alone", component, images, want)
		}
		var changes []struct {
			Kind        string `json:"kind"`
			Description string `json:"description"`
		}
		must(t, yaml.Unmarshal([]byte(c.Annotations["artifacthub.io/changes"]), &changes))
		for _, change := range changes {
			if !slices.Contains([]string{"added", "changed", "deprecated", "removed", "fixed", "security"}, change.Kind) ||
				change.Description == "" {
				t.Errorf("%s: a change is %+v", component, change)
			}
		}
		if len(changes) == 0 || len(c.Maintainers) == 0 || c.Annotations["artifacthub.io/license"] != "Apache-2.0" {
			t.Errorf("%s: no changes, no maintainers or another license", component)
		}
		prerelease := map[bool]string{true: "true", false: "false"}[strings.Contains(c.Version, "-")]
		if got := c.Annotations["artifacthub.io/prerelease"]; got != prerelease {
			t.Errorf("%s: version %s has prerelease %q, want %q", component, c.Version, got, prerelease)
		}
		_, icon, _ := strings.Cut(c.Icon, "/main/")
		if _, err := os.Stat(filepath.Join(root, icon)); icon == "" || err != nil {
			t.Errorf("%s: the icon: %v", component, err)
		}
		for name, text := range c.Annotations {
			for _, part := range strings.Split(text, "github.com/slicefeed/slicefeed/")[1:] {
				path := strings.SplitN(strings.Fields(part)[0], "/", 3) // blob or tree, tag, path
				if len(path) != 3 || path[1] != "v"+c.AppVersion {
					t.Errorf("%s: %s leads to %s, want the tag v%s", component, name, part, c.AppVersion)
				} else if _, err := os.Stat(filepath.Join(root, path[2])); err != nil {
					t.Errorf("%s: %s: %v", component, name, err)
				}
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

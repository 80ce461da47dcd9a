package stack

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// service is what we read of a service in docker-compose.yaml.
type service struct {
	Image string `json:"image"`
	Build *struct {
		Context, Dockerfile string
		Args, Labels        map[string]string
	}
	Profiles      []string
	ContainerName string `json:"container_name"`
	Command       []any  `json:"command"`
	Networks      any    `json:"networks"` // a list, or a map to their settings

	Environment map[string]any `json:"environment"`
	Ports       []string       `json:"ports"`
	Volumes     []string       `json:"volumes"`
}

func composeFile(t *testing.T) map[string]service {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "docker-compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]service `json:"services"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

func TestTheComposeFileConnectsAndMountsNoMoreThanItShould(t *testing.T) {
	services := composeFile(t)
	all := maps.Clone(apart)
	maps.Copy(all, observers)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(services))); diff != "" {
		t.Fatalf("services (-want +got):\n%s", diff)
	}
	for name, want := range all {
		s := services[name]
		if _, observes := observers[name]; observes != slices.Contains(s.Profiles, "observability") {
			t.Errorf("%s has the profiles %q", name, s.Profiles)
		}
		if s.ContainerName != "slicefeed-"+name {
			t.Errorf("%s is called %s", name, s.ContainerName)
		}
		var networks []string
		switch n := s.Networks.(type) {
		case []any:
			for _, one := range n {
				networks = append(networks, one.(string))
			}
		case map[string]any:
			networks = slices.Collect(maps.Keys(n))
		}
		slices.Sort(networks)
		if diff := cmp.Diff(want.networks, networks); diff != "" {
			t.Errorf("networks of %s (-want +got):\n%s", name, diff)
		}
		volumes := map[string]string{}
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			volumes[parts[0]] = "rw"
			if len(parts) == 3 {
				volumes[parts[0]] = parts[2]
			}
			if strings.HasPrefix(parts[0], "./") {
				if _, err := os.Stat(filepath.Join(root, parts[0])); err != nil {
					t.Errorf("%s mounts a file that is not there: %v", name, err)
				}
			}
		}
		if diff := cmp.Diff(want.volumes, volumes); diff != "" {
			t.Errorf("volumes of %s (-want +got):\n%s", name, diff)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:${SLICEFEED_") {
				t.Errorf("%s publishes %s: want it on 127.0.0.1, at a port that can be moved", name, port)
			}
		}
		if name == "grafana" {
			continue // the only image that is pulled
		}
		if strings.Contains(s.Image, "/") || !strings.HasSuffix(s.Image, ":compose") {
			t.Errorf("%s runs %s, which could be pulled", name, s.Image)
		}
		if s.Build == nil || s.Build.Context != "." || s.Build.Args["GO_IMAGE"] != "${GO_IMAGE:-golang:1.26}" ||
			s.Build.Labels["dev.slicefeed.stack"] != "compose" {
			t.Errorf("%s is built by %+v", name, s.Build)
		} else if _, err := os.Stat(
			filepath.Join(root, s.Build.Dockerfile),
		); err != nil {
			t.Error(err)
		}
	}
}

func TestTheComposeFileSaysWhatTheJobsSay(t *testing.T) {
	services := composeFile(t)
	for _, w := range Workers() {
		networks, _ := services[w.Name].Networks.(map[string]any)
		want := map[string]any{"backends": map[string]any{"ipv4_address": w.Address.String()}}
		if diff := cmp.Diff(want, networks); diff != "" {
			t.Errorf("the address of %s (-want +got):\n%s", w.Name, diff)
		}
	}
	for name, want := range map[string]map[string]string{
		"inventory": {"IONOS_DATACENTER_ID": Datacenter, "IONOS_PRIVATE_LAN_ID": "2", "SECURED_SUBNET_CIDR": Subnet},
		"writer-1":  {"INVENTORY_SAN": InventorySAN, "SECURED_SUBNET_CIDR": Subnet},
	} {
		for variable, value := range want {
			if got := services[name].Environment[variable]; got != value {
				t.Errorf("%s has %s=%v, want %s", name, variable, got, value)
			}
		}
	}
	if diff := cmp.Diff(services["writer-1"].Environment, services["writer-2"].Environment); diff != "" {
		t.Errorf("the writers differ:\n%s", diff)
	}
}

// Kubernetes is compiled in two places: by lab/controlplane on the machine, and in an image without Go on it.
func TestBothWaysCompileKubernetesWithTheSameFlags(t *testing.T) {
	for file, flags := range map[string]string{
		"lab/controlplane/build.go": `"-s -w -X k8s.io/component-base/version.gitVersion="`,
		"deploy/compose/compile":    `"-s -w -X k8s.io/component-base/version.gitVersion=$version"`,
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), flags) {
			t.Errorf("%s has no %s", file, flags)
		}
	}
}

type connections struct {
	networks []string
	volumes  map[string]string
}

// observers are the same of the profile observability.
var observers = map[string]connections{
	"secured-prometheus": {[]string{"secured", "secured-metrics"}, map[string]string{
		"secured-metrics": "rw", observability + "secured.yaml": "ro", "./deploy/slicefeed-inventory/alerts.yaml": "ro",
	}},
	"consuming-prometheus": {[]string{"consuming", "consuming-metrics"}, map[string]string{
		"consuming-metrics": "rw", observability + "consuming.yaml": "ro", "./deploy/slicefeed-writer/alerts.yaml": "ro",
	}},
	"grafana": {[]string{"consuming-metrics", "secured-metrics"}, map[string]string{
		observability + "grafana/datasources.yaml": "ro", observability + "grafana/dashboards.yaml": "ro",
		"./deploy/slicefeed-inventory/dashboard.json": "ro", "./deploy/slicefeed-writer/dashboard.json": "ro",
	}},
}

const observability = "./deploy/compose/observability/"

// apart is what each container may be connected to and what it mounts; "rw" where it may write.
var apart = map[string]connections{
	"secured-setup": {
		[]string{"secured"},
		map[string]string{
			"secured-cluster":   "rw",
			"secured-etcd":      "rw",
			"secured-cloud":     "rw",
			"secured-inventory": "rw",
			"secured-people":    "rw",
			"secured-public":    "rw",
		},
	},
	"secured-etcd": {[]string{"secured"}, map[string]string{"secured-etcd": "ro", "secured-data": "rw"}},
	"secured-api":  {[]string{"secured"}, map[string]string{"secured-cluster": "ro"}},
	"ionos":        {[]string{"secured"}, map[string]string{"secured-cloud": "ro"}},
	"inventory":    {[]string{"link", "secured"}, map[string]string{"secured-inventory": "ro", "consuming-public": "ro"}},
	"consuming-setup": {[]string{"consuming"}, map[string]string{
		"consuming-cluster": "rw", "consuming-etcd": "rw", "consuming-writer": "rw", "consuming-people": "rw", "consuming-public": "rw",
	}},
	"consuming-etcd": {[]string{"consuming"}, map[string]string{"consuming-etcd": "ro", "consuming-data": "rw"}},
	"consuming-api":  {[]string{"consuming"}, map[string]string{"consuming-cluster": "ro"}},
	"writer-1":       {[]string{"backends", "consuming", "link"}, map[string]string{"consuming-writer": "ro", "secured-public": "ro"}},
	"writer-2":       {[]string{"backends", "consuming", "link"}, map[string]string{"consuming-writer": "ro", "secured-public": "ro"}},
	"worker-1":       {[]string{"backends"}, map[string]string{}},
	"worker-2":       {[]string{"backends"}, map[string]string{}},
	"worker-3":       {[]string{"backends"}, map[string]string{}},
}

package stack

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

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

// The running stack is inspected by make verify; this finds what is said wrongly without an engine.
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

func TestPortsHaveTheSameDefaultsInBothWays(t *testing.T) {
	up, err := os.ReadFile(filepath.Join(root, "deploy/compose/up"))
	if err != nil {
		t.Fatal(err)
	}
	compose, err := os.ReadFile(filepath.Join(root, "docker-compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`\$\{SLICEFEED_\w+_PORT:[^}]*\}`)
	all := variable.FindAllString(string(up), -1)
	if len(all) < 4 {
		t.Errorf("make up sets only %q", all)
	}
	for _, want := range all {
		if !strings.Contains(string(compose), want) {
			t.Errorf("docker-compose.yaml has no %s", want)
		}
	}
	for _, got := range variable.FindAllString(string(compose), -1) {
		if !strings.Contains(got, ":-") {
			t.Errorf("docker-compose.yaml has %s, which has no default", got)
		}
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

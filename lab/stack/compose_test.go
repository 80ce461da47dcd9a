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

// service is what we read of a service in docker-compose.yaml.
type service struct {
	Image         string `json:"image"`
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
	if diff := cmp.Diff(slices.Sorted(maps.Keys(apart)), slices.Sorted(maps.Keys(services))); diff != "" {
		t.Fatalf("services (-want +got):\n%s", diff)
	}
	for name, want := range apart {
		s := services[name]
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
		}
		if diff := cmp.Diff(want.volumes, volumes); diff != "" {
			t.Errorf("volumes of %s (-want +got):\n%s", name, diff)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:${SLICEFEED_") {
				t.Errorf("%s publishes %s: want it on 127.0.0.1, at a port that can be moved", name, port)
			}
		}
		if strings.Contains(s.Image, "/") || !strings.HasSuffix(s.Image, ":compose") {
			t.Errorf("%s runs %s, which could be pulled", name, s.Image)
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

package config_test

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/settings/settingstest"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/config/configtest"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

var update = flag.Bool("update", false, "write the tables into docs/reference/settings.md")

func TestSettingsAreDocumented(t *testing.T) {
	if err := settingstest.CheckDocs("../../../docs/reference/settings.md", "writer", &config.Config{}, *update); err != nil {
		t.Error(err)
	}
}

// The setting's values are a struct tag, so only a test can compare them.
func TestProbeModesMatchSetting(t *testing.T) {
	var want []string
	for _, mode := range probe.Modes() {
		want = append(want, mode.String())
	}
	for _, f := range settings.List(&config.Config{}) {
		if f.Flag == "health-check-mode" && !slices.Equal(f.Enum, want) {
			t.Errorf("HEALTH_CHECK_MODE accepts %v, want the modes of package probe: %v", f.Enum, want)
		}
	}
}

func TestConfigValidation(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  map[string]string
		want []string // settings that the error names; empty if valid
	}{
		{"only required settings", nil, nil},
		{"kubectl is the old name of kubernetes", map[string]string{"STORE_KIND": "kubectl"}, nil},
		{"0 turns the shrink guard off", map[string]string{"SHRINK_WINDOW": "0"}, nil},
		{"a shrink window is not negative", map[string]string{"SHRINK_WINDOW": "-1s"}, []string{"SHRINK_WINDOW"}},
		{"a managed-by of Kubernetes' own controllers is invalid", map[string]string{"TARGET_MANAGED_BY": "endpointslice-controller.k8s.io"}, []string{"TARGET_MANAGED_BY"}},
		{"a managed-by is a label value", map[string]string{"TARGET_MANAGED_BY": "example.org/slicefeed"}, []string{"TARGET_MANAGED_BY"}},
		{"a probe may take longer than the interval", map[string]string{"HEALTH_CHECK_TIMEOUT": "3s"}, nil},
		{"a SAN is a URI or a DNS name", map[string]string{"INVENTORY_SAN": "not a name"}, []string{"INVENTORY_SAN"}},
		{"a class becomes the name of a Lease", map[string]string{"CLASS": "Blue Green"}, []string{"CLASS"}},
		{"labeled Services only", map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}, nil},
		{"a named target needs both names", map[string]string{"TARGET_NAMESPACE": ""}, []string{"TARGET_NAMESPACE"}},
		{"settings of the named target need one", map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": "", "TARGET_PORT": "80"}, []string{"TARGET_PORT"}},
		{"several sources", map[string]string{"SOURCES_FILE": "sources.yaml", "INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": "", "TLS_PEER_CA_FILE": ""}, nil},
		{"several sources, and settings of a single one", map[string]string{"SOURCES_FILE": "sources.yaml"}, []string{"INVENTORY_ADDRESS", "INVENTORY_SAN", "SECURED_SUBNET_CIDR"}},
		{"a single source needs all its settings", map[string]string{"INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": "", "TLS_PEER_CA_FILE": ""}, []string{"INVENTORY_ADDRESS", "INVENTORY_SAN", "SECURED_SUBNET_CIDR", "TLS_PEER_CA_FILE"}},
		{"WATCH_NAMESPACES has names", map[string]string{"WATCH_NAMESPACES": "web,Shop"}, []string{"WATCH_NAMESPACES"}},
		{"WATCH_NAMESPACES is *", map[string]string{"WATCH_NAMESPACES": "*"}, nil},
		{"* and other namespaces", map[string]string{"WATCH_NAMESPACES": "*,web"}, []string{"WATCH_NAMESPACES"}},
		{"the listener needs its files", map[string]string{"LISTEN_ADDRESS": ":9443"}, []string{"LISTEN_CERT_FILE", "LISTEN_KEY_FILE", "CLIENT_CA_FILE", "ALLOWED_CLIENTS_FILE"}},
		{"files of the listener without one", map[string]string{"CLIENT_CA_FILE": "ca.pem"}, []string{"CLIENT_CA_FILE", "LISTEN_ADDRESS"}},
		{"the log can be more verbose", map[string]string{"LOG_LEVEL": "debug", "LOG_FORMAT": "text"}, nil},
		{"unknown log level and format", map[string]string{"LOG_LEVEL": "verbose", "LOG_FORMAT": "xml"}, []string{`LOG_LEVEL="verbose": want one of debug, info, warn, error`, `LOG_FORMAT="xml": want one of json, text`}},
		{"zones are mapped in pairs", map[string]string{"ZONE_MAP": "de/fra"}, []string{"ZONE_MAP"}},
		{"every problem is reported", map[string]string{
			"INVENTORY_ADDRESS": "", "SECURED_SUBNET_CIDR": "everywhere", "ALLOWED_PORTS": "90000", "TARGET_PORT": "0x50",
			"HEALTH_CHECK_MODE": "icmp", "HEALTH_CHECK_PATH": "healthz", "EMPTY_RESULT_THRESHOLD": "0", "TARGET_NAMESPACE": "Web",
		}, []string{
			"INVENTORY_ADDRESS", "SECURED_SUBNET_CIDR", "ALLOWED_PORTS", "TARGET_PORT",
			"HEALTH_CHECK_MODE", "HEALTH_CHECK_PATH", "EMPTY_RESULT_THRESHOLD", "TARGET_NAMESPACE",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := configtest.Load(tt.set)
			if (err == nil) != (len(tt.want) == 0) || err != nil && !errors.Is(err, settings.ErrConfiguration) {
				t.Fatalf("got %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got no %q in: %v", want, err)
				}
			}
		})
	}
}

func TestDerivesNamesFromClassAndService(t *testing.T) {
	cfg, err := configtest.Load(map[string]string{"CLASS": "blue"})
	if err != nil {
		t.Fatal(err)
	}
	found, err := cfg.TargetsConfig("slicefeed", nil)
	if err != nil {
		t.Fatal(err)
	}
	named, _ := targets.Resolve(found, targets.Input{Key: targets.Key{Namespace: "web", Name: "shop"}})
	if !named.Relevant || named.Target.ManagedBy != "slicefeed-blue" || named.Target.FirstName != "shop-slicefeed" {
		t.Errorf("%+v", named)
	}
}

func TestWatchedNamespaces(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, []string{"slicefeed", "web"}},
		{map[string]string{"TARGET_NAMESPACE": "slicefeed"}, []string{"slicefeed"}},
		{map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}, []string{"slicefeed"}},
		{map[string]string{"WATCH_NAMESPACES": "b,a,b", "TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}, []string{"a", "b"}},
		{map[string]string{"WATCH_NAMESPACES": "b,a,b"}, []string{"a", "b", "web"}},
		{map[string]string{"WATCH_NAMESPACES": "*"}, []string{"*"}},
	} {
		cfg, err := configtest.Load(tt.set)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cfg.TargetsConfig("slicefeed", nil); err != nil || !slices.Equal(got.Namespaces, tt.want) {
			t.Errorf("with %v: %v, %v; want %v", tt.set, got.Namespaces, err, tt.want)
		}
	}
}

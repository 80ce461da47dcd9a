package config_test

import (
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/settings/settingstest"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/config/configtest"
)

var update = flag.Bool("update", false, "write the tables into docs/reference/settings.md")

func TestSettingsAreDocumented(t *testing.T) {
	if err := settingstest.CheckDocs("../../../docs/reference/settings.md", "inventory", &config.Config{}, *update); err != nil {
		t.Error(err)
	}
}

func TestEveryKindOfSourceIsCreatedAndTested(t *testing.T) {
	suite, err := os.ReadFile("../source/sourcetest/sourcetest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for _, f := range settings.List(&config.Config{}) {
		if f.Flag != "source-kind" {
			continue
		}
		for _, kind := range f.Enum {
			kinds++
			cfg := &config.Config{
				SourceKind:    kind,
				RecordsFile:   "nodes.json",
				Command:       "cat",
				StaticRecords: "[]",
				SourceService: "shop/web",
			}
			_, err := config.NewSource(cfg, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if problem := (*settings.Problem)(nil); errors.As(err, &problem) && problem.Setting == "SOURCE_KIND" {
				t.Errorf("%s: NewSource creates no source of this kind", kind)
			}
			if test := "func Test" + strings.ToUpper(kind[:1]) + kind[1:] + "("; !strings.Contains(string(suite), test) {
				t.Errorf("%s: sourcetest_test.go has no %s) that runs the suite of all sources", kind, test)
			}
		}
	}
	if kinds < 5 {
		t.Errorf("SOURCE_KIND has %d values, want at least 5", kinds)
	}
}

func TestConfigValidation(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  map[string]string // an empty value unsets
		want []string          // parts of the error; none if valid
	}{
		{"the mandatory settings are enough", nil, nil},
		{"several datacenters pair with as many LANs", map[string]string{"IONOS_DATACENTER_ID": "a,b", "IONOS_PRIVATE_LAN_ID": "1,2"}, nil},
		{"node-address needs no cloud", map[string]string{
			"RESOLVER": "node-address", "IONOS_TOKEN": "", "IONOS_DATACENTER_ID": "", "IONOS_PRIVATE_LAN_ID": "",
		}, nil},
		{"a file is enough", configtest.SourceEnv("file", "INVENTORY_FILE_PATH", "/nodes.json"), nil},
		{"a static list is enough", configtest.SourceEnv("static", "INVENTORY_STATIC", "[]"), nil},
		{"a Service is enough", configtest.SourceEnv("service", "SOURCE_SERVICE", "shop/web"), nil},
		{"a workload counts Pods", map[string]string{"WORKLOAD": "ingress/app=gateway"}, nil},
		{"a workload is a namespace and a selector", map[string]string{"WORKLOAD": "app=gateway"}, []string{"WORKLOAD", "ingress/app=gateway"}},
		{"each kind requires its input", configtest.SourceEnv("command", "", ""), []string{"INVENTORY_COMMAND is not set"}},
		{"a setting without effect is an error", configtest.SourceEnv("file", "SOURCE_SERVICE", "shop/web"), []string{"INVENTORY_FILE_PATH is not set", "SOURCE_SERVICE", "no effect with file"}},
		{"static records are validated", configtest.SourceEnv("static", "INVENTORY_STATIC", `[{"name":"a"}]`), []string{"INVENTORY_STATIC"}},
		{"a Service is a namespace and a name", configtest.SourceEnv("service", "SOURCE_SERVICE", "web"), []string{"SOURCE_SERVICE", "shop/web"}},
		{"the deprecated subnet prefix is accepted", map[string]string{"SECURED_SUBNET_CIDR": "", "SECURED_SUBNET_PREFIX": "10.0.1."}, nil},
		{"ionos requires a token, a datacenter and a LAN", map[string]string{
			"IONOS_TOKEN": "", "IONOS_DATACENTER_ID": "", "IONOS_PRIVATE_LAN_ID": "",
		}, []string{"IONOS_TOKEN_FILE is not set", "IONOS_DATACENTER_ID is not set", "IONOS_PRIVATE_LAN_ID is not set"}},
		{"only one token is allowed", map[string]string{"IONOS_TOKEN_FILE": "token"}, []string{"IONOS_TOKEN_FILE", "IONOS_TOKEN is also set"}},
		{"datacenters and LANs come in pairs", map[string]string{"IONOS_PRIVATE_LAN_ID": "1,2"}, []string{"IONOS_PRIVATE_LAN_ID", "as many LANs"}},
		{"all problems are reported together", map[string]string{
			"SECURED_SUBNET_CIDR": "10.0.1.7/24", "NODE_SELECTOR": "pool in blue", "CORDONED": "maybe",
			"IONOS_POLL_INTERVAL": "soon", "TLS_CERT_FILE": "", "SOURCE_KIND": "ldap",
		}, []string{"SECURED_SUBNET_CIDR", "NODE_SELECTOR", "CORDONED", "IONOS_POLL_INTERVAL", "TLS_CERT_FILE", "SOURCE_KIND"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := configtest.Env()
			maps.Copy(env, tt.set)
			err := settings.Load(nil, func(name string) string { return env[name] }, &config.Config{})
			if (err == nil) != (len(tt.want) == 0) || err != nil && !errors.Is(err, settings.ErrConfiguration) {
				t.Fatalf("got %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing: %v", want, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "secret-token") {
				t.Errorf("error contains a secret: %v", err)
			}
		})
	}
}

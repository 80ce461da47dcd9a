package config_test

import (
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/settings/settingstest"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/config/configtest"
)

const labelPattern = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`

// chart maps the settings to the values of deploy/slicefeed-writer.
var chart = settingstest.Chart{
	SetByChart: map[string]string{
		"SOURCES_FILE":         "the list sources",
		"TARGET_KUBECONFIG":    "the Pod's account",
		"TLS_CERT_FILE":        "the Secret tls.secret",
		"TLS_KEY_FILE":         "the Secret tls.secret",
		"TLS_PEER_CA_FILE":     "the ConfigMap tls.peerCA",
		"LISTEN_ADDRESS":       "port 9443 while there are allowedClients",
		"LISTEN_CERT_FILE":     "the Secret listener.secret",
		"LISTEN_KEY_FILE":      "the Secret listener.secret",
		"CLIENT_CA_FILE":       "the ConfigMap listener.clientCA",
		"ALLOWED_CLIENTS_FILE": "the list allowedClients",
		"ADMIN_ADDRESS":        "port 8080",
		"DEBUG_ADDRESS":        "loopback",
	},
	Enums: map[string][]string{"STORE_KIND": {"kubernetes", "memory"}}, // not its old name
	Patterns: map[string]string{
		"INVENTORY_ADDRESS":         `\S+:[0-9]+`,
		"INVENTORY_SAN":             `([a-z][a-z0-9+.-]*://[^/?#@*]+(/[^?#*]*)?|` + labelPattern + `(\.` + labelPattern + `)*)`,
		"SECURED_SUBNET_CIDR":       `[0-9a-fA-F.:]+/[0-9]{1,3}`,
		"ALLOWED_PORTS":             `[0-9]+(-[0-9]+)?`,
		"CLASS":                     `[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?`, // with slicefeed- 63 characters
		"WATCH_NAMESPACES":          `(\*|` + labelPattern + `)`,
		"ZONE_MAP":                  `[^=,]+=[^=,]+`,
		"TARGET_NAMESPACE":          labelPattern,
		"TARGET_SERVICE_NAME":       labelPattern,
		"TARGET_ENDPOINTSLICE_NAME": labelPattern + `(\.` + labelPattern + `)*`,
		"TARGET_MANAGED_BY":         `[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?`,
		"HEALTH_CHECK_PATH":         `/.*`,
	},
}

func TestChartHasAllSettings(t *testing.T) {
	if err := chart.CheckSchema("../../../deploy/slicefeed-writer/values.schema.json", &config.Config{}, *update); err != nil {
		t.Error(err)
	}
}

// The chart's schema and the writer accept the same values, so that Helm reports a mistake before a
// Pod does, and rejects nothing that works.
func TestChartSchemaAgreesWithValidation(t *testing.T) {
	samples := map[string]struct{ good, bad []string }{
		"INVENTORY_ADDRESS": {[]string{"inventory.example.org:9443", "[fd00::1]:9443"}, nil},
		"INVENTORY_SAN": {
			[]string{"spiffe://example.org/slicefeed/inventory", "inventory.example.org"},
			[]string{
				"*.example.org",
				"Inventory",
				"spiffe://",
				"spiffe://example.org/*",
				"https://user@example.org/x",
				"https://example.org/x?y=z",
			},
		},
		"SECURED_SUBNET_CIDR": {[]string{"10.0.1.0/24", "10.0.1.0/24,fd00:1::/64"}, []string{"10.0.1.0", "net/24"}},
		"ALLOWED_PORTS":       {[]string{"8080", "30000-32767,8080"}, []string{"http", "30000-", "-80", "1-2-3"}},
		"CLASS": {
			[]string{"default", "blue-2", strings.Repeat("a", 53)},
			[]string{"Blue", "a_b", "-a", "a-", strings.Repeat("a", 54)},
		},
		"WATCH_NAMESPACES":          {[]string{"*", "web", "web,shop"}, []string{"Web", "web shop"}},
		"ZONE_MAP":                  {[]string{"de/fra=zone-a", "de/fra=a,de/txl=b"}, []string{"de/fra", "=a", "de/fra="}},
		"TARGET_NAMESPACE":          {[]string{"web"}, []string{"Web", "a.b", "a/b"}},
		"TARGET_SERVICE_NAME":       {[]string{"shop"}, []string{"Shop", "a.b"}},
		"TARGET_ENDPOINTSLICE_NAME": {[]string{"from-before", "a.b"}, []string{"From", "a..b", "a/b"}},
		"TARGET_MANAGED_BY":         {[]string{"endpoint-updater", "A.b_c"}, []string{"a/b", "-a"}},
		"TARGET_PORT":               {[]string{"1", "65535"}, []string{"65536", "http"}},
		"HEALTH_CHECK_MODE":         {[]string{"off", "grpc"}, []string{"icmp"}},
		"HEALTH_CHECK_PATH":         {[]string{"/", "/healthz?full=1"}, []string{"healthz"}},
		"HEALTH_CHECK_INTERVAL":     {[]string{"2s", "1500ms"}, []string{"2", "often"}},
		"HEALTH_CHECK_TIMEOUT":      {[]string{"1s", "50ms"}, []string{"1", "short"}},
		"EMPTY_RESULT_THRESHOLD":    {[]string{"1", "10"}, []string{"0", "11", "few"}},
		"SHRINK_WINDOW":             {[]string{"0", "0s", "90s"}, []string{"60", "long"}},
		"MAX_STALENESS":             {[]string{"15m", "24h"}, []string{"15", "1d"}},
		"STORE_KIND":                {[]string{"memory"}, []string{"etcd"}},
		"LOG_LEVEL":                 {[]string{"debug", "error"}, []string{"DEBUG", "trace"}},
		"LOG_FORMAT":                {[]string{"json", "text"}, []string{"logfmt"}},
	}
	accepts := func(setting, value string) (schema, component bool) {
		schema, err := chart.Accepts(&config.Config{}, setting, value)
		if err != nil {
			t.Fatal(err)
		}
		env := configtest.Env()
		env[setting] = value
		err = settings.Load(nil, func(name string) string { return env[name] }, &config.Config{})
		return schema, err == nil || !strings.Contains(err.Error(), "- "+setting+"=")
	}
	for setting, values := range samples {
		for _, value := range values.good {
			if schema, component := accepts(setting, value); !schema || !component {
				t.Errorf("%s=%q: accepted by the schema: %t, by the writer: %t; want both", setting, value, schema, component)
			}
		}
		for _, value := range values.bad {
			if schema, component := accepts(setting, value); schema || component {
				t.Errorf("%s=%q: accepted by the schema: %t, by the writer: %t; want neither", setting, value, schema, component)
			}
		}
	}
	for setting := range chart.Patterns {
		if len(samples[setting].good) == 0 {
			t.Errorf("no sample of %s", setting)
		}
	}
}

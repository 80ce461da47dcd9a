package config_test

import (
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/settings/settingstest"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/config/configtest"
)

const dnsLabel = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`

// chartSettings describes how deploy/slicefeed-inventory sets the settings.
var chartSettings = settingstest.Chart{
	SetByChart: map[string]string{
		"SECURED_KUBECONFIG":      "the Pod's account",
		"SECURED_KUBECTL_CONTEXT": "the Pod's account",
		"IONOS_TOKEN":             "the Secret ionos.tokenSecret",
		"IONOS_TOKEN_FILE":        "the Secret ionos.tokenSecret",
		"IONOS_CA_FILE":           "the ConfigMap ionos.caConfigMap",
		"LISTEN_ADDRESS":          "port 9443",
		"ADMIN_ADDRESS":           "port 8080",
		"DEBUG_ADDRESS":           "loopback",
		"TLS_CERT_FILE":           "the Secret tls.secret",
		"TLS_KEY_FILE":            "the Secret tls.secret",
		"TLS_PEER_CA_FILE":        "the ConfigMap tls.peerCA",
		"ALLOWED_CLIENTS_FILE":    "the list allowedClients",
	},
	Patterns: map[string]string{
		"WORKLOAD":             dnsLabel + `/.+`,
		"SOURCE_SERVICE":       dnsLabel + `/` + dnsLabel,
		"SECURED_SUBNET_CIDR":  `[0-9a-fA-F.:]+/[0-9]{1,3}`,
		"IONOS_DATACENTER_ID":  `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`,
		"IONOS_PRIVATE_LAN_ID": `[0-9]+`,
		"IONOS_API_URL":        `https://[^/].*`,
	},
}

func TestChartHasAllSettings(t *testing.T) {
	if err := chartSettings.CheckSchema("../../../deploy/slicefeed-inventory/values.schema.json", &config.Config{}, *update); err != nil {
		t.Error(err)
	}
}

// needsOtherSettings has the settings that are invalid while another one has its default.
var needsOtherSettings = map[string]bool{
	"SOURCE_SERVICE": true, "INVENTORY_STATIC": true,
	"INVENTORY_FILE_PATH": true, "INVENTORY_COMMAND": true, "INVENTORY_COMMAND_ARGS": true,
}

// The schema accepts every value that the inventory accepts, and rejects mistakes before a Pod
// starts.
func TestChartSchemaAgreesWithValidation(t *testing.T) {
	samples := map[string]struct{ good, bad []string }{
		"SOURCE_KIND":   {[]string{"service", "static", "file", "command"}, []string{"nodes"}},
		"NODE_SELECTOR": {[]string{"pool in (a,b),!spot"}, nil},
		"CORDONED":      {[]string{"drain"}, []string{"evict"}},
		"LOG_LEVEL":     {[]string{"debug", "error"}, []string{"DEBUG", "trace"}},
		"LOG_FORMAT":    {[]string{"json", "text"}, []string{"logfmt"}},
		"WORKLOAD": {
			[]string{
				"ingress/app=gateway",
				"a1/app in (x,y)",
				"ingress/deployment/gateway",
				"ingress/daemonset/a.b",
				"ingress/example.com/role=x",
			},
			[]string{"ingress", "/app=gateway", "Ingress/app=x", "ingress/"},
		},
		"SOURCE_SERVICE":         {[]string{"shop/web"}, []string{"shop", "shop/", "/web", "Shop/web", "shop/web/x"}},
		"INVENTORY_STATIC":       {[]string{"[]"}, nil},
		"INVENTORY_FILE_PATH":    {[]string{"/nodes/nodes.json"}, nil},
		"INVENTORY_COMMAND":      {[]string{"/list-nodes"}, nil},
		"INVENTORY_COMMAND_ARGS": {[]string{"--pool blue", `["--filter", "pool = blue"]`}, nil},
		"SOURCE_POLL_INTERVAL":   {[]string{"1s", "1m", "2.5s"}, []string{"5", "soon", "5 s"}},
		"RESOLVER":               {[]string{"node-address"}, []string{"dns"}},
		"SECURED_SUBNET_CIDR": {
			[]string{"10.0.1.0/24", "10.0.1.0/24,fd00:1::/64"},
			[]string{"10.0.1.0", "10.0.1.0/24 10.0.2.0/24", "net/24"},
		},
		"IONOS_DATACENTER_ID":  {[]string{"7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90"}, nil},
		"IONOS_PRIVATE_LAN_ID": {[]string{"2", "2,3"}, nil},
		"IONOS_API_URL":        {[]string{"https://api.ionos.com"}, nil},
		"IONOS_POLL_INTERVAL":  {[]string{"90s", "1m30s"}, []string{"60", "1d"}},
		"IONOS_REQUEST_BUDGET": {[]string{"2", "6000"}, []string{"1", "6001", "many"}},
	}
	accepts := func(setting, value string) (schema, program bool) {
		schema, err := chartSettings.Accepts(&config.Config{}, setting, value)
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
			if schema, program := accepts(setting, value); !schema || (!program && !needsOtherSettings[setting]) {
				t.Errorf("%s=%q: accepted by the schema: %t, by the inventory: %t; want both", setting, value, schema, program)
			}
		}
		for _, value := range values.bad {
			if schema, program := accepts(setting, value); schema || program {
				t.Errorf("%s=%q: accepted by the schema: %t, by the inventory: %t; want neither", setting, value, schema, program)
			}
		}
	}
	for setting := range chartSettings.Patterns {
		if len(samples[setting].good) == 0 {
			t.Errorf("no sample of %s", setting)
		}
	}
}

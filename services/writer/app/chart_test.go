package app

import (
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

const label = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`

// chart is how deploy/slicefeed-writer takes our settings.
var chart = settings.Chart{
	Sets: map[string]string{
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
		"INVENTORY_SAN":             `([a-z][a-z0-9+.-]*://[^/?#@]+(/[^?#]*)?|` + label + `(\.` + label + `)*)`,
		"SECURED_SUBNET_CIDR":       `[0-9a-fA-F.:]+/[0-9]{1,3}`,
		"ALLOWED_PORTS":             `[0-9]+(-[0-9]+)?`,
		"CLASS":                     label,
		"WATCH_NAMESPACES":          `(\*|` + label + `)`,
		"ZONE_MAP":                  `[^=,]+=[^=,]+`,
		"TARGET_NAMESPACE":          label,
		"TARGET_SERVICE_NAME":       label,
		"TARGET_ENDPOINTSLICE_NAME": label + `(\.` + label + `)*`,
		"TARGET_MANAGED_BY":         `[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?`,
		"HEALTH_CHECK_PATH":         `/.*`,
	},
}

func TestTheChartHasTheSettings(t *testing.T) {
	if err := chart.InSchema("../../../deploy/slicefeed-writer/values.schema.json", &Config{}, *update); err != nil {
		t.Error(err)
	}
}

package app

import (
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

const label = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`

// chart is how deploy/slicefeed-inventory takes our settings.
var chart = settings.Chart{
	Sets: map[string]string{
		"SECURED_KUBECONFIG":      "the Pod's account",
		"SECURED_KUBECTL_CONTEXT": "the Pod's account",
		"INVENTORY_FILE_PATH":     "nothing: the file of a machine is read on that machine",
		"INVENTORY_COMMAND":       "nothing: the image has no program but ours",
		"INVENTORY_COMMAND_ARGS":  "nothing: the image has no program but ours",
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
	Enums: map[string][]string{"SOURCE_KIND": {"kubernetes", "service", "static"}},
	Patterns: map[string]string{
		"WORKLOAD":             label + `/.+`,
		"SOURCE_SERVICE":       label + `/` + label,
		"SECURED_SUBNET_CIDR":  `[0-9a-fA-F.:]+/[0-9]{1,3}`,
		"IONOS_DATACENTER_ID":  `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`,
		"IONOS_PRIVATE_LAN_ID": `[0-9]+`,
		"IONOS_API_URL":        `https://[^/].*`,
	},
}

func TestTheChartHasTheSettings(t *testing.T) {
	if err := chart.InSchema("../../../deploy/slicefeed-inventory/values.schema.json", &Config{}, *update); err != nil {
		t.Error(err)
	}
}

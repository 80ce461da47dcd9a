package people

import (
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/lab/e2e"
)

func TestABadConfigurationIsToldAtOnce(t *testing.T) {
	for _, one := range []struct {
		half string
		env  []string
		want []string
	}{
		{"slicefeed-inventory", []string{
			"IONOS_POLL_INTERVAL=often", "CORDONED=maybe", "SECURED_SUBNET_CIDR=10.0.0.0/33", "NODE_SELECTOR=a b", "IONOS_TOKEN=sesame",
		}, []string{
			"IONOS_POLL_INTERVAL", "CORDONED", "SECURED_SUBNET_CIDR", "NODE_SELECTOR", "IONOS_DATACENTER_ID", "IONOS_PRIVATE_LAN_ID",
			"TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_PEER_CA_FILE", "ALLOWED_CLIENTS_FILE", "often", "maybe", "10.0.0.0/33",
		}},
		{"slicefeed-writer", []string{
			"HEALTH_CHECK_MODE=icmp", "HEALTH_CHECK_PATH=up", "TARGET_PORT=70000", "ALLOWED_PORTS=9-1", "TARGET_NAMESPACE=Web", "STORE_KIND=redis",
		}, []string{
			"HEALTH_CHECK_MODE", "HEALTH_CHECK_PATH", "TARGET_PORT", "ALLOWED_PORTS", "TARGET_NAMESPACE", "STORE_KIND",
			"INVENTORY_ADDRESS", "INVENTORY_SAN", "TARGET_SERVICE_NAME", "SECURED_SUBNET_CIDR", "TLS_CERT_FILE", "icmp", "redis",
		}},
	} {
		for _, command := range []string{"serve", "check-config"} {
			t.Run(one.half+" "+command, func(t *testing.T) {
				code, text := e2e.Run(t, one.half, one.env, command)
				if code != 2 || strings.Contains(text, "sesame") {
					t.Errorf("exit code %d, want 2, and no secret told: %s", code, text)
				}
				for _, part := range one.want {
					if !strings.Contains(text, part) {
						t.Errorf("%s is not told: %s", part, text)
					}
				}
			})
		}
		t.Run(one.half+" version", func(t *testing.T) {
			if code, text := e2e.Run(t, one.half, nil, "version"); code != 0 || !strings.HasPrefix(text, one.half+" ") {
				t.Errorf("exit code %d: %s", code, text)
			}
		})
	}
}

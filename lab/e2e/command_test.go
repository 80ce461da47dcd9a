package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run runs one of the halves by itself and returns its exit code and all that it said.
func run(t *testing.T, half string, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, half), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}, env...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for _, bad := range []string{"DATA RACE", "panic"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("%s: %s", bad, text)
		}
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func TestEachComponentRejectsTheOthersCredential(t *testing.T) {
	for _, one := range []struct{ half, setting string }{
		{"slicefeed-writer", "IONOS_TOKEN"},
		{"slicefeed-writer", "IONOS_TOKEN_FILE"},
		{"slicefeed-writer", "IONOS_USERNAME"},
		{"slicefeed-writer", "IONOS_PASSWORD"},
		{"slicefeed-writer", "SECURED_KUBECONFIG"},
		{"slicefeed-inventory", "TARGET_KUBECONFIG"},
	} {
		t.Run(one.half+" refuses "+one.setting, func(t *testing.T) {
			env := shared.Inventory.Env()
			if one.half == "slicefeed-writer" {
				env = shared.Writers[0].Env()
			}
			if code, text := run(t, one.half, env, "check-config"); code != 0 {
				t.Fatalf("without it: exit code %d: %s", code, text)
			}
			code, text := run(t, one.half, append(env, one.setting+"=sesame"), "serve")
			if code != 2 || !strings.Contains(text, one.setting) || strings.Contains(text, "sesame") {
				t.Errorf("exit code %d, want 2 and the setting's name without its value: %s", code, text)
			}
		})
	}
}

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
				code, text := run(t, one.half, one.env, command)
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
			if code, text := run(t, one.half, nil, "version"); code != 0 || !strings.HasPrefix(text, one.half+" ") {
				t.Errorf("exit code %d: %s", code, text)
			}
		})
	}
}

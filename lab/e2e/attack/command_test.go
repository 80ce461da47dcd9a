package attack

import (
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/lab/e2e"
)

func TestEachComponentRejectsTheOthersCredential(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	for _, one := range []struct{ component, setting string }{
		{"slicefeed-writer", "IONOS_TOKEN"},
		{"slicefeed-writer", "IONOS_TOKEN_FILE"},
		{"slicefeed-writer", "IONOS_USERNAME"},
		{"slicefeed-writer", "IONOS_PASSWORD"},
		{"slicefeed-writer", "SECURED_KUBECONFIG"},
		{"slicefeed-inventory", "TARGET_KUBECONFIG"},
	} {
		t.Run(one.component+" rejects "+one.setting, func(t *testing.T) {
			env := s.Inventory.Env()
			if one.component == "slicefeed-writer" {
				env = s.Writers[0].Env()
			}
			if code, text := e2e.Run(t, one.component, env, "check-config"); code != 0 {
				t.Fatalf("without it: exit code %d: %s", code, text)
			}
			code, text := e2e.Run(t, one.component, append(env, one.setting+"=sesame"), "serve")
			if code != 2 || !strings.Contains(text, one.setting) || strings.Contains(text, "sesame") {
				t.Errorf("exit code %d, want 2 and the setting's name without its value: %s", code, text)
			}
		})
	}
}

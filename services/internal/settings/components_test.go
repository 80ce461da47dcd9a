package settings_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	inventory "github.com/slicefeed/slicefeed/services/inventory/app"
	writer "github.com/slicefeed/slicefeed/services/writer/app"
)

// component is one of the binaries, whose settings are new().
type component struct {
	name  string
	env   map[string]string // of a valid configuration
	new   func() any
	chart chart
}

var components = []component{
	{"inventory", testkit.InventoryEnv(), func() any { return &inventory.Config{} }, chart{setByChart: map[string]string{
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
	}}},
	{"writer", testkit.WriterEnv(), func() any { return &writer.Config{} }, chart{setByChart: map[string]string{
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
	}, enums: map[string][]string{"STORE_KIND": {"kubernetes", "memory"}}}}, // not its old name
}

func TestSettingsAreDocumented(t *testing.T) {
	for _, c := range components {
		if err := checkDocs("../../../docs/reference/settings.md", c.name, c.new()); err != nil {
			t.Error(err)
		}
	}
}

func TestSettingsOfCharts(t *testing.T) {
	for _, c := range components {
		if err := c.chart.checkSchema("../../../deploy/slicefeed-"+c.name+"/values.schema.json", c.new()); err != nil {
			t.Error(err)
		}
	}
}

// The schema accepts every value that the component accepts, and rejects most mistakes before a Pod starts.
func TestSettingsOfChartsAgreeWithComponents(t *testing.T) {
	looser := map[string]bool{ // than the component: what no regular expression says, besides the bounds of durations
		"SECURED_SUBNET_CIDR":     true,
		"ALLOWED_PORTS":           true,
		"NODE_SELECTOR":           true,
		"SOURCE_SERVICE_SELECTOR": true,
		"INVENTORY_COMMAND_ARGS":  true,
		"INVENTORY_STATIC":        true,
		"CLASS":                   true,
		"WATCH_NAMESPACES":        true,
		"TARGET_MANAGED_BY":       true,
		"ZONE_MAP":                true,
		"IONOS_PRIVATE_LAN_ID":    true,
	}
	stricter := map[string]bool{ // what only older installations have, and other words for no and none
		"SECURED_SUBNET_CIDR=10.0.1.": true, "SECURED_SUBNET_CIDR=10.0.1.0/24, fd00:1::/64,": true, "STORE_KIND=kubectl": true,
		"SERVICE_IMPORTS=0": true, "TARGET_PORT=0": true,
	}
	for _, c := range components {
		text, err := os.ReadFile("testdata/" + c.name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range settings.List(c.new()) {
			if c.chart.setByChart[f.Env] != "" {
				continue
			}
			property, err := c.chart.newProperty(&f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				value, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), f.Env+"=")
				if value, _, _ = strings.Cut(value, " && "); !found || value == "" {
					continue
				}
				schema := property.accepts(value)
				valid := !slices.ContainsFunc(c.outcome(map[string]string{f.Env: value}), func(problem string) bool {
					return strings.HasPrefix(problem, "- "+f.Env+"=") && !strings.Contains(problem, "because ")
				})
				if schema && !valid && !looser[f.Env] && f.Type() != reflect.TypeFor[time.Duration]() ||
					!schema && valid && !stricter[f.Env+"="+value] {
					t.Errorf("%s=%q: accepted by the schema: %t, by the %s: %t", f.Env, value, schema, c.name, valid)
				}
			}
		}
	}
}

// The file has what each value of each setting does: the fields that it changes, or the problems. An input line sets
// variables, or removes those that have no value; the lines below it are the outcome.
func TestEachValueOfEachSetting(t *testing.T) {
	for _, c := range components {
		path := "testdata/" + c.name + ".txt"
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		base := c.outcome(nil)
		var got strings.Builder
		tried := map[string]int{}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "\t") {
				continue
			}
			got.WriteString(line)
			if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
				continue
			}
			set := map[string]string{}
			for assignment := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), " && ") {
				name, value, _ := strings.Cut(assignment, "=")
				set[name] = value
				tried[name]++
			}
			outcome := slices.DeleteFunc(c.outcome(set), func(line string) bool { return slices.Contains(base, line) })
			if len(outcome) == 0 {
				outcome = []string{"as before"}
			}
			for _, line := range outcome {
				fmt.Fprintf(&got, "\t%s\n", line)
			}
		}
		for _, f := range settings.List(c.new()) {
			if tried[f.Env] < 3 {
				t.Errorf("%s: %s is tried %d times, want a valid value, an invalid one and none", path, f.Env, tried[f.Env])
			}
		}
		if *testkit.Update {
			if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(text), got.String()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", path, diff)
		}
	}
}

// outcome returns the problems of a configuration, or the values of all its fields.
func (c component) outcome(set map[string]string) (lines []string) {
	env := maps.Clone(c.env)
	maps.Copy(env, set)
	cfg := c.new()
	if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
		return strings.Split(settings.NewConfigError(err).Error(), "\n")[1:]
	}
	return describe("", reflect.ValueOf(cfg).Elem())
}

func describe(path string, v reflect.Value) (lines []string) {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if field.Kind() == reflect.Struct {
			lines = append(lines, describe(path+name+".", field)...)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s%s is %v", path, name, field.Interface()))
	}
	return lines
}

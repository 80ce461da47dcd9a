package settings_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	inventory "github.com/slicefeed/slicefeed/services/inventory/app"
	writer "github.com/slicefeed/slicefeed/services/writer/app"
)

// files writes files into a directory.
type files struct {
	t   *testing.T
	dir string
}

func (f files) write(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// writeCert writes a certificate that signs itself, and its key beside it.
func (f files) writeCert(name string, lifetime time.Duration, isCA bool) string {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		),
		DNSNames:              []string{"component.example"},
		NotAfter:              time.Now().Add(lifetime),
		IsCA:                  isCA,
		BasicConstraintsValid: true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	if err != nil {
		f.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return f.write(name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
}

// Strict is what check-config reports besides, and serve does not.
func TestFilesAreChecked(t *testing.T) {
	f := files{t, t.TempDir()}
	valid, expired, ca := f.writeCert(
		"tls.crt",
		time.Hour,
		false,
	), f.writeCert(
		"old.crt",
		-time.Hour,
		false,
	), f.writeCert(
		"ca.crt",
		time.Hour,
		true,
	)
	clients := f.write("clients.yaml", "clients:\n- san: component.example\n  role: subscriber\n")
	source := "sources:\n- name: blue\n  address: a.example:1\n  san: a.example\n  cidrs: [10.0.0.0/24]\n"
	sources := map[string]string{"INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": ""}
	for name, tt := range map[string]struct {
		component string
		set       map[string]string
		strict    bool
		want      string // part of the only problem; empty: none
	}{
		"valid files of an inventory":      {"inventory", nil, false, ""},
		"valid files of a writer":          {"writer", nil, false, ""},
		"no certificate":                   {"inventory", map[string]string{"TLS_CERT_FILE": f.dir + "/none"}, false, "TLS_CERT_FILE=\"" + f.dir + "/none\": open"},
		"no key":                           {"writer", map[string]string{"TLS_KEY_FILE": f.dir + "/none"}, false, "TLS_KEY_FILE="},
		"the key of another certificate":   {"inventory", map[string]string{"TLS_KEY_FILE": expired + ".key"}, false, "private key does not match"},
		"no CA":                            {"inventory", map[string]string{"TLS_PEER_CA_FILE": clients}, false, "TLS_PEER_CA_FILE="},
		"a client list that is none":       {"inventory", map[string]string{"ALLOWED_CLIENTS_FILE": ca}, false, "ALLOWED_CLIENTS_FILE="},
		"an expired certificate":           {"inventory", map[string]string{"TLS_CERT_FILE": expired, "TLS_KEY_FILE": expired + ".key"}, true, "TLS_CERT_FILE=\"" + expired + "\": expired on"},
		"a certificate that is no CA's":    {"writer", map[string]string{"TLS_PEER_CA_FILE": valid}, true, "TLS_PEER_CA_FILE=\"" + valid + "\": certificate for [\"component.example\"]"},
		"an expired CA":                    {"writer", map[string]string{"TLS_PEER_CA_FILE": f.writeCert("old-ca.crt", -time.Hour, true)}, true, "expired on"},
		"no token in its file":             {"inventory", map[string]string{"IONOS_TOKEN": "", "IONOS_TOKEN_FILE": f.write("token", "\n")}, true, "IONOS_TOKEN_FILE"},
		"a token in its file":              {"inventory", map[string]string{"IONOS_TOKEN": "", "IONOS_TOKEN_FILE": f.write("good", "hush\n")}, true, ""},
		"a program that is not there":      {"inventory", map[string]string{"SOURCE_KIND": "command", "INVENTORY_COMMAND": "/none"}, false, "INVENTORY_COMMAND=\"/none\""},
		"a listener's expired certificate": {"writer", map[string]string{"LISTEN_ADDRESS": ":1", "LISTEN_CERT_FILE": expired, "LISTEN_KEY_FILE": expired + ".key", "CLIENT_CA_FILE": ca, "ALLOWED_CLIENTS_FILE": clients}, true, "LISTEN_CERT_FILE"},
		"sources":                          {"writer", with(sources, "SOURCES_FILE", f.write("sources.yaml", source)), true, ""},
		"a misspelled field of a source":   {"writer", with(sources, "SOURCES_FILE", f.write("typo.yaml", source+"  port: [1]\n")), false, "unknown field \"port\""},
		"a source's certificate as its CA": {"writer", with(sources, "SOURCES_FILE", f.write("leaf.yaml", source+"  caFile: tls.crt\n")), true, "SOURCES_FILE: caFile of blue"},
		"all addresses of a source":        {"writer", with(sources, "SOURCES_FILE", f.write("all.yaml", strings.Replace(source, "10.0.0.0/24", "0.0.0.0/0", 1))), false, "not all addresses"},
		"a source's address with a scheme": {"writer", with(sources, "SOURCES_FILE", f.write("scheme.yaml", strings.Replace(source, "a.example:1", "https://a.example:1", 1))), false, "want host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			at := map[string]int{"inventory": 0, "writer": 1}[tt.component]
			env := maps.Clone(components[at].env)
			maps.Copy(env, map[string]string{"TLS_CERT_FILE": valid, "TLS_KEY_FILE": valid + ".key", "TLS_PEER_CA_FILE": ca})
			if tt.component == "inventory" {
				env["ALLOWED_CLIENTS_FILE"] = clients
			}
			maps.Copy(env, tt.set)
			cfg := components[at].new()
			if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
				t.Fatal(err)
			}
			check := func(checks settings.FileChecks) error {
				if c, ok := cfg.(*inventory.Config); ok {
					return c.CheckFiles("test", checks)
				}
				return cfg.(*writer.Config).CheckFiles("test", checks)
			}
			err := check(settings.FileChecks{Strict: true})
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) ||
				err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("check-config: %v, want %q", err, tt.want)
			}
			if err := check(settings.FileChecks{}); (err != nil) != (tt.want != "" && !tt.strict) {
				t.Errorf("serve: %v", err)
			}
		})
	}
}

func with(env map[string]string, name, value string) map[string]string {
	env = maps.Clone(env)
	env[name] = value
	return env
}

func TestMisspelledVariablesAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		variable, want string
	}{
		"a letter is missing": {"SECURED_SUBNET_CIR=10.0.0.0/24", "SECURED_SUBNET_CIDR"},
		"a letter too many":   {"IONOS_TOKEN_FILES=/token", "IONOS_TOKEN_FILE"},
		"two are swapped":     {"CORDNOED=drain", "CORDONED"},
		"another underscore":  {"NODESELECTOR=a", "NODE_SELECTOR"},
		"a setting":           {"IONOS_TOKEN_FILE=/token", ""},
		"a deprecated name":   {"SECURED_SUBNET_PREFIX=10.0.0.", ""},
		"the writer's":        {"TARGET_NAMESPACE=web", ""},
		"Go's":                {"SSL_CERT_FILE=/ca.crt", ""},
		"a link to a Service": {"LOG_LEVELS_PORT=tcp://10.96.0.1:80", ""},
		"something else":      {"PATH=/bin", ""},
		"one of Kubernetes":   {"KUBERNETES_SERVICE_HOST=10.96.0.1", ""},
		"empty":               {"=", ""},
	} {
		warnings := strings.Join(settings.Misspelled([]string{tt.variable}, &inventory.Config{}), "\n")
		if (warnings != "") != (tt.want != "") ||
			!strings.HasSuffix(warnings, strings.TrimSuffix("did you mean "+tt.want+"?", "did you mean ?")) {
			t.Errorf("%s: %s: %q, want %q", name, tt.variable, warnings, tt.want)
		}
	}
	// One environment may have the settings of both.
	for i, c := range components {
		for _, f := range settings.List(components[1-i].new()) {
			if warnings := settings.Misspelled([]string{f.Env + "=x"}, c.new()); warnings != nil {
				t.Errorf("%s: %v", c.name, warnings)
			}
		}
	}
}

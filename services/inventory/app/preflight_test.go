package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/inventory/config/configtest"
)

// addLinkFiles adds certificates, keys and the client list to an environment.
func addLinkFiles(t *testing.T, env map[string]string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	write := func(setting, name string, text []byte) {
		env[setting] = filepath.Join(dir, name)
		if err := os.WriteFile(env[setting], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authority := func(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
		return issueCert(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}, nil, nil)
	}
	ownCA, key := authority("ours")
	peerCA, _ := authority("theirs")
	leaf, leafKey := issueCert(t, &x509.Certificate{
		DNSNames: []string{"inventory.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ownCA, key)
	der, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	write("TLS_CERT_FILE", "tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))
	write("TLS_KEY_FILE", "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	write("TLS_PEER_CA_FILE", "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: peerCA.Raw}))
	write("ALLOWED_CLIENTS_FILE", "clients.yaml", []byte("clients:\n- san: writer.example\n  role: subscriber\n"))
	return env
}

func issueCert(t *testing.T, c, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(90*24*time.Hour+time.Hour)
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c, key
}

func TestPreflightReportsEachCheck(t *testing.T) {
	healthy := fakeAPIs{
		nodes:   []corev1.Node{workerNode("one", server1), workerNode("cp", "", controlPlane)},
		servers: []string{serverJSON(server1, "one", "10.0.1.11")},
	}
	with := func(change func(*fakeAPIs)) fakeAPIs {
		f := healthy
		change(&f)
		return f
	}
	all := func(authorizationv1.ResourceAttributes) bool { return true }
	lan := "LAN 2 of datacenter 7d2f6e1a…"

	for _, tt := range []struct {
		name string
		apis fakeAPIs
		set  map[string]string
		code int
		want []string // parts of lines, each with its mark; the other lines are ok
	}{
		{"all checks pass", healthy, nil, 0, []string{
			"ok certificate|inventory.example, for server auth, expires in 90 days", "ok allowed clients|valid",
			"ok API server|v1.36.3 at http://127.0.0.1:", "ok API server clock|in sync", "ok list nodes|allowed", "ok watch nodes|allowed",
			"ok excess permissions|none found", "ok source|nodes: 2, workers: 1, eligible: 1, eligible and ready: 1",
			"ok IONOS token|accepted; expires in 200 days", "ok cloud clock|in sync",
			"ok " + lan + `|private, "workers" in "prod" (de/fra), addresses [10.0.1.0/24]`, "ok first observation|published nodes: 1",
		}},
		{"a node is omitted", with(func(f *fakeAPIs) { f.nodes = append(slices.Clone(f.nodes), workerNode("two", server2)) }), nil, 0, []string{
			"WARN first observation|two (NOT_FOUND_IN_IONOS)|explain",
		}},
		{"the API server is unavailable", with(func(f *fakeAPIs) { f.apiDown = true }), nil, 1, []string{
			"FAIL API server|unable to handle|SECURED_KUBECONFIG", "- API server clock|API server", "- list nodes|API server", "- source|API server", "- first observation|source",
			"ok IONOS token|accepted",
		}},
		{"a permission is missing", with(func(f *fakeAPIs) {
			f.isAllowed = func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "nodes" && a.Verb == "watch" }
		}), nil, 1, []string{"FAIL list nodes|permission to list nodes missing; bind the role", "ok watch nodes", "- source|list nodes"}},
		{"everything is permitted", with(func(f *fakeAPIs) { f.isAllowed = all }), nil, 0, []string{"WARN excess permissions|all permissions"}},
		{"more is permitted", with(func(f *fakeAPIs) {
			f.isAllowed = func(a authorizationv1.ResourceAttributes) bool {
				return a.Resource == "nodes" || a.Resource == "secrets"
			}
		}), nil, 0, []string{"WARN excess permissions|patch nodes, delete nodes, list secrets"}},
		{"clocks differ", with(func(f *fakeAPIs) { f.clockLag = 90 * time.Second }), nil, 1, []string{
			"FAIL API server clock|behind this machine|NTP", "FAIL cloud clock|behind this machine",
		}},
		{"no node is selected", healthy, map[string]string{"NODE_SELECTOR": "pool=blue"}, 1, []string{
			"FAIL source|workers: 1, eligible: 0|NODE_SELECTOR", "- first observation",
		}},
		{"the token is rejected", with(func(f *fakeAPIs) { f.tokenRejected = true }), nil, 1, []string{
			"FAIL IONOS token|not accepted (HTTP 401)", "- cloud clock", "- " + lan, "- first observation|IONOS token",
		}},
		{"the token has expired", with(func(f *fakeAPIs) { f.tokenRejected = true }), map[string]string{"IONOS_TOKEN": newToken(time.Now().Add(-time.Hour))}, 1, []string{
			"FAIL IONOS token|expired on", "- " + lan,
		}},
		{"the token expires soon", healthy, map[string]string{"IONOS_TOKEN": newToken(time.Now().Add(10*24*time.Hour + time.Hour))}, 0, []string{
			"WARN IONOS token|expires in 10 days",
		}},
		{"the datacenter does not exist", healthy, map[string]string{"IONOS_DATACENTER_ID": server1}, 1, []string{
			"ok IONOS token|expires in 200 days", "FAIL LAN 2 of datacenter 11111111…|HTTP 404|IONOS_DATACENTER_ID", "- first observation",
			"ok cloud clock|in sync",
		}},
		{"the LAN does not exist", healthy, map[string]string{"IONOS_PRIVATE_LAN_ID": "3"}, 1, []string{"FAIL LAN 3 of datacenter 7d2f6e1a…|HTTP 404|IONOS_PRIVATE_LAN_ID", "ok cloud clock|in sync"}},
		{"the LAN is public", with(func(f *fakeAPIs) { f.lanJSON = strings.Replace(privateLAN, "false", "true", 1) }), nil, 1, []string{"FAIL " + lan + "|is public|IONOS_PRIVATE_LAN_ID"}},
		{"the LAN has other addresses", healthy, map[string]string{"SECURED_SUBNET_CIDR": "10.9.0.0/16"}, 1, []string{"FAIL " + lan + "|[10.0.1.0/24]|[10.9.0.0/16]|SECURED_SUBNET_CIDR"}},
		{"no cloud is needed", with(func(f *fakeAPIs) {
			f.nodes = []corev1.Node{workerNode("one", "", func(n *corev1.Node) {
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.1.11"}}
			})}
		}), map[string]string{"RESOLVER": "node-address"}, 0, []string{"ok first observation|published nodes: 1"}},
		{"the certificate is missing", healthy, map[string]string{"TLS_CERT_FILE": "/nonexistent"}, 1, []string{"FAIL certificate|/nonexistent", "- certificate key", "ok first observation"}},
		{"the list of clients is empty", healthy, map[string]string{"ALLOWED_CLIENTS_FILE": "/dev/null"}, 1, []string{"FAIL allowed clients|/dev/null"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := addLinkFiles(t, tt.apis.start(t, nil))
			maps.Copy(env, tt.set)
			code, out, errs := runCommand(t, env, "preflight")
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			expectLines(t, out, tt.want)
			if t.Failed() {
				t.Logf("%s%s", out, errs)
			}
		})
	}
}

var columns = regexp.MustCompile(` {2,}`)

// expectLines fails unless out has every wanted line and all other lines are ok or skipped.
func expectLines(t *testing.T, out string, want []string) {
	t.Helper()
	expected := map[string]bool{}
	for line := range strings.Lines(out) {
		columns := columns.Split(strings.TrimSpace(line), 3)
		check, text := columns[0]+" "+columns[1], strings.Join(columns, " ")
		for _, w := range want {
			parts := strings.Split(w, "|")
			if check != parts[0] {
				continue
			}
			expected[w], expected[text] = true, true
			for _, p := range parts[1:] {
				if !strings.Contains(text, p) {
					t.Errorf("%q is not in %q", p, text)
				}
			}
		}
		if !expected[text] && !strings.HasPrefix(text, "ok ") && !strings.HasPrefix(text, "- ") {
			t.Errorf("unexpected line: %s", text)
		}
	}
	for _, w := range want {
		if !expected[w] {
			t.Errorf("no line %q", w)
		}
	}
}

func TestPreflightReadsRecords(t *testing.T) {
	for _, tt := range []struct {
		name, records string
		code          int
		want          []string
	}{
		{"valid records", `[{"name":"a","private_ip":"10.0.1.11","ready":true,"worker":true}]`, 0, []string{"ok source|nodes: 1", "ok first observation|published nodes: 1"}},
		{"no records", `[]`, 1, []string{"FAIL source|no eligible node", "- first observation"}},
		{"truncated records", `[{"name":`, 1, []string{"FAIL source|read source", "- first observation"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "nodes.json")
			if err := os.WriteFile(file, []byte(tt.records), 0o600); err != nil {
				t.Fatal(err)
			}
			env := addLinkFiles(t, configtest.Env())
			maps.Copy(env, configtest.SourceEnv("file", "INVENTORY_FILE_PATH", file))
			code, out, errs := runCommand(t, env, "preflight")
			if code != tt.code || strings.Contains(out, "API server") || strings.Contains(out, "IONOS") {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			expectLines(t, out, tt.want)
			if t.Failed() {
				t.Logf("%s%s", out, errs)
			}
		})
	}
}

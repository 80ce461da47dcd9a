package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
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

func TestPreflightPrintsEachCheck(t *testing.T) {
	healthy := fakeAPIs{
		nodes:   []corev1.Node{workerNode("one", server1), workerNode("cp", "", controlPlane)},
		servers: []string{serverJSON(server1, "one", "10.0.1.11")},
	}
	with := func(change func(*fakeAPIs)) fakeAPIs {
		f := healthy
		change(&f)
		return f
	}
	lan := "LAN 2 of datacenter 7d2f6e1a"

	for _, tt := range []struct {
		name string
		apis fakeAPIs
		set  map[string]string
		code int
		want []string // parts of lines; the other lines are ok
	}{
		{"all checks pass", healthy, nil, 0, []string{
			`certificate ok|["inventory.example"]|until 20`, "peer CA ok|CN=theirs", lan + ` ok|"workers" in "prod", addresses in [10.0.1.0/24]`,
			"API server ok|http://127.0.0.1:", "nodes ok|may list nodes, watch nodes", "excess permissions ok|none found",
		}},
		{"the API server is unavailable", with(func(f *fakeAPIs) { f.apiDown = true }), nil, 1, []string{"API server FAILED|etcd is away"}},
		{"a permission is missing", with(func(f *fakeAPIs) {
			f.isAllowed = func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "nodes" && a.Verb == "watch" }
		}), nil, 1, []string{"nodes FAILED|may not list nodes"}},
		{"more is permitted", with(func(f *fakeAPIs) {
			f.isAllowed = func(a authorizationv1.ResourceAttributes) bool {
				return a.Resource == "nodes" || a.Resource == "secrets"
			}
		}), nil, 0, []string{"excess permissions warning|may patch nodes, delete nodes, list secrets, and never does"}},
		{"the token is rejected", with(func(f *fakeAPIs) { f.tokenRejected = true }), nil, 1, []string{lan + " FAILED|not accepted (HTTP 401)"}},
		{"the datacenter does not exist", healthy, map[string]string{"IONOS_DATACENTER_ID": server1}, 1, []string{"LAN 2 of datacenter 11111111 FAILED|HTTP 404"}},
		{"the LAN does not exist", healthy, map[string]string{"IONOS_PRIVATE_LAN_ID": "3"}, 1, []string{"LAN 3 of datacenter 7d2f6e1a FAILED|HTTP 404"}},
		{"the LAN is public", with(func(f *fakeAPIs) { f.lanJSON = strings.Replace(privateLAN, "false", "true", 1) }), nil, 1, []string{lan + " FAILED|is public"}},
		{"the LAN has other addresses", healthy, map[string]string{"SECURED_SUBNET_CIDR": "10.9.0.0/16"}, 1, []string{lan + " FAILED|[10.0.1.0/24], none in [10.9.0.0/16]"}},
		{"the certificate is missing", healthy, map[string]string{"TLS_CERT_FILE": "/nonexistent"}, 1, []string{"certificate FAILED|TLS_CERT_FILE|/nonexistent"}},
		{"the peer CA is a peer's certificate", healthy, map[string]string{"TLS_PEER_CA_FILE": "TLS_CERT_FILE"}, 1, []string{"peer CA FAILED|is not a CA's"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := addLinkFiles(t, tt.apis.start(t, nil))
			maps.Copy(env, tt.set)
			if env["TLS_PEER_CA_FILE"] == "TLS_CERT_FILE" {
				env["TLS_PEER_CA_FILE"] = env["TLS_CERT_FILE"]
			}
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

// expectLines fails unless out has every wanted line and all other results are ok.
func expectLines(t *testing.T, out string, want []string) {
	t.Helper()
	expected := map[string]bool{}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, " ") { // advice
			continue
		}
		text := strings.Join(strings.Fields(line), " ")
		for _, w := range want {
			parts := strings.Split(w, "|")
			if !strings.HasPrefix(text, parts[0]+" ") {
				continue
			}
			expected[w], expected[text] = true, true
			for _, p := range parts[1:] {
				if !strings.Contains(text, p) {
					t.Errorf("%q is not in %q", p, text)
				}
			}
		}
		if !expected[text] && !strings.Contains(text, " ok ") {
			t.Errorf("unexpected line: %s", text)
		}
	}
	for _, w := range want {
		if !expected[w] {
			t.Errorf("no line %q", w)
		}
	}
}

func TestNeedsThePermissionsThatItUses(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, []string{"[list watch] nodes []"}},
		{map[string]string{"WORKLOAD": "ingress/app=gateway"}, []string{"[list watch] nodes []", "[list watch] pods [ingress]"}},
		{testkit.SourceEnv("service", "SOURCE_SERVICE", "shop/web"), []string{"[get] services web [shop]", "[list watch] endpointslices [shop]"}},
		{
			exporting(t, "[shop/web, shop/api, pay/*]"),
			[]string{"[get list watch] services [pay]", "[get list watch] services [shop]", "[list watch] endpointslices [pay shop]"},
		},
		{exporting(t, "[]"), nil},
		{exporting(t, "['*/web', '*/*']"), []string{"[get list watch] services [*]", "[list watch] endpointslices [*]"}},
	} {
		cfg, err := testkit.LoadEnv[Config](testkit.InventoryEnv(), tt.set)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range neededPermissions(cfg) {
			got = append(got, fmt.Sprintf("%v %s %v", p.Verbs, strings.TrimSpace(p.Resource+" "+p.Name), p.Namespaces))
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.set, d)
		}
	}
}

// exporting returns the environment of an inventory that exports Services to two clients, of which one may see these.
func exporting(t *testing.T, services string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clients.yaml")
	text := "clients:\n- {san: writer.example, role: subscriber, services: " + services + "}\n- {san: other.example, role: operator}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := testkit.SourceEnv("service", "SOURCE_SERVICE_SELECTOR", "export=yes")
	env["ALLOWED_CLIENTS_FILE"] = file
	return env
}

func TestChecksLANAddresses(t *testing.T) {
	blocks := func(all ...string) (prefixes []netip.Prefix) {
		for _, text := range all {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		return prefixes
	}
	for _, tt := range []struct {
		d  ionos.Description
		ok bool
	}{
		{ionos.Description{Prefixes: blocks("10.0.1.0/24")}, true},
		{ionos.Description{Prefixes: blocks("10.0.0.0/16")}, true},
		{ionos.Description{Prefixes: blocks("10.0.1.128/25", "2001:db8::/64")}, true},
		{ionos.Description{}, true},
		{ionos.Description{Prefixes: blocks("10.0.2.0/24")}, false},
		{ionos.Description{Prefixes: blocks("2001:db8::/64")}, false},
		{ionos.Description{Prefixes: blocks("10.0.1.0/24"), Public: true}, false},
	} {
		if _, err := checkLAN(tt.d, blocks("10.0.1.0/24")); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.d, err)
		}
	}
}

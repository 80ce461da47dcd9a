package preflight

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/identity"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// issuedCert is a certificate with its key.
type issuedCert struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issueCert issues a certificate that is valid for a year, unless changed. It is self-signed if by is nil.
func issueCert(t *testing.T, name string, by *issuedCert, change func(*x509.Certificate)) issuedCert {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-day), NotAfter: now.Add(365 * day),
		BasicConstraintsValid: true, IsCA: by == nil,
	}
	if change != nil {
		change(c)
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return issuedCert{c, key}
}

func encodeCerts(all ...issuedCert) []byte {
	var text []byte
	for _, i := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})...)
	}
	return text
}

func encodeKey(t *testing.T, i issuedCert) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// asServer sets the names and usage of an inventory.
func asServer(c *x509.Certificate) {
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/inventory"}}
	c.DNSNames = []string{"inventory.example"}
}

func TestIdentityChecks(t *testing.T) {
	own, peers, other := issueCert(t, "own", nil, nil), issueCert(t, "peers", nil, nil), issueCert(t, "other", nil, nil)
	leaf := func(change func(*x509.Certificate)) issuedCert {
		return issueCert(t, "leaf", &own, func(c *x509.Certificate) {
			asServer(c)
			if change != nil {
				change(c)
			}
		})
	}
	ca := func(change func(*x509.Certificate)) issuedCert { return issueCert(t, "peers", nil, change) }
	ends := func(in time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = now.Add(in) }
	}
	good := leaf(nil)

	for _, tt := range []struct {
		name   string
		leaf   issuedCert
		client bool
		key    *issuedCert
		ca     []byte
		lines  []string // for the certificate, its key and the peer CA: prefix|further parts
	}{
		{"valid", good, false, nil, encodeCerts(peers), []string{
			"ok certificate|spiffe://example.org/inventory, inventory.example, for server auth, expires in 365 days, on 2027-11-21",
			"ok certificate key|matches", "ok peer CA|CN=peers, expires in 365 days",
		}},
		{"expired", leaf(ends(-time.Hour)), false, nil, encodeCerts(peers), []string{"FAIL certificate|expired on 2026-11-21T11:00:00Z; renew it", "- certificate key", "ok peer CA"}},
		{"expires in ten days", leaf(ends(10 * day)), false, nil, encodeCerts(peers), []string{"WARN certificate|expires in 10 days, on 2026-12-01", "ok certificate key", "ok peer CA"}},
		{"expires today", leaf(ends(90 * time.Minute)), false, nil, encodeCerts(peers), []string{"WARN certificate|expires in 1h30m0s", "ok certificate key", "ok peer CA"}},
		{"not valid yet", leaf(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }), false, nil, encodeCerts(peers), []string{"FAIL certificate|clock", "- certificate key", "ok peer CA"}},
		{"not for servers", leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), false, nil, encodeCerts(peers), []string{`FAIL certificate|"server auth"`, "- certificate key", "ok peer CA"}},
		{"not for clients", good, true, nil, encodeCerts(peers), []string{`FAIL certificate|"client auth"`, "- certificate key", "ok peer CA"}},
		{"without name and usage", leaf(func(c *x509.Certificate) { c.URIs, c.DNSNames, c.ExtKeyUsage = nil, nil, nil }), false, nil, encodeCerts(peers), []string{"FAIL certificate|extended key usage|no URI or DNS SAN", "- certificate key", "ok peer CA"}},
		{"server without DNS name", leaf(func(c *x509.Certificate) { c.DNSNames = nil }), false, nil, encodeCerts(peers), []string{"WARN certificate|grpcurl", "ok certificate key", "ok peer CA"}},
		{"client without DNS name", leaf(func(c *x509.Certificate) {
			c.DNSNames, c.ExtKeyUsage = nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), true, nil, encodeCerts(peers), []string{"ok certificate|for client auth", "ok certificate key", "ok peer CA"}},
		{"key of another certificate", good, false, &other, encodeCerts(peers), []string{"ok certificate", "FAIL certificate key|does not match|issued for", "ok peer CA"}},
		{"peer CA signed the own certificate", good, false, nil, encodeCerts(own), []string{"ok certificate", "ok certificate key", "WARN peer CA|cert-manager"}},
		{"peer CA and own CA", good, false, nil, encodeCerts(own, peers), []string{"ok certificate", "ok certificate key", "ok peer CA|CN=own; CN=peers"}},
		{"peer certificate instead of CA", good, false, nil, encodeCerts(issueCert(t, "writer", &peers, nil)), []string{"ok certificate", "ok certificate key", `FAIL peer CA|"CN=writer" is not a CA`}},
		{"peer CA expired", good, false, nil, encodeCerts(ca(ends(-time.Hour))), []string{"ok certificate", "ok certificate key", "FAIL peer CA|expired"}},
		{"one of two peer CAs expired", good, false, nil, encodeCerts(ca(ends(-time.Hour)), other), []string{"ok certificate", "ok certificate key", "ok peer CA|CN=other"}},
		{"both peer CAs expired", good, false, nil, encodeCerts(ca(ends(-time.Hour)), ca(ends(-day))), []string{"ok certificate", "ok certificate key", "FAIL peer CA|expired on 2026-11-21|expired on 2026-11-20"}},
		{"peer CA expires soon", good, false, nil, encodeCerts(ca(ends(13 * day))), []string{"ok certificate", "ok certificate key", "WARN peer CA|expires in 13 days"}},
		{"key instead of peer CA", good, false, nil, encodeKey(t, peers), []string{"ok certificate", "ok certificate key", "FAIL peer CA|PRIVATE KEY"}},
		{"empty peer CA file", good, false, nil, nil, []string{"ok certificate", "ok certificate key", "FAIL peer CA|no PEM certificate"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			files := identity.Files{
				Cert:   filepath.Join(dir, "tls.crt"),
				Key:    filepath.Join(dir, "tls.key"),
				PeerCA: filepath.Join(dir, "peer-ca.crt"),
			}
			key := tt.leaf
			if tt.key != nil {
				key = *tt.key
			}
			for file, text := range map[string][]byte{files.Cert: encodeCerts(tt.leaf), files.Key: encodeKey(t, key), files.PeerCA: tt.ca} {
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now)) // sets the clock
				expectLines(t, Identity{Files: files, Server: !tt.client}, tt.lines)
			})
		})
	}
}

func TestReportsMissingFiles(t *testing.T) {
	expectLines(t, Identity{Files: identity.Files{Cert: "no/cert", Key: "no/key", PeerCA: "no/ca"}},
		[]string{"FAIL certificate|no/cert: no such file", "- certificate key", "FAIL peer CA|no/ca: no such file"})
}

// expectLines runs the checks. Each line must start with the first part of its entry in want and contain
// the others.
func expectLines(t *testing.T, i Identity, want []string) {
	t.Helper()
	var out bytes.Buffer
	_ = Run(t.Context(), &out, command.Table, i.Checks())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got %d lines:\n%s", len(lines), out.String())
	}
	for n, line := range lines {
		parts := strings.Split(want[n], "|")
		if !strings.HasPrefix(strings.Join(strings.Fields(line), " "), parts[0]+" ") {
			t.Errorf("want %q, got %q", parts[0], line)
		}
		for _, part := range parts[1:] {
			if !strings.Contains(line, part) {
				t.Errorf("%q is not in %q", part, line)
			}
		}
	}
}

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newCA(t *testing.T, name string) *CA {
	t.Helper()
	ca, err := NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, c Cert) *x509.Certificate {
	t.Helper()
	pair, err := ca.Issue(c)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Leaf
}

func TestAnIssuedCertificateBearsWhatWasAskedForAndNoMore(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	leaf := issue(t, newCA(t, "ours"), Cert{
		CommonName:   "inventory",
		Organization: []string{"lab"},
		URIs:         []string{"spiffe://example.org/slicefeed/inventory"},
		DNS:          []string{"inventory.example"},
		IPs:          []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		NotBefore:    start,
		NotAfter:     start.Add(time.Minute),
	})
	var ips []string
	for _, ip := range leaf.IPAddresses {
		ips = append(ips, ip.String())
	}
	got := []any{
		leaf.Subject.CommonName, leaf.Subject.Organization, leaf.URIs[0].String(), len(leaf.URIs), leaf.DNSNames, ips,
		leaf.NotBefore, leaf.NotAfter, leaf.IsCA,
	}
	want := []any{
		"inventory",
		[]string{"lab"},
		"spiffe://example.org/slicefeed/inventory", 1,
		[]string{"inventory.example"},
		[]string{"10.0.0.1", "fd00::1"},
		start, start.Add(time.Minute), false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUsagesAreTheOnesAskedFor(t *testing.T) {
	ca := newCA(t, "ours")
	for name, row := range map[string]struct {
		usage          Usage
		client, server bool
	}{
		"client": {Client, true, false},
		"server": {Server, false, true},
		"both":   {Client | Server, true, true},
		"unset":  {0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := issue(t, ca, Cert{DNS: []string{"a.example"}, Usage: row.usage})
			verifies := func(usage x509.ExtKeyUsage) bool {
				_, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{usage}})
				return err == nil
			}
			if got := verifies(x509.ExtKeyUsageClientAuth); got != row.client {
				t.Errorf("verifies as a client: %v", got)
			}
			if got := verifies(x509.ExtKeyUsageServerAuth); got != row.server {
				t.Errorf("verifies as a server: %v", got)
			}
		})
	}
}

func TestAnotherAuthorityDoesNotVouch(t *testing.T) {
	// The same name on purpose: the key must decide.
	leaf := issue(t, newCA(t, "ours"), Cert{DNS: []string{"a.example"}})
	_, err := leaf.Verify(x509.VerifyOptions{Roots: newCA(t, "ours").Pool()})
	if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
		t.Errorf("got %v, want an unknown authority", err)
	}
}

func TestAnExpiredCertificateIsExpired(t *testing.T) {
	ca := newCA(t, "ours")
	leaf := issue(t, ca, Cert{DNS: []string{"a.example"}, NotAfter: time.Now().Add(-time.Minute)})
	_, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool()})
	if invalid := (x509.CertificateInvalidError{}); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("got %v, want expired", err)
	}
}

func TestFilesAreReplacedWholeAndReadableByTheOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	ca := newCA(t, "ours")
	for range 2 { // the second time replaces
		pair, err := ca.Issue(Cert{CommonName: "a"})
		if err != nil {
			t.Fatal(err)
		}
		certFile, keyFile, err := pair.Write(dir, "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(keyFile)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the key's mode is %v", info.Mode())
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")}
	if diff := cmp.Diff(want, append(names, hidden...)); diff != "" {
		t.Errorf("files left behind: %s", diff)
	}
}

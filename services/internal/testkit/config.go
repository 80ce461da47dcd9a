package testkit

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
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// LinkFiles are the paths of a link's files. They can be loaded, but no peer would accept them.
type LinkFiles struct{ Cert, Key, CA, Clients string }

// NewLinkFiles writes the files to a temporary directory.
func NewLinkFiles(t *testing.T) LinkFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"component.example"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	return LinkFiles{
		Cert: write("tls.crt", public), CA: write("ca.crt", public),
		Key:     write("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
		Clients: write("clients.yaml", []byte("clients:\n- san: component.example\n  role: subscriber\n")),
	}
}

// InventoryEnv returns the environment of a valid configuration of the inventory. None of its files exists.
func InventoryEnv() map[string]string {
	return map[string]string{
		"SECURED_SUBNET_CIDR": "10.0.1.0/24", "IONOS_TOKEN": "secret-token",
		"IONOS_DATACENTER_ID": "7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90", "IONOS_PRIVATE_LAN_ID": "2",
		"TLS_CERT_FILE": "cert.pem", "TLS_KEY_FILE": "key.pem", "TLS_PEER_CA_FILE": "ca.pem",
		"ALLOWED_CLIENTS_FILE": "clients.yaml",
	}
}

// SourceEnv returns the settings of a source of an inventory that needs no cloud.
func SourceEnv(kind, setting, value string) map[string]string {
	return map[string]string{"SOURCE_KIND": kind, "IONOS_TOKEN": "", "IONOS_DATACENTER_ID": "", "IONOS_PRIVATE_LAN_ID": "", setting: value}
}

// WriterEnv returns the environment of a valid configuration of the writer. None of its files exists.
func WriterEnv() map[string]string {
	return map[string]string{
		"INVENTORY_ADDRESS": "inventory.example:9443", "INVENTORY_SAN": "spiffe://example.org/slicefeed/inventory",
		"TLS_CERT_FILE": "cert.pem", "TLS_KEY_FILE": "key.pem", "TLS_PEER_CA_FILE": "ca.pem",
		"SECURED_SUBNET_CIDR": "10.0.1.0/24", "TARGET_NAMESPACE": "web", "TARGET_SERVICE_NAME": "shop",
	}
}

// LoadEnv loads a configuration from an environment with changes.
func LoadEnv[T any](env, changes map[string]string) (*T, error) {
	maps.Copy(env, changes)
	cfg := new(T)
	return cfg, settings.Load(nil, func(name string) string { return env[name] }, cfg)
}

package main

import (
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const withoutRootsEnv = "SLICEFEED_TEST_WITHOUT_SYSTEM_ROOTS"

// The roots of the system are read once per process, so this one starts itself again as it would
// be in an image FROM scratch.
func TestVerifiesPublicCertificatesWithoutSystemRoots(t *testing.T) {
	if os.Getenv(withoutRootsEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), withoutRootsEnv+"=1", "SSL_CERT_FILE=/nonexistent", "SSL_CERT_DIR=/nonexistent")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	verified := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a root that counts for older certificates only does not verify itself
		}
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		// Without roots of its own, as the client of the cloud API verifies.
		_, err = cert.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().After(cert.NotAfter) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", cert.Subject, err)
		}
		verified++
	}
	if verified < 50 {
		t.Errorf("%d roots verify, want those that browsers know", verified)
	}
}

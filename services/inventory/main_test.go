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

// The system's roots are read once per process, so the test runs itself again in an environment like
// that of an image FROM scratch.
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
			continue // a root with a constraint on the issue date does not verify itself
		}
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		// Without explicit roots, like the client of the IONOS API.
		_, err = cert.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired &&
			time.Now().After(cert.NotAfter) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", cert.Subject, err)
		}
		verified++
	}
	if verified < 50 {
		t.Errorf("%d roots verify, want at least 50", verified)
	}
}

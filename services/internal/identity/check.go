package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Check reads the files, and names each problem by the setting of its file in names. A file that is not set is no problem.
// Strict checks are that certificates are valid now, and that those of peers are of CAs.
func (f Files) Check(usage x509.ExtKeyUsage, names Files, checks settings.FileChecks) error {
	checkCerts := func(check func([]*x509.Certificate) error) func(string) error {
		return func(path string) error {
			certs, err := certificate.Read(path)
			if err != nil {
				return err
			}
			err = check(certs)
			if checks.Strict && err == nil {
				err = checkPeriods(certs)
			}
			return err
		}
	}
	return errors.Join(
		settings.CheckFile(names.Cert, f.Cert, checkCerts(func(certs []*x509.Certificate) error {
			return certificate.CheckOwn(certs, usage)
		})),
		settings.CheckFile(names.Key, f.Key, f.checkKey),
		settings.CheckFile(names.PeerCA, f.PeerCA, checkCerts(func(certs []*x509.Certificate) error {
			if checks.Strict {
				return certificate.CheckCAs(certs)
			}
			return nil
		})))
}

// checkPeriods checks that at least one certificate is valid now: before a CA is replaced, a file has both.
func checkPeriods(certs []*x509.Certificate) (err error) {
	for _, c := range certs {
		if err = certificate.CheckPeriod(c, time.Now()); err == nil {
			return nil
		}
	}
	return err
}

// checkKey checks that the key is that of the certificate, if there is one.
func (f Files) checkKey(path string) error {
	if _, err := os.ReadFile(path); err != nil {
		return err
	}
	if _, err := certificate.Read(f.Cert); err == nil { // an error is reported for the certificate
		_, err = tls.LoadX509KeyPair(f.Cert, path)
		return err
	}
	return nil
}

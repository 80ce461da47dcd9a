package link

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Files are the PEM files of one end.
type Files struct {
	Cert   string // this end's certificate and its intermediates
	Key    string // its private key
	PeerCA string // the CAs that sign the *other* end's certificates
}

// Check reads the files, and names each problem by the setting of its file in names. A file that is not set is no problem.
// Strict checks are that certificates are valid now, and that those of peers are of CAs.
func (f Files) Check(usage x509.ExtKeyUsage, names Files, checks settings.FileChecks) error {
	return errors.Join(
		settings.CheckFile(names.Cert, f.Cert, func(path string) error {
			certs, err := ReadCertificates(path)
			if err == nil {
				err = checkOwn(certs, usage)
			}
			if err == nil && checks.Strict {
				err = checkPeriods(certs)
			}
			return err
		}),
		settings.CheckFile(names.Key, f.Key, f.checkKey),
		settings.CheckFile(names.PeerCA, f.PeerCA, func(path string) error {
			certs, err := ReadCertificates(path)
			if err == nil && checks.Strict {
				err = checkCAs(certs)
			}
			if err == nil && checks.Strict {
				err = checkPeriods(certs)
			}
			return err
		}))
}

// checkPeriods checks that at least one certificate is valid now: before a CA is replaced, a file has both.
func checkPeriods(certs []*x509.Certificate) (err error) {
	for _, c := range certs {
		if err = checkPeriod(c, time.Now()); err == nil {
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
	if _, err := ReadCertificates(f.Cert); err == nil { // an error is reported for the certificate
		_, err = tls.LoadX509KeyPair(f.Cert, path)
		return err
	}
	return nil
}

// reloadInterval is how often files are read again. Watching them was rejected: kubelet mounts symbolic links and swaps
// them, and a missed event would go unnoticed.
const reloadInterval = 10 * time.Second

// reloadedFile is a file whose changes take effect without a restart, with a second one that must fit it, if any. While
// its content is invalid, the previous one stays in use.
type reloadedFile struct {
	name  string // in the metric and in the log
	paths []string
	use   func(content [][]byte) error // its error is that the content is invalid

	inUse     [][]byte
	lastError string // of the previous attempt, as logged; empty: none
}

// reload reads the file, and uses its content if that changed.
func (f *reloadedFile) reload() (changed bool, err error) {
	content := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		if content[i], err = os.ReadFile(path); err != nil {
			return false, err
		}
	}
	if slices.EqualFunc(content, f.inUse, bytes.Equal) {
		return false, nil
	}
	if err := f.use(content); err != nil {
		return false, fmt.Errorf("%s: %w", f.paths[0], err)
	}
	f.inUse = content
	return true, nil
}

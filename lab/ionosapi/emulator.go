package ionosapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options say where and with what an emulator listens.
type Options struct {
	Cloud       *Cloud                 // nil: an empty one
	Listen      string                 // of the API; empty: 127.0.0.1:0
	SideDoor    string                 // of the side door; empty: none
	Certificate *tls.Certificate       // nil: one is made, and signed by CA()
	Token       func() (string, error) // asked at each request; nil: any bearer token will do
	PageLimit   int                    // most items of a page, whatever is asked for; 0: no such cap
}

// Emulator is one that listens. Its owner closes it.
type Emulator struct {
	Cloud *Cloud

	url, side string
	ca        []byte
	stop      chan struct{}
	close     sync.Once
	servers   []*http.Server
	serving   sync.WaitGroup
}

// Start listens and serves until Close.
func Start(o Options) (*Emulator, error) {
	e := &Emulator{Cloud: o.Cloud, stop: make(chan struct{})}
	if e.Cloud == nil {
		e.Cloud = NewCloud()
	}
	listener, err := net.Listen("tcp", orElse(o.Listen, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	cert := o.Certificate
	if cert == nil {
		if cert, e.ca, err = selfSigned(listener.Addr()); err != nil {
			_ = listener.Close() // the error that counts is the other
			return nil, err
		}
	}
	e.url = "https://" + listener.Addr().String()
	e.serve(&http.Server{
		Handler:   &api{cloud: e.Cloud, token: o.Token, stop: e.stop, root: e.url + basePath, pageLimit: o.PageLimit},
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12},
		// HTTP/1.1 only: over HTTP/2 a connection cannot be reset for one request.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}, listener, true)
	if o.SideDoor == "" {
		return e, nil
	}
	side, err := net.Listen("tcp", o.SideDoor)
	if err != nil {
		_ = e.Close() // the error that counts is the other
		return nil, fmt.Errorf("side door: %w", err)
	}
	e.side = "http://" + side.Addr().String()
	e.serve(&http.Server{Handler: SideDoor(e.Cloud)}, side, false)
	return e, nil
}

func (e *Emulator) serve(s *http.Server, l net.Listener, overTLS bool) {
	s.ReadHeaderTimeout = 10 * time.Second
	s.ErrorLog = log.New(io.Discard, "", 0) // handshakes that clients break off
	e.servers = append(e.servers, s)
	e.serving.Go(func() { // it ends when the server is closed, and then says no more than that
		if overTLS {
			_ = s.ServeTLS(l, "", "")
		} else {
			_ = s.Serve(l)
		}
	})
}

// URL is the API's, without /cloudapi/v6: what IONOS_API_URL wants.
func (e *Emulator) URL() string { return e.url }

// SideDoorURL is the side door's, empty if there is none.
func (e *Emulator) SideDoorURL() string { return e.side }

// CA is in PEM form what a client has to trust; empty if a certificate was given.
func (e *Emulator) CA() []byte { return e.ca }

// Run serves until the context is done, then closes.
func (e *Emulator) Run(ctx context.Context) error {
	<-ctx.Done()
	return e.Close()
}

// Close ends all connections, those that hang too, and waits.
func (e *Emulator) Close() error {
	var problems []error
	e.close.Do(func() {
		close(e.stop)
		for _, s := range e.servers {
			problems = append(problems, s.Close())
		}
		e.serving.Wait()
	})
	return errors.Join(problems...)
}

// selfSigned makes a certificate that is its own CA, for localhost and the address.
func selfSigned(addr net.Addr) (*tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		ips = append(ips, tcp.IP)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "ionosapi emulator"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{"localhost"}, IPAddresses: ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

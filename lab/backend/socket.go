package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// socket is a listening socket with the server behind it and the connections it accepted.
type socket struct {
	net.Listener // *net.TCPListener

	server *http.Server
	served chan error

	mu     sync.Mutex
	silent bool
	conns  map[*conn]struct{}
}

// listen takes no context: nothing in it waits.
func listen(protocol Protocol, address netip.AddrPort, handler http.Handler) (*socket, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // Go's default for listeners, and deaf to socket filters
	listener, err := config.Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, err
	}
	s := &socket{
		Listener: listener,
		server: &http.Server{
			Handler: handler, ReadHeaderTimeout: time.Minute,
			ErrorLog: log.New(io.Discard, "", 0), // of handshakes that probes break off, on purpose
		},
		served: make(chan error, 1),
		conns:  make(map[*conn]struct{}),
	}
	serve := s.server.Serve
	switch protocol {
	case HTTP:
	case HTTPS:
		certificate, err := unknown()
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		s.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		serve = func(l net.Listener) error { return s.server.ServeTLS(l, "", "") }
	case GRPC:
		s.server.Protocols = &http.Protocols{}
		s.server.Protocols.SetUnencryptedHTTP2(true)
	default:
		return nil, errors.Join(fmt.Errorf("there is no protocol %q", protocol), listener.Close())
	}
	go func() { s.served <- serve(s) }() // close waits for it
	return s, nil
}

// unknown is a certificate of an authority that nobody knows, made once.
var unknown = sync.OnceValues(func() (tls.Certificate, error) {
	ca, err := pki.NewCA("nobody")
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := ca.Issue(pki.Cert{CommonName: "backend.invalid", DNS: []string{"backend.invalid"}, Usage: pki.Server})
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
})

// close ends the listener and, as the death of a process does, all its connections.
func (s *socket) close() error {
	err := s.server.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// setSilent makes the listener and all its connections deaf, or lets them hear again. The
// listener goes first: connections that it makes from then on inherit its filter.
func (s *socket) setSilent(silent bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
	errs := []error{filter(s.Listener.(*net.TCPListener), silent)}
	for c := range s.conns {
		errs = append(errs, filter(c.TCPConn, silent))
	}
	return errors.Join(errs...)
}

// Accept serves http.Server. What comes from the kernel's queue may have inherited the
// filter of an earlier mode, or lack that of the present one.
func (s *socket) Accept() (net.Conn, error) {
	accepted, err := s.Listener.(*net.TCPListener).AcceptTCP()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// An error would end the server; a connection that is gone already fails by itself.
	_ = filter(accepted, s.silent)
	c := &conn{TCPConn: accepted, owner: s}
	s.conns[c] = struct{}{}
	return c, nil
}

type conn struct {
	*net.TCPConn

	owner *socket
}

// Close lets the owner forget the connection.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	return c.TCPConn.Close()
}

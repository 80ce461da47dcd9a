// Package backend is what probes and clients are sent to: an HTTP server on an address of
// its own that can be told to fail in the ways that real ones do. It promises that each
// answer names the backend, and that a switch holds for connections that are open already
// too; it refuses to have any other logic.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is how a backend behaves.
type Mode string

// The modes.
const (
	Serve  Mode = "serve"  // answers 200
	Refuse Mode = "refuse" // nothing listens: its process is dead, its machine is not
	Silent Mode = "silent" // not a packet comes back: its machine is dead, or cut off
	Error  Mode = "error"  // answers 500
	Hang   Mode = "hang"   // accepts and never answers: its process is stuck
)

// NameHeader is the header in which every answer names its backend.
const NameHeader = "X-Backend"

// Backend is one backend. Its methods may be called from any goroutine.
type Backend struct {
	name     string
	address  netip.AddrPort
	requests atomic.Int64

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed and replaced at each switch
	socket  *socket       // nil while refusing
}

// Start starts a backend that serves. Close it in the end.
func Start(name string, address netip.AddrPort) (*Backend, error) {
	b := &Backend{name: name, address: address, mode: Refuse, changed: make(chan struct{})}
	if err := b.Set(Serve); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Name returns the backend's name.
func (b *Backend) Name() string { return b.name }

// Address returns the address and port that it listens on.
func (b *Backend) Address() netip.AddrPort { return b.address }

// Requests returns how many HTTP requests have reached it.
func (b *Backend) Requests() int64 { return b.requests.Load() }

// Mode returns the present mode.
func (b *Backend) Mode() Mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mode
}

// Set switches the mode. When it returns, the mode holds for old and new connections.
// Requests that hang are answered as the new mode has it.
func (b *Backend) Set(mode Mode) error {
	switch mode {
	case Serve, Refuse, Silent, Error, Hang:
	default:
		return fmt.Errorf("switch backend %s: there is no mode %q", b.name, mode)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.reshape(mode); err != nil {
		return fmt.Errorf("switch backend %s at %s to %s: %w", b.name, b.address, mode, err)
	}
	b.mode = mode
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// Close ends the backend and waits until it is over.
func (b *Backend) Close() error { return b.Set(Refuse) }

func (b *Backend) reshape(mode Mode) error {
	if mode == Refuse {
		if b.socket == nil {
			return nil
		}
		err := b.socket.close()
		b.socket = nil
		return err
	}
	if b.socket == nil {
		opened, err := listen(b.address, http.HandlerFunc(b.answer))
		if err != nil {
			return err
		}
		b.socket = opened
	}
	return b.socket.setSilent(mode == Silent)
}

func (b *Backend) answer(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	w.Header().Set(NameHeader, b.name)
	switch b.settled(r.Context()) {
	case Serve:
		fmt.Fprintln(w, b.name)
	case Error:
		http.Error(w, b.name+" was told to fail", http.StatusInternalServerError)
	default: // the client has gone
		panic(http.ErrAbortHandler)
	}
}

// settled waits while the mode is one that does not answer.
func (b *Backend) settled(ctx context.Context) Mode {
	for {
		b.mu.Lock()
		mode, changed := b.mode, b.changed
		b.mu.Unlock()
		if mode == Serve || mode == Error {
			return mode
		}
		select {
		case <-ctx.Done():
			return mode
		case <-changed:
		}
	}
}

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
func listen(address netip.AddrPort, handler http.Handler) (*socket, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // Go's default for listeners, and deaf to socket filters
	listener, err := config.Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, err
	}
	s := &socket{
		Listener: listener,
		server:   &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute},
		served:   make(chan error, 1),
		conns:    make(map[*conn]struct{}),
	}
	go func() { s.served <- s.server.Serve(s) }() // close waits for it
	return s, nil
}

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

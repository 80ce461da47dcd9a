// Package backend is what probes and clients are sent to: a server on an address of its
// own that can be told to fail in the ways that real ones do. It promises that each
// answer names the backend, and that a switch holds for connections that are open already
// too; it refuses to have any other logic.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// Protocol is what a backend speaks.
type Protocol string

// The protocols.
const (
	HTTP  Protocol = "http"
	HTTPS Protocol = "https" // with a certificate that nobody knows
	GRPC  Protocol = "grpc"  // grpc.health.v1 only, without TLS; an error is NOT_SERVING
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
	protocol Protocol
	health   *health.Server
	rpc      *grpc.Server
	requests atomic.Int64

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed and replaced at each switch
	socket  *socket       // nil while refusing
}

// Start starts an HTTP backend that serves. Close it in the end.
func Start(name string, address netip.AddrPort) (*Backend, error) {
	return StartSpeaking(HTTP, name, address)
}

// StartSpeaking starts a backend of that protocol that serves. Close it in the end.
func StartSpeaking(protocol Protocol, name string, address netip.AddrPort) (*Backend, error) {
	b := &Backend{name: name, address: address, protocol: protocol, mode: Refuse, changed: make(chan struct{})}
	if protocol == GRPC {
		b.health, b.rpc = health.NewServer(), grpc.NewServer()
		healthv1.RegisterHealthServer(b.rpc, b.health)
	}
	if err := b.Set(Serve); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Name returns the backend's name.
func (b *Backend) Name() string { return b.name }

// Address returns the address and port that it listens on.
func (b *Backend) Address() netip.AddrPort { return b.address }

// Requests returns how many requests have reached it.
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
	if b.protocol == GRPC {
		status := healthv1.HealthCheckResponse_SERVING
		if mode == Error {
			status = healthv1.HealthCheckResponse_NOT_SERVING
		}
		b.health.SetServingStatus("", status)
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
		opened, err := listen(b.protocol, b.address, http.HandlerFunc(b.answer))
		if err != nil {
			return err
		}
		b.socket = opened
	}
	return b.socket.setSilent(mode == Silent)
}

func (b *Backend) answer(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	mode := b.settled(r.Context())
	if b.protocol == GRPC && (mode == Serve || mode == Error) {
		b.rpc.ServeHTTP(w, r)
		return
	}
	w.Header().Set(NameHeader, b.name)
	switch mode {
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

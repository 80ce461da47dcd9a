package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// dialing is how long a backend has to take a connection before the next one is tried.
const dialing = 2 * time.Second

// Proxy passes connections on to backends, one after the other. What it is told concerns new
// connections only. The zero value has no backends.
type Proxy struct {
	Log *slog.Logger

	mu       sync.Mutex
	backends []netip.AddrPort
	next     int
}

// Program says where new connections go.
func (p *Proxy) Program(backends []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.backends, backends) {
		return
	}
	p.backends = backends
	p.Log.Info("programmed", "backends", backends)
}

// turn are the backends in the order in which the next connection tries them.
func (p *Proxy) turn() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.backends) == 0 {
		return nil
	}
	p.next = (p.next + 1) % len(p.backends)
	return slices.Concat(p.backends[p.next:], p.backends[:p.next])
}

// Serve passes on what comes in until ctx is done, and waits for all that it began.
func (p *Proxy) Serve(ctx context.Context, on net.Listener) error {
	var live sync.WaitGroup
	defer live.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = on.Close() })
	defer stop()
	for {
		client, err := on.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = client.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		live.Go(func() { p.pass(ctx, client) })
	}
}

func (p *Proxy) pass(ctx context.Context, client net.Conn) {
	defer client.Close() //nolint:errcheck // it is over
	dialer := net.Dialer{Timeout: dialing}
	for _, to := range p.turn() {
		backend, err := dialer.DialContext(ctx, "tcp", to.String())
		if err != nil {
			p.Log.Warn("a backend does not take connections", "backend", to, "error", err)
			continue
		}
		join(ctx, client, backend)
		return
	}
	p.Log.Warn("no backend takes a connection")
}

// join copies both ways until both ends have said all, or ctx is done.
func join(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		_ = a.Close()
		_ = b.Close()
	})
	defer stop()
	defer b.Close() //nolint:errcheck // it is over
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // however it ends, the other end is told
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	both.Go(func() { copyTo(a, b) })
	copyTo(b, a)
	both.Wait()
}

package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// echo is a backend that says its name and then what it hears.
func echo(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, name+"\n")
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return netip.MustParseAddrPort(lis.Addr().String())
}

// door is a proxy that serves; call connects to it and says whom it met.
func door(t *testing.T) (p *Proxy, call func() (net.Conn, string)) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &Proxy{Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p, func() (net.Conn, string) {
		conn, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		name, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return conn, err.Error()
		}
		return conn, name[:len(name)-1]
	}
}

func TestGivesNewConnectionsToTheBackendsInTurn(t *testing.T) {
	a, b := echo(t, "a"), echo(t, "b")
	p, call := door(t)
	p.Program([]netip.AddrPort{a, b})
	met := map[string]int{}
	for range 6 {
		_, name := call()
		met[name]++
	}
	want(t, "met", met, map[string]int{"a": 3, "b": 3})
}

func TestKeepsConnectionsThatItHasMadeWhateverItIsTold(t *testing.T) {
	a, b := echo(t, "a"), echo(t, "b")
	p, call := door(t)
	p.Program([]netip.AddrPort{a})
	old, name := call()
	want(t, "met", name, "a")
	p.Program([]netip.AddrPort{b})
	_, name = call()
	want(t, "met then", name, "b")
	if _, err := io.WriteString(old, "still there?\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(old).ReadString('\n')
	want(t, "answer", answer, "still there?\n")
	want(t, "error", err, nil)
}

func TestTriesTheNextBackendWhenOneTakesNoConnection(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := netip.MustParseAddrPort(gone.Addr().String())
	_ = gone.Close()
	p, call := door(t)
	p.Program([]netip.AddrPort{dead, echo(t, "b")})
	for range 3 {
		_, name := call()
		want(t, "met", name, "b")
	}
	p.Program(nil)
	_, name := call()
	want(t, "without any", name, io.EOF.Error())
}

package link

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// live is the memory of objects and stacks in use, after a collection.
func live() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// What each peer costs is measured with the peer's own end in the same process, so the server's part is
// less than that. docs/limits.md has the bounds.
func TestWhatAPeerCosts(t *testing.T) {
	const peers = maxConns - 1 // one client's, with the one before
	others := &casting{T: t, ca: newAuthority(t, "another CA"), san: writerURI, usages: forClients}
	for _, c := range []struct {
		name  string
		bound float64 // KB
		come  func(t *testing.T, r *rig, writer tls.Certificate)
	}{
		{"an unfinished handshake", 64, func(t *testing.T, r *rig, _ tls.Certificate) {
			conn := must(net.Dial("tcp", r.address))(t)
			t.Cleanup(func() { conn.Close() })
			io.WriteString(conn, clientHello[:20])
		}},
		{"an unfinished handshake of as many bytes as may be", 128, func(t *testing.T, r *rig, writer tls.Certificate) {
			conn := must(net.Dial("tcp", r.address))(t)
			t.Cleanup(func() { conn.Close() })
			client := tls.Client(&interrupted{conn, maxHandshakeBytes}, &tls.Config{
				InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{manyNames(3000)(others)},
			})
			if err := client.Handshake(); !errors.Is(err, errInterrupted) {
				t.Fatalf("the handshake ends with %v", err)
			}
		}},
		{"a connection without a call", 128, func(t *testing.T, r *rig, writer tls.Certificate) {
			conn, err := r.knock(t, writer)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, preface+settings+ping)
			hear(t, conn, false)
		}},
		{"a connection with all the certificates that may be", 512, func(t *testing.T, r *rig, writer tls.Certificate) {
			conn, err := r.knock(t, bulky(writer, others))
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, preface+settings+ping)
			hear(t, conn, false)
		}},
		{"a connection with a stream", 256, func(t *testing.T, r *rig, _ tls.Certificate) {
			watch(t, r.dial(t, goodWriter, serverURI))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, goodServer)
			writer := r.pair(t, goodWriter)
			c.come(t, r, writer) // what the first one costs is not of the peers
			before := live()
			for range peers {
				c.come(t, r, writer)
			}
			if strings.HasPrefix(c.name, "an unfinished handshake") {
				for ctx := deadline(t); r.server.creds.unfinished() < peers && ctx.Err() == nil; {
					runtime.Gosched()
				}
			}
			each := (live() - before) / peers / 1024
			t.Logf("%s costs %.0f KB at both ends together", c.name, each)
			if each > c.bound {
				t.Errorf("it costs %.0f KB, want at most %.0f", each, c.bound)
			}
		})
	}
}

var errInterrupted = errors.New("interrupted")

// interrupted is a connection that carries so many bytes to its peer, and then no more.
type interrupted struct {
	net.Conn

	left int
}

func (i *interrupted) Write(b []byte) (int, error) {
	n, err := i.Conn.Write(b[:min(len(b), i.left)])
	if i.left -= n; err == nil && n < len(b) {
		err = errInterrupted
	}
	return n, err
}

// bulky is as much as a peer may present: its own certificate, and others of 3 KB.
func bulky(own tls.Certificate, others *casting) tls.Certificate {
	other := manyNames(maxNames - 1)(others).Certificate[0]
	for len(own.Certificate) < maxCerts {
		own.Certificate = append(slices.Clip(own.Certificate), other)
	}
	return own
}

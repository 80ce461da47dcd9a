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

// liveMemory returns the bytes of objects and stacks in use after a garbage collection.
func liveMemory() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// The measurement includes the client's end in the same process, so the server's part is smaller.
// docs/design/limits.md has the bounds.
func TestMemoryPerPeer(t *testing.T) {
	const peers = MaxConns - 1 // of one client; the first connection is not measured
	others := &certBuilder{T: t, ca: newTestCA(t, "another CA"), san: writerURI, usages: forClients}
	for _, c := range []struct {
		name    string
		bound   float64 // KB
		connect func(t *testing.T, r *testLink, writer tls.Certificate)
	}{
		{"an unfinished handshake", 64, func(t *testing.T, r *testLink, _ tls.Certificate) {
			conn := must(net.Dial("tcp", r.address))(t)
			t.Cleanup(func() { conn.Close() })
			io.WriteString(conn, clientHello[:20])
		}},
		{"an unfinished handshake of maximum size", 128, func(t *testing.T, r *testLink, writer tls.Certificate) {
			conn := must(net.Dial("tcp", r.address))(t)
			t.Cleanup(func() { conn.Close() })
			client := tls.Client(&truncatedConn{conn, maxHandshakeBytes}, &tls.Config{
				InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{manyNames(3000)(others)},
			})
			if err := client.Handshake(); !errors.Is(err, errTruncated) {
				t.Fatalf("handshake ended with %v", err)
			}
		}},
		{"a connection without a call", 128, func(t *testing.T, r *testLink, writer tls.Certificate) {
			conn, err := r.dialTLS(t, writer)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, http2Preface+settingsFrame+pingFrame)
			readReply(t, conn, false)
		}},
		{"a connection with the largest chain", 512, func(t *testing.T, r *testLink, writer tls.Certificate) {
			conn, err := r.dialTLS(t, bulkyCert(writer, others))
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, http2Preface+settingsFrame+pingFrame)
			readReply(t, conn, false)
		}},
		{"a connection with a stream", 256, func(t *testing.T, r *testLink, _ tls.Certificate) {
			openWatch(t, r.dial(t, writerCert, serverURI))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			writer := r.clientCert(t, writerCert)
			c.connect(t, r, writer) // the first connection also allocates shared objects
			before := liveMemory()
			for range peers {
				c.connect(t, r, writer)
			}
			if strings.HasPrefix(c.name, "an unfinished handshake") {
				for ctx := testContext(t); r.server.handshaker.pending.Len() < peers && ctx.Err() == nil; {
					runtime.Gosched()
				}
			}
			each := (liveMemory() - before) / peers / 1024
			t.Logf("%s costs %.0f KB at both ends", c.name, each)
			if each > c.bound {
				t.Errorf("costs %.0f KB, want at most %.0f", each, c.bound)
			}
		})
	}
}

var errTruncated = errors.New("interrupted")

// truncatedConn is a connection whose writes fail after a number of bytes.
type truncatedConn struct {
	net.Conn

	remaining int
}

func (i *truncatedConn) Write(b []byte) (int, error) {
	n, err := i.Conn.Write(b[:min(len(b), i.remaining)])
	if i.remaining -= n; err == nil && n < len(b) {
		err = errTruncated
	}
	return n, err
}

// bulkyCert is the largest chain that a peer may present: its own certificate and others of 3 KB.
func bulkyCert(own tls.Certificate, others *certBuilder) tls.Certificate {
	other := manyNames(maxCertNames - 1)(others).Certificate[0]
	for len(own.Certificate) < maxChainCerts {
		own.Certificate = append(slices.Clip(own.Certificate), other)
	}
	return own
}

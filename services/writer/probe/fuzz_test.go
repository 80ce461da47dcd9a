package probe

import (
	"context"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

var safeDetail = regexp.MustCompile(`^[ -~]{1,100}$`)

// FuzzBackendResponse probes a backend that sends arbitrary bytes, in each mode. The probe ends, passes
// only on bytes that begin like a valid response, and its detail has no bytes of the backend.
func FuzzBackendResponse(f *testing.F) {
	f.Add(uint8(HTTP), []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Add(uint8(HTTP), []byte("HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n"))
	f.Add(uint8(HTTP), []byte("HTTP/1.1 500 \x1b[31mdown\r\n\r\n"))
	f.Add(uint8(HTTP), []byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"))
	f.Add(uint8(HTTP), []byte("HTTP/0.0 100 \n\r\nHTTP/0.0 200 \n\r\n"))
	f.Add(uint8(HTTP), []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"))
	f.Add(uint8(HTTP), []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	f.Add(uint8(HTTPS), []byte("\x15\x03\x03\x00\x02\x02\x28"))
	f.Add(uint8(HTTPS), []byte("\x16\x03\x03\x00\x04\x02\x00\x00\x00"))
	f.Add(uint8(HTTPS), []byte("SSH-2.0-OpenSSH_9.9\r\n"))
	f.Add(uint8(GRPC), []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x00"))
	f.Add(uint8(GRPC), []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x04\x01\x05\x00\x00\x00\x01\x88\x00\x00\x00"))
	f.Add(uint8(GRPC), []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(uint8(GRPC), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, mode uint8, sent []byte) {
		k := Key{Address: netip.MustParseAddr("10.0.0.1"), Port: 30080}
		k.Spec = Spec{Mode: HTTP + Mode(mode%3)}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		clientEnd, backendEnd := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			go io.Copy(io.Discard, backendEnd)
			backendEnd.Write(sent)
			backendEnd.Close()
		}()
		result, detail := classifyError(probeConn(ctx, clientEnd, k.Canonical()), k.Spec)
		clientEnd.Close()
		<-done
		switch {
		case ctx.Err() != nil:
			t.Fatal("the probe did not end")
		case result == Inconclusive:
			t.Fatalf("inconclusive: %s", detail)
		case result == Fail && !safeDetail.MatchString(detail):
			t.Fatalf("detail %q", detail)
		case result == Pass && k.Spec.Mode == HTTP && !strings.HasPrefix(string(sent), "HTTP/"):
			t.Fatalf("%q passes", sent)
		case result == Pass && k.Spec.Mode == HTTPS:
			t.Fatalf("%q passes as a TLS handshake", sent)
		}
	})
}

package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

func (r *testLink) rejectionCount(limit string) float64 {
	return testutil.ToFloat64(r.server.limits.rejections.WithLabelValues(limit))
}

func TestRateLimitsEachClientSeparately(t *testing.T) {
	health := func(t *testing.T, conn *grpc.ClientConn) error { return checkHealth(t, conn) }
	who := func(t *testing.T, conn *grpc.ClientConn) error {
		_, err := callProbe(t, conn, "Who", "")
		return err
	}
	startStream := func(t *testing.T, conn *grpc.ClientConn) error {
		// Watch cannot be used: grpc rejects its missing request before the handler returns, so the next
		// stream could exceed the limit of concurrent streams.
		s := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true}, "/test.Probe/Listen"))(t)
		if err := errors.Join(s.CloseSend(), s.RecvMsg(new(emptypb.Empty))); !errors.Is(err, io.EOF) {
			return err
		}
		return nil // the handler has received the end of the stream
	}
	for _, c := range []struct {
		name   string
		client certSpec
		flood  func(*testing.T, *grpc.ClientConn) error
		other  func(*testing.T, *grpc.ClientConn) error // has another limit
		limit  string
		burst  int
		want   string
	}{
		{"calls", writerCert, who, startStream, limitCalls, callBurst, "10 calls per second in total; wait longer"},
		{"calls to health", writerCert, health, startStream, limitCalls, callBurst, "10 calls per second in total; wait longer"},
		{"starts of streams", writerCert, startStream, who, limitStreamStarts, fewStreams.burst, "20 streams per second in total; keep streams"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			flooding, honest := r.dial(t, c.client, serverURI), r.dial(t, operatorCert, serverURI)
			var rejection error
			answered := 0
			for n := 0; rejection == nil && n < 50*c.burst; n++ {
				if err := c.flood(t, flooding); status.Code(err) == codes.ResourceExhausted {
					rejection = err
				}
				answered++
			}
			if rejection == nil || answered <= c.burst {
				t.Fatalf("%d calls were answered, then %v; want more than %d", answered, rejection, c.burst)
			}
			if !strings.Contains(rejection.Error(), c.want) {
				t.Errorf("error %v does not contain %q", rejection, c.want)
			}
			if err := c.other(t, flooding); status.Code(err) == codes.ResourceExhausted {
				t.Errorf("other limit exhausted too: %v", err)
			}
			for _, do := range []func(*testing.T, *grpc.ClientConn) error{health, who, startStream} {
				if err := do(t, honest); status.Code(err) == codes.ResourceExhausted {
					t.Errorf("another client is rejected: %v", err)
				}
			}
			if got := r.rejectionCount(c.limit); got < 1 {
				t.Errorf("counted %v rejections by the limit of %s", got, c.limit)
			}
			r.log.waitFor(t, "limit="+c.limit)
		})
	}
}

func TestDoesNotLogEachRejectedCall(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, writerCert, serverURI)
	for range 4 * callBurst {
		checkHealth(t, conn)
	}
	rejected := int(r.rejectionCount(limitCalls))
	if err := r.stop(); err != nil { // then the log is complete
		t.Fatal(err)
	}
	if rejected < callBurst {
		t.Fatalf("only %d calls were rejected", rejected)
	}
	if lines := strings.Count(r.log.String(), "grpc.component=server"); lines > 2*callBurst {
		t.Errorf("logged %d lines for %d calls, %d of them rejected", lines, 4*callBurst, rejected)
	}
}

func TestUsageSurvivesGrantChange(t *testing.T) {
	r := newTestLink(t, serverCert)
	person := r.clientCert(t, operatorCert)
	must(r.dialTLS(t, person))(t)
	before := r.server.limits.usages[operatorDNS]
	writeFile(t, r.listPath, []byte(strings.Replace(sampleClients, "operator", "subscriber", 1)))
	r.server.id.reload()
	must(r.dialTLS(t, person))(t)
	if r.server.limits.usages[operatorDNS] != before {
		t.Error("usage was reset with the grant")
	}
}

// dialTLS opens a TLS connection without grpc. It waits for the first frame, because the client's
// handshake of TLS 1.3 ends before the server has verified the certificate.
func (r *testLink) dialTLS(t *testing.T, pair tls.Certificate) (*tls.Conn, error) {
	t.Helper()
	conn := must(tls.Dial("tcp", r.address, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
	}))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := conn.Read(make([]byte, 1))
	return conn, err
}

func (r *testLink) clientCert(t *testing.T, spec certSpec) tls.Certificate {
	t.Helper()
	certPEM, keyPEM := r.clientCA.issueCert(t, spec)
	return must(tls.X509KeyPair(certPEM, keyPEM))(t)
}

func TestLimitsConnectionsPerClient(t *testing.T) {
	r := newTestLink(t, serverCert)
	writer := r.clientCert(t, writerCert)
	var conns []*tls.Conn
	for range MaxConns + maxExcessConns {
		conn, err := r.dialTLS(t, writer)
		if err != nil {
			t.Fatalf("after %d connections: %v", len(conns), err)
		}
		conns = append(conns, conn)
	}
	if _, err := r.dialTLS(t, writer); err == nil {
		t.Errorf("client has more than %d connections", MaxConns+maxExcessConns)
	}
	if got := r.rejectionCount(limitConnections); got != maxExcessConns+1 {
		t.Errorf("counted %v rejections, want %d", got, maxExcessConns+1)
	}
	if _, err := callProbe(t, r.dial(t, operatorCert, serverURI), "Who", ""); err != nil {
		t.Errorf("another client is rejected: %v", err)
	}

	for _, conn := range conns {
		conn.Close()
	}
	ctx := testContext(t)
	for { // the server detects closed connections asynchronously
		if _, err := callProbe(t, r.dial(t, writerCert, serverURI), "Who", ""); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("closed connections still count")
		}
	}
}

func TestExcessConnectionsGetResourceExhausted(t *testing.T) {
	r := newTestLink(t, serverCert)
	writer := r.clientCert(t, writerCert)
	for range MaxConns {
		if _, err := r.dialTLS(t, writer); err != nil {
			t.Fatal(err)
		}
	}
	conn := r.dial(t, writerCert, serverURI)
	for what, err := range map[string]error{
		"a call":         func() error { _, err := callProbe(t, conn, "Who", ""); return err }(),
		"a health check": checkHealth(t, conn),
		"a stream": func() error {
			s := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true}, "/test.Probe/Watch"))(t)
			return errors.Join(s.CloseSend(), s.RecvMsg(new(emptypb.Empty)))
		}(),
	} {
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(fmt.Sprint(err), "already have 16 connections") {
			t.Errorf("%s gets %v, want RESOURCE_EXHAUSTED with the limit", what, err)
		}
	}
}

func TestNinthStreamGetsResourceExhausted(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, writerCert, serverURI)
	var live []grpc.ClientStream
	for range fewStreams.perConn {
		live = append(live, openWatch(t, conn))
	}
	ninth := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true}, "/test.Probe/Watch"))(t)
	ninth.CloseSend()
	if err := ninth.RecvMsg(
		new(emptypb.Empty),
	); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "already has 8 streams") {
		t.Errorf("got %v, want RESOURCE_EXHAUSTED with the limit", err)
	}
	if got := r.rejectionCount(limitConcurrent); got != 1 {
		t.Errorf("counted %v rejections, want 1", got)
	}
	if _, err := callProbe(t, conn, "Who", ""); err != nil {
		t.Errorf("a call beside the streams is rejected: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, s := range live {
		if err := s.RecvMsg(new(emptypb.Empty)); !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("a stream ended before the server did: %v", err)
		}
	}
}

func TestEndedStreamFreesItsSlot(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, writerCert, serverURI)
	for range 4 * fewStreams.perConn {
		s := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true}, "/test.Probe/Listen"))(t)
		if err := errors.Join(s.CloseSend(), s.RecvMsg(new(emptypb.Empty))); status.Code(err) == codes.ResourceExhausted {
			t.Fatal(err) // other errors come from the handler
		}
	}
}

func TestChargesBytesToClient(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := must(r.dialTLS(t, r.clientCert(t, writerCert)))(t)
	usage := r.server.limits.usages[writerURI]
	usage.bytes.SetLimit(0) // tokens are not refilled
	before := usage.bytes.Tokens()
	const sent = 64 << 10
	io.WriteString(
		conn,
		http2Preface+settingsFrame+strings.Repeat(http2Frame(frameData+2, 0, 1, "12345"), sent/14)+pingFrame,
	) // priority frames, which need no response
	readReply(t, conn, false)
	if charged := before - usage.bytes.Tokens(); charged < sent || charged > 2*sent {
		t.Errorf("charged %v bytes, want the %d that were sent and TLS overhead", charged, sent)
	}
	must(r.dialTLS(t, r.clientCert(t, operatorCert)))(t)
	if left := r.server.limits.usages[operatorDNS].bytes.Tokens(); left != byteBurst {
		t.Errorf("another client is charged: %v bytes left", left)
	}
}

// Connections that end while they are set up do not stay counted either.
func TestForgetsConnectionsThatEndImmediately(t *testing.T) {
	r := newTestLink(t, serverCert)
	writer := r.clientCert(t, writerCert)
	for range 2 * MaxConns {
		conn, err := r.dialTLS(t, writer)
		if err != nil {
			t.Logf("rejected while closed connections are still counted: %v", err)
		}
		conn.NetConn().(*net.TCPConn).SetLinger(0) // send a reset
		conn.NetConn().Close()
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.server.limits.usages[writerURI].conns); n != 0 {
		t.Errorf("%d connections are still counted", n)
	}
}

// dialFrom connects from a source address.
func (r *testLink) dialFrom(t *testing.T, source string) net.Conn {
	t.Helper()
	conn := must((&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).Dial("tcp", r.address))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestHandshakeFloodEvictsOnlyItself(t *testing.T) {
	r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA"), pendingLimit: 8}
	r.writeFiles(t, serverCert)
	r.start(t)
	distant := r.dialFrom(t, "127.0.0.3") // its handshake ends last
	ctx := testContext(t)
	for r.server.handshaker.pending.Len() < 1 {
		if ctx.Err() != nil {
			t.Fatal("handshake not started")
		}
	}
	var flood []net.Conn
	const floodSize = 100
	for range floodSize {
		flood = append(flood, r.dialFrom(t, "127.0.0.2"))
	}
	for r.rejectionCount(limitHandshakes) < floodSize-7 { // 7 have room beside the first connection
		if ctx.Err() != nil {
			t.Fatalf("%v handshakes ended, want %d", r.rejectionCount(limitHandshakes), floodSize-7)
		}
	}
	conn := tls.Client(
		distant,
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{r.clientCert(t, writerCert)}},
	)
	distant.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("handshake from another address failed: %v", err)
	}
	closed := 0
	for _, conn := range flood {
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
			closed++
		}
	}
	if closed != floodSize-7 {
		t.Errorf("closed %d connections of the flood, want %d", closed, floodSize-7)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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

func (r *rig) limited(limit string) float64 {
	return testutil.ToFloat64(r.server.limits.refused.WithLabelValues(limit))
}

func TestAClientThatCallsTooOftenHarmsOnlyItself(t *testing.T) {
	health := func(t *testing.T, conn *grpc.ClientConn) error { return checkHealth(t, conn) }
	who := func(t *testing.T, conn *grpc.ClientConn) error {
		_, err := call(t, conn, "Who", "")
		return err
	}
	begin := func(t *testing.T, conn *grpc.ClientConn) error {
		s := must(conn.NewStream(deadline(t), &grpc.StreamDesc{ClientStreams: true}, "/test.Probe/Watch"))(t)
		if err := errors.Join(s.CloseSend(), s.RecvMsg(new(emptypb.Empty))); !errors.Is(err, io.EOF) {
			return err
		}
		return nil // the handler has met the end of what we sent
	}
	for _, c := range []struct {
		name   string
		client leaf
		flood  func(*testing.T, *grpc.ClientConn) error
		other  func(*testing.T, *grpc.ClientConn) error // goes by another bucket
		limit  string
		burst  int
		says   string
	}{
		{"calls", goodWriter, who, begin, limitCalls, callBurst, "10 calls a second: wait longer"},
		{"calls to health", goodWriter, health, begin, limitCalls, callBurst, "10 calls a second: wait longer"},
		{"starts of streams", goodWriter, begin, who, limitStreams, streamBurst, "20 streams a second: keep them"},
		{"calls of strangers", stranger, health, begin, limitCalls, callBurst, "10 calls a second: wait longer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, goodServer)
			flooding, honest := r.dial(t, c.client, serverURI), r.dial(t, person, serverURI)
			var refusal error
			answered := 0
			for n := 0; refusal == nil && n < 50*c.burst; n++ {
				if err := c.flood(t, flooding); status.Code(err) == codes.ResourceExhausted {
					refusal = err
				}
				answered++
			}
			if refusal == nil || answered <= c.burst {
				t.Fatalf("%d calls were answered, then %v; want more than %d", answered, refusal, c.burst)
			}
			if !strings.Contains(refusal.Error(), c.says) {
				t.Errorf("the refusal %v does not say %q", refusal, c.says)
			}
			if err := c.other(t, flooding); status.Code(err) == codes.ResourceExhausted {
				t.Errorf("the other limit is used up too: %v", err)
			}
			for _, do := range []func(*testing.T, *grpc.ClientConn) error{health, who, begin} {
				if err := do(t, honest); status.Code(err) == codes.ResourceExhausted {
					t.Errorf("another client is refused: %v", err)
				}
			}
			if got := r.limited(c.limit); got < 1 {
				t.Errorf("counted %v refusals by the limit of %s", got, c.limit)
			}
			r.log.await(t, "limit="+c.limit)
		})
	}
}

func TestWhatALimitRefusesIsNotLoggedCallByCall(t *testing.T) {
	r := newRig(t, goodServer)
	conn := r.dial(t, goodWriter, serverURI)
	for range 4 * callBurst {
		checkHealth(t, conn)
	}
	refused := int(r.limited(limitCalls))
	if err := r.stop(); err != nil { // after which the log is complete
		t.Fatal(err)
	}
	if refused < callBurst {
		t.Fatalf("only %d calls were refused", refused)
	}
	if lines := strings.Count(r.log.String(), "grpc.component=server"); lines > 2*callBurst {
		t.Errorf("%d lines were logged for %d calls, %d of them refused", lines, 4*callBurst, refused)
	}
}

func TestAnAccountOutlivesAChangeOfTheGrant(t *testing.T) {
	c := &Clients{strangers: newAccount()}
	peer := []*x509.Certificate{{DNSNames: []string{personDNS}}}
	c.replace(must(parseClients([]byte(theList)))(t))
	before := c.account(peer)
	c.replace(must(parseClients([]byte(strings.Replace(theList, "operator", "subscriber", 1))))(t))
	if c.account(peer) != before {
		t.Error("a client whose grant was altered begins with a full bucket")
	}
	if c.account([]*x509.Certificate{{DNSNames: []string{"a.example"}}}) != c.account([]*x509.Certificate{{DNSNames: []string{"b.example"}}}) {
		t.Error("each stranger has an account: there is no bound to them")
	}
}

// knock makes a TLS connection by itself; the handshake of TLS 1.3 ends at the client
// before the server has seen the certificate, so the first frame is waited for.
func (r *rig) knock(t *testing.T, pair tls.Certificate) (*tls.Conn, error) {
	t.Helper()
	conn := must(tls.Dial("tcp", r.address, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
	}))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := conn.Read(make([]byte, 1))
	return conn, err
}

func (r *rig) pair(t *testing.T, l leaf) tls.Certificate {
	t.Helper()
	certPEM, keyPEM := r.clientCA.issue(t, l)
	return must(tls.X509KeyPair(certPEM, keyPEM))(t)
}

func TestAClientHasSoManyConnectionsAndNoMore(t *testing.T) {
	r := newRig(t, goodServer)
	writer := r.pair(t, goodWriter)
	var held []*tls.Conn
	for range maxConns {
		conn, err := r.knock(t, writer)
		if err != nil {
			t.Fatalf("after %d connections: %v", len(held), err)
		}
		held = append(held, conn)
	}
	if _, err := r.knock(t, writer); err == nil {
		t.Errorf("the client has more than %d connections", maxConns)
	}
	if got := r.limited(limitConnections); got != 1 {
		t.Errorf("counted %v refusals, want 1", got)
	}
	if _, err := call(t, r.dial(t, person, serverURI), "Who", ""); err != nil {
		t.Errorf("another client is refused: %v", err)
	}

	held[0].Close()
	ctx := deadline(t)
	for { // the server learns in its own time that the connection is gone
		if _, err := r.knock(t, writer); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("there is no room for another connection after one has ended")
		}
	}
}

// What ends in the midst of being set up is counted out as well.
func TestConnectionsThatEndAtOnceLeaveNothingBehind(t *testing.T) {
	r := newRig(t, goodServer)
	writer := r.pair(t, goodWriter)
	for range 2 * maxConns {
		conn, err := r.knock(t, writer)
		if err != nil {
			t.Logf("refused while the server lags behind: %v", err)
		}
		conn.NetConn().(*net.TCPConn).SetLinger(0) // a reset, not a farewell
		conn.NetConn().Close()
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if n := r.server.clients.account([]*x509.Certificate{writer.Leaf}).conns.Load(); n != 0 {
		t.Errorf("%d connections are still counted", n)
	}
}

func TestTheOldestOfTooManyUnfinishedHandshakesIsCutOff(t *testing.T) {
	r := newRig(t, goodServer)
	r.server.creds.mu.Lock()
	r.server.creds.most = 3
	r.server.creds.mu.Unlock()
	var silent []net.Conn
	hold := func() {
		conn := must(net.Dial("tcp", r.address))(t)
		t.Cleanup(func() { conn.Close() })
		silent = append(silent, conn)
		ctx := deadline(t)
		for r.server.creds.unfinished() < len(silent) {
			if ctx.Err() != nil {
				t.Fatal("the handshake is not under way")
			}
		}
	}
	for range 3 {
		hold()
	}
	if err := checkHealth(t, r.dial(t, goodWriter, serverURI)); err != nil {
		t.Errorf("those who merely hold connections lock others out: %v", err)
	}
	silent[0].SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the oldest was not cut off: %v", err)
	}
	for i, conn := range silent[1:] {
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("number %d was cut off though there was room: %v", i+1, err)
		}
	}
	if got := r.limited(limitHandshakes); got != 1 {
		t.Errorf("counted %v cut off, want 1", got)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

package link

import (
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var (
	operatorCert = certSpec{sans: []string{operatorDNS}, usages: forClients}
	unlistedCert = certSpec{sans: []string{"spiffe://example.org/slicefeed/stranger"}, usages: forClients}
	twoNamesCert = certSpec{sans: []string{writerURI, operatorDNS}, usages: forClients}
)

func TestServesOnlyListedClients(t *testing.T) {
	r := newTestLink(t, serverCert)
	for _, c := range []struct {
		name   string
		client certSpec
		want   string
		code   codes.Code
	}{
		{"a URI SAN", writerCert, writerURI + " subscriber", codes.OK},
		{"a DNS SAN", operatorCert, operatorDNS + " operator", codes.OK},
		{"an unlisted client", unlistedCert, "", codes.Unavailable},
		{"a certificate with two names of the list", twoNamesCert, "", codes.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.dial(t, c.client, serverURI)
			got, err := callProbe(t, conn, "Who", "")
			if got != c.want || status.Code(err) != c.code {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.code)
			}
			if err := checkHealth(t, conn); status.Code(err) != c.code {
				t.Errorf("health: got %v, want %v", err, c.code)
			}
			if c.code == codes.OK {
				r.log.waitFor(t, "peer.san="+c.client.sans[0])
				return
			}
			r.log.waitFor(t, "client is not listed")
			r.log.waitFor(t, c.client.sans[0])
		})
	}
}

// The server neither reads what an unlisted client sends after the handshake, nor sends any HTTP/2.
func TestRejectsUnlistedClientsBeforeHTTP2(t *testing.T) {
	r := newTestLink(t, serverCert)
	for range 5 {
		conn := must(tls.Dial("tcp", r.address, &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{r.clientCert(t, unlistedCert)},
		}))(t)
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, http2Preface+settingsFrame+pingFrame)
		if got := readReply(t, conn, true); got != "" {
			t.Errorf("server sent %q", got)
		}
		conn.Close()
	}
	if err := r.stop(); err != nil { // then all handshakes are counted
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(r.server.handshaker.failures); got != 5 {
		t.Errorf("counted %v failed handshakes, want 5", got)
	}
}

func TestDeniesHealthToDelistedClients(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, writerCert, serverURI)
	if err := checkHealth(t, conn); err != nil {
		t.Fatal(err)
	}
	writeFile(t, r.listPath, []byte("clients:\n- {san: "+operatorDNS+", role: operator}\n"))
	r.server.id.reload()
	if err := checkHealth(t, conn); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want PERMISSION_DENIED", err)
	}
}

func TestClosesConnectionsOfDelistedClients(t *testing.T) {
	r := newTestLink(t, serverCert)
	writer := must(r.dialTLS(t, r.clientCert(t, writerCert)))(t)
	other := must(r.dialTLS(t, r.clientCert(t, operatorCert)))(t)
	io.WriteString(writer, http2Preface+settingsFrame+pingFrame) // without them, the server would close it anyway
	readReply(t, writer, false)
	writeFile(t, r.listPath, []byte("clients:\n- {san: "+operatorDNS+", role: operator}\n"))
	r.server.limits.revokedGrace = 0
	r.server.id.reload()
	readReply(t, writer, true)
	other.SetReadDeadline(time.Now().Add(time.Millisecond))
	io.WriteString(other, http2Preface+settingsFrame+pingFrame)
	other.SetReadDeadline(time.Now().Add(20 * time.Second))
	readReply(t, other, false)
}

func TestDeniesReflectionToUnlistedClients(t *testing.T) {
	r := newTestLink(t, serverCert)
	for _, c := range []struct {
		client certSpec
		want   codes.Code
	}{{operatorCert, codes.OK}, {unlistedCert, codes.Unavailable}} {
		conn := r.dial(t, c.client, serverURI)
		v1, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(testContext(t))
		if err != nil {
			if status.Code(err) != c.want {
				t.Errorf("for %q: got %v, want %v", c.client.sans, err, c.want)
			}
			continue
		}
		v1.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		if _, err := v1.Recv(); status.Code(err) != c.want {
			t.Errorf("v1 for %q: got %v, want %v", c.client.sans, err, c.want)
		}
		alpha := must(reflectionalpha.NewServerReflectionClient(conn).ServerReflectionInfo(testContext(t)))(t)
		list := &reflectionalpha.ServerReflectionRequest_ListServices{}
		alpha.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: list}) //nolint:staticcheck // clients may use the old version
		if _, err := alpha.Recv(); status.Code(err) != c.want {
			t.Errorf("v1alpha for %q: got %v, want %v", c.client.sans, err, c.want)
		}
	}
}

func TestReauthorizesStreamsWhenClientListChanges(t *testing.T) {
	const keepPerson = "clients:\n- {san: " + operatorDNS + ", role: operator}\n"
	for _, c := range []struct {
		name, list string
		want       codes.Code // of the stream
		again      codes.Code // of a new call
	}{
		{"a removed grant ends it permanently", keepPerson, codes.PermissionDenied, codes.PermissionDenied},
		{"other Services end it temporarily", keepPerson + "- {san: " + writerURI + ", role: subscriber, services: [shop/api]}", codes.Unavailable, codes.OK},
		{"another role ends it temporarily", keepPerson + "- {san: " + writerURI + ", role: operator, services: [shop/web]}", codes.Unavailable, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			writer, other := r.dial(t, writerCert, serverURI), r.dial(t, operatorCert, serverURI)
			live, untouched := openWatch(t, writer), openWatch(t, other)
			writeFile(t, r.listPath, []byte(c.list))
			r.server.id.reload()
			if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != c.want {
				t.Errorf("the stream ended with %v, want %v", err, c.want)
			}
			if _, err := callProbe(t, writer, "Who", ""); status.Code(err) != c.again {
				t.Errorf("a new call gets %v, want %v", err, c.again)
			}
			if err := r.stop(); err != nil { // the other stream is live until now
				t.Fatal(err)
			}
			if err := untouched.RecvMsg(new(emptypb.Empty)); status.Convert(err).Message() != status.Convert(errStopping).Message() {
				t.Errorf("the other client's stream ended with %v", err)
			}
		})
	}
}

func TestEndsBidirectionalStreamOnRevocation(t *testing.T) {
	r := newTestLink(t, serverCert)
	s := must(reflectionpb.NewServerReflectionClient(r.dial(t, operatorCert, serverURI)).ServerReflectionInfo(testContext(t)))(t)
	request := func() error {
		s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err := s.Recv()
		return err
	}
	if err := request(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, r.listPath, []byte("clients:\n- {san: "+writerURI+", role: subscriber}\n"))
	r.server.id.reload()
	// The authorizer ends the stream from another goroutine, so repeat until it does.
	err := request()
	for err == nil {
		err = request()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want PERMISSION_DENIED", err)
	}
}

func TestEndsClientStreamOnRevocation(t *testing.T) {
	r := newTestLink(t, serverCert)
	s := must(r.dial(t, operatorCert, serverURI).NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true}, "/test.Probe/Listen"))(t)
	ended := make(chan error, 1)
	go func() { ended <- s.RecvMsg(new(emptypb.Empty)) }()
	revoked := false
	for {
		s.SendMsg(new(emptypb.Empty)) // RecvMsg returns its error
		select {
		case <-messageReceived:
		case err := <-ended:
			if !revoked || status.Code(err) != codes.PermissionDenied {
				t.Errorf("ended with %v (revoked: %v), want PERMISSION_DENIED", err, revoked)
			}
			return
		}
		if !revoked {
			revoked = true
			writeFile(t, r.listPath, []byte("clients:\n- {san: "+writerURI+", role: subscriber}\n"))
			r.server.id.reload()
		}
	}
}

func TestReportsHandlerPanics(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, operatorCert, serverURI)
	_, err := callProbe(t, conn, "Panic", "")
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "on purpose") {
		t.Errorf("got %v, want INTERNAL without the cause", err)
	}
	r.log.waitFor(t, "on purpose")
	r.log.waitFor(t, "testlink_test.go") // in the stack
	if _, err := callProbe(t, conn, "Who", ""); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}

func TestSubscribersMayCallListedServicesOnly(t *testing.T) {
	r := newTestLink(t, serverCert)
	for name, tt := range map[string]struct {
		spec certSpec
		want codes.Code
	}{"subscriber": {writerCert, codes.PermissionDenied}, "operator": {operatorCert, codes.OK}} {
		t.Run(name, func(t *testing.T) {
			conn := r.dial(t, tt.spec, serverURI)
			err := conn.Invoke(testContext(t), "/test.Operator/Who", wrapperspb.String(""), new(wrapperspb.StringValue))
			if status.Code(err) != tt.want {
				t.Errorf("a call of the operators' service gets %v, want %v", err, tt.want)
			}
			stream := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true}, "/test.Operator/Watch"))(t)
			_ = errors.Join(stream.SendMsg(new(emptypb.Empty)), stream.CloseSend())
			if err := stream.RecvMsg(new(emptypb.Empty)); status.Code(err) != tt.want {
				t.Errorf("a stream of it gets %v, want %v", err, tt.want)
			}
			if _, err := callProbe(t, conn, "Who", ""); err != nil {
				t.Errorf("a call of the subscribers' service: %v", err)
			}
			if err := checkHealth(t, conn); err != nil {
				t.Errorf("health: %v", err)
			}
			services := must(reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(testContext(t)))(t)
			list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
			if err := services.Send(list); err != nil {
				t.Fatal(err)
			}
			if _, err := services.Recv(); err != nil {
				t.Errorf("reflection: %v", err)
			}
		})
	}
}

func TestLogsCallsWithoutPayload(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, operatorCert, serverURI)
	if _, err := callProbe(t, conn, "Who", "a-payload"); err != nil {
		t.Error(err)
	}
	if _, err := callProbe(t, conn, "Who", strings.Repeat("x", maxRequestBytes)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("an oversized request gets %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := r.stop(); err != nil { // then the log is complete
		t.Fatal(err)
	}
	log := r.log.String()
	if !strings.Contains(log, "Who") || strings.Contains(log, "a-payload") {
		t.Errorf("log misses the calls or contains a payload:\n%s", log)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "grpc.component=server") &&
			strings.Contains(line, "grpc.code=OK") != strings.Contains(line, "level=DEBUG") {
			t.Errorf("a call that succeeds is for Debug, and no other: %s", line)
		}
	}
}

func TestStopsInOrder(t *testing.T) {
	var live grpc.ClientStream
	r := newTestLink(t, serverCert)
	r.onStop = func() {
		m, err := r.server.Health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health is %v, %v before the streams end", m, err)
		}
	}
	conn := r.dial(t, writerCert, serverURI)
	live = openWatch(t, conn)
	hw := must(healthpb.NewHealthClient(conn).Watch(testContext(t), &healthpb.HealthCheckRequest{}))(t)
	must(hw.Recv())(t)
	startedAt := time.Now()
	if err := r.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if took := time.Since(startedAt); took > r.server.gracePeriod/2 {
		t.Errorf("a live stream delayed the stop by %v", took)
	}
	if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
	var err error
	for err == nil { // NOT_SERVING may arrive before the end
		_, err = hw.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("health watch ended with %v, want UNAVAILABLE", err)
	}
}

func TestGracePeriodEndsHangingCalls(t *testing.T) {
	r := newTestLink(t, serverCert)
	r.server.gracePeriod = 50 * time.Millisecond
	conn := r.dial(t, operatorCert, serverURI)
	if _, err := callProbe(t, conn, "Who", ""); err != nil {
		t.Fatal(err)
	}
	hung := make(chan error, 1)
	go func() { _, err := callProbe(t, conn, "Hang", ""); hung <- err }()
	<-hangStarted
	if err := r.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-hung; status.Code(err) != codes.Unavailable {
		t.Errorf("the call ended with %v, want UNAVAILABLE", err)
	}
}

// The service's Stop may wait for a call that hangs. Only the grace period ends that call.
func TestGracePeriodRunsDuringStop(t *testing.T) {
	ended := make(chan struct{})
	r := newTestLink(t, serverCert)
	r.onStop = func() {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("grace period did not end the call that the service's Stop waits for")
		}
	}
	r.server.gracePeriod = 50 * time.Millisecond
	conn := r.dial(t, operatorCert, serverURI)
	if _, err := callProbe(t, conn, "Who", ""); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ended); _, _ = callProbe(t, conn, "Hang", "") }()
	<-hangStarted
	if err := r.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

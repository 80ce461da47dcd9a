package link

import (
	"crypto/tls"
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
)

var (
	person   = leaf{sans: []string{personDNS}, usages: forClients}
	stranger = leaf{sans: []string{"spiffe://example.org/slicefeed/stranger"}, usages: forClients}
	twoNames = leaf{sans: []string{writerURI, personDNS}, usages: forClients}
)

func TestTheListDecidesWhoMayCall(t *testing.T) {
	r := newRig(t, goodServer)
	for _, c := range []struct {
		name   string
		client leaf
		want   string
		code   codes.Code
	}{
		{"a URI SAN with a view", goodWriter, writerURI + " subscriber pool=blue", codes.OK},
		{"a DNS SAN without a view", person, personDNS + " operator ", codes.OK},
		{"an unlisted client", stranger, "", codes.Unavailable},
		{"a certificate with two names of the list", twoNames, "", codes.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.dial(t, c.client, serverURI)
			got, err := call(t, conn, "Who", "")
			if got != c.want || status.Code(err) != c.code {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.code)
			}
			if err := checkHealth(t, conn); status.Code(err) != c.code {
				t.Errorf("health: got %v, want %v", err, c.code)
			}
			if c.code == codes.OK {
				r.log.await(t, "peer.san="+c.client.sans[0])
				return
			}
			r.log.await(t, "this client is not on the list")
			r.log.await(t, c.client.sans[0])
		})
	}
}

// An unlisted client's connection ends before HTTP/2: whatever it sends is not read, and not one
// byte of HTTP/2 comes back.
func TestAnUnlistedClientsConnectionEndsBeforeHTTP2(t *testing.T) {
	r := newRig(t, goodServer)
	for range 5 {
		conn := must(tls.Dial("tcp", r.address, &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{r.pair(t, stranger)},
		}))(t)
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, preface+settings+ping)
		if got := hear(t, conn, true); got != "" {
			t.Errorf("it is answered %q", got)
		}
		conn.Close()
	}
	if err := r.stop(); err != nil { // after which all are counted
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(r.server.creds.failed); got != 5 {
		t.Errorf("%v refused handshakes are counted, want 5", got)
	}
}

func TestHealthIsRefusedToWhoWasTakenOffTheList(t *testing.T) {
	r := newRig(t, goodServer)
	conn := r.dial(t, goodWriter, serverURI)
	if err := checkHealth(t, conn); err != nil {
		t.Fatal(err)
	}
	write(t, r.list, []byte("clients:\n- {san: "+personDNS+", role: operator}\n"))
	r.server.reloader.reload()
	if err := checkHealth(t, conn); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want PERMISSION_DENIED", err)
	}
}

func TestTheConnectionsOfWhoWasTakenOffTheListAreClosed(t *testing.T) {
	r := newRig(t, goodServer)
	writer := must(r.knock(t, r.pair(t, goodWriter)))(t)
	account := r.server.clients.find([]SAN{writerURI}).account
	other := must(r.knock(t, r.pair(t, person)))(t)
	write(t, r.list, []byte("clients:\n- {san: "+personDNS+", role: operator}\n"))
	r.server.reloader.reload()
	account.closeRevoked() // what a timer does after the grace
	hear(t, writer, true)
	other.SetReadDeadline(time.Now().Add(time.Millisecond))
	io.WriteString(other, preface+settings+ping)
	other.SetReadDeadline(time.Now().Add(20 * time.Second))
	hear(t, other, false)
}

func TestReflectionIsRefusedToStrangers(t *testing.T) {
	r := newRig(t, goodServer)
	for _, c := range []struct {
		client leaf
		want   codes.Code
	}{{person, codes.OK}, {stranger, codes.Unavailable}} {
		conn := r.dial(t, c.client, serverURI)
		v1, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(deadline(t))
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
		alpha := must(reflectionalpha.NewServerReflectionClient(conn).ServerReflectionInfo(deadline(t)))(t)
		alpha.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}}) //nolint:staticcheck // strangers may ask the old way
		if _, err := alpha.Recv(); status.Code(err) != c.want {
			t.Errorf("v1alpha for %q: got %v, want %v", c.client.sans, err, c.want)
		}
	}
}

func TestLiveStreamsAreAuthorisedAgainWhenTheListChanges(t *testing.T) {
	const keepPerson = "clients:\n- {san: " + personDNS + ", role: operator}\n"
	for _, c := range []struct {
		name, list string
		want       codes.Code // how the stream ends
		again      codes.Code // what a new call gets
	}{
		{"a grant that is gone ends it for good", keepPerson, codes.PermissionDenied, codes.PermissionDenied},
		{"another selector ends it so that the client resumes", keepPerson + "- {san: " + writerURI + ", role: subscriber, view: {nodeSelector: pool=red, labels: [zone, arch]}}", codes.Unavailable, codes.OK},
		{"other labels end it", keepPerson + "- {san: " + writerURI + ", role: subscriber, view: {nodeSelector: pool=blue, labels: [zone]}}", codes.Unavailable, codes.OK},
		{"another role ends it", keepPerson + "- {san: " + writerURI + ", role: operator, view: {nodeSelector: pool=blue, labels: [zone, arch]}}", codes.Unavailable, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, goodServer)
			writer, other := r.dial(t, goodWriter, serverURI), r.dial(t, person, serverURI)
			live, untouched := watch(t, writer), watch(t, other)
			write(t, r.list, []byte(c.list))
			r.server.reloader.reload()
			if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != c.want {
				t.Errorf("the stream ended with %v, want %v", err, c.want)
			}
			if _, err := call(t, writer, "Who", ""); status.Code(err) != c.again {
				t.Errorf("a new call gets %v, want %v", err, c.again)
			}
			if err := r.stop(); err != nil { // the other one lived until now, and ends for another reason
				t.Fatal(err)
			}
			if err := untouched.RecvMsg(new(emptypb.Empty)); status.Convert(err).Message() != status.Convert(errStopping).Message() {
				t.Errorf("the other client's stream ended with %v", err)
			}
		})
	}
}

func TestAStreamThatListensHearsNothingMoreOnceItsGrantIsGone(t *testing.T) {
	r := newRig(t, goodServer)
	s := must(reflectionpb.NewServerReflectionClient(r.dial(t, person, serverURI)).ServerReflectionInfo(deadline(t)))(t)
	ask := func() error {
		s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err := s.Recv()
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	write(t, r.list, []byte("clients:\n- {san: "+writerURI+", role: subscriber}\n"))
	r.server.reloader.reload()
	// The authoriser learns of the change on a goroutine of its own: ask until it has.
	err := ask()
	for err == nil {
		err = ask()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want PERMISSION_DENIED", err)
	}
}

func TestAStreamThatOnlyHearsEndsWithTheFirstWordAfterItsGrantIsGone(t *testing.T) {
	r := newRig(t, goodServer)
	s := must(r.dial(t, person, serverURI).NewStream(deadline(t), &grpc.StreamDesc{ClientStreams: true}, "/test.Probe/Listen"))(t)
	ended := make(chan error, 1)
	go func() { ended <- s.RecvMsg(new(emptypb.Empty)) }()
	revoked := false
	for {
		s.SendMsg(new(emptypb.Empty)) // an error of it is told by RecvMsg
		select {
		case <-heard:
		case err := <-ended:
			if !revoked || status.Code(err) != codes.PermissionDenied {
				t.Errorf("ended with %v (revoked: %v), want PERMISSION_DENIED", err, revoked)
			}
			return
		}
		if !revoked {
			revoked = true
			write(t, r.list, []byte("clients:\n- {san: "+writerURI+", role: subscriber}\n"))
			r.server.reloader.reload()
		}
	}
}

func TestAGrantThatStaysAsItIsIsNotDisturbed(t *testing.T) {
	c := &Clients{}
	c.replace(must(parseClients([]byte(theList)))(t))
	g := c.find([]SAN{personDNS}).grant
	changed := c.Follow(g)
	c.replace(must(parseClients([]byte(strings.Replace(theList, "pool=blue", "pool=red", 1))))(t))
	select {
	case <-changed:
		t.Error("told of a change that was another's")
	default:
	}
	stale := g
	stale.Role = RoleSubscriber
	select {
	case <-c.Follow(stale):
	default:
		t.Error("a grant that is not the list's is followed as if it were")
	}
}

func TestAPanicIsAnsweredCountedAndLogged(t *testing.T) {
	r := newRig(t, goodServer)
	conn := r.dial(t, person, serverURI)
	_, err := call(t, conn, "Panic", "")
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "on purpose") {
		t.Errorf("got %v, want INTERNAL without its cause", err)
	}
	if n := testutil.ToFloat64(r.server.panics); n != 1 {
		t.Errorf("counted %v panics", n)
	}
	r.log.await(t, "on purpose")
	r.log.await(t, "rig_test.go") // in the stack
	if _, err := call(t, conn, "Who", ""); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}

func TestRequestsAreValidatedAndNeverLogged(t *testing.T) {
	r := newRig(t, goodServer)
	conn := r.dial(t, person, serverURI)
	if _, err := call(t, conn, "Who", "bad"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want INVALID_ARGUMENT", err)
	}
	if _, err := call(t, conn, "Who", "a-payload"); err != nil {
		t.Error(err)
	}
	if _, err := call(t, conn, "Who", strings.Repeat("x", maxRequest)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("an oversized request gets %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := r.stop(); err != nil { // after which the log is complete
		t.Fatal(err)
	}
	if log := r.log.String(); !strings.Contains(log, "Who") || strings.Contains(log, "a-payload") {
		t.Errorf("the log lacks the calls or holds a payload:\n%s", log)
	}
}

func TestTheServerStopsInOrder(t *testing.T) {
	var live grpc.ClientStream
	r := newRig(t, goodServer, func(v *Serving) {
		v.Stopping = func() {
			m, err := v.Health.Check(t.Context(), &healthpb.HealthCheckRequest{})
			if err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
				t.Errorf("health says %v, %v before the streams end", m, err)
			}
		}
	})
	conn := r.dial(t, goodWriter, serverURI)
	live = watch(t, conn)
	hw := must(healthpb.NewHealthClient(conn).Watch(deadline(t), &healthpb.HealthCheckRequest{}))(t)
	must(hw.Recv())(t)
	begun := time.Now()
	if err := r.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if took := time.Since(begun); took > r.serving.Grace/2 {
		t.Errorf("a live stream held the stop up for %v", took)
	}
	if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
	var err error
	for err == nil { // NOT_SERVING may or may not get through before the end
		_, err = hw.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the watch of health ended with %v, want UNAVAILABLE", err)
	}
}

func TestACallThatHangsIsCutOffWhenTheGraceEnds(t *testing.T) {
	r := newRig(t, goodServer, func(v *Serving) { v.Grace = 50 * time.Millisecond })
	conn := r.dial(t, person, serverURI)
	if _, err := call(t, conn, "Who", ""); err != nil {
		t.Fatal(err)
	}
	hung := make(chan error, 1)
	go func() { _, err := call(t, conn, "Hang", ""); hung <- err }()
	<-hanging
	if err := r.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-hung; status.Code(err) != codes.Unavailable {
		t.Errorf("the call ended with %v, want UNAVAILABLE", err)
	}
}

// What Stopping waits for may itself wait for a client: only the grace ends that.
func TestTheGraceRunsWhileStoppingWaitsForCalls(t *testing.T) {
	ended := make(chan struct{})
	r := newRig(t, goodServer, func(v *Serving) {
		v.Grace = 50 * time.Millisecond
		v.Stopping = func() {
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("the grace timer has not cut off a call that Stopping waits for")
			}
		}
	})
	conn := r.dial(t, person, serverURI)
	if _, err := call(t, conn, "Who", ""); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ended); _, _ = call(t, conn, "Hang", "") }()
	<-hanging
	if err := r.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

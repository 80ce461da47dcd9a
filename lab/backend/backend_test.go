package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/lab/netns"
)

var address = netip.MustParseAddrPort("10.0.0.21:30080")

func TestMain(m *testing.M) { netns.Main(m, address.Addr()) }

func start(t *testing.T) *Backend {
	t.Helper()
	b, err := Start("worker-1", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func set(t *testing.T, b *Backend, mode Mode) {
	t.Helper()
	if err := b.Set(mode); err != nil {
		t.Fatal(err)
	}
	if got := b.Mode(); got != mode {
		t.Fatalf("the mode is %s, want %s", got, mode)
	}
}

// What a probe would see, as a word.
func connect(within time.Duration) string {
	conn, err := net.DialTimeout("tcp", address.String(), within)
	if err != nil {
		return outcome(err)
	}
	_ = conn.Close()
	return "connected"
}

func get(client *http.Client, within time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address.String(), nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return outcome(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return outcome(err)
	}
	return fmt.Sprintf("%d from %s", response.StatusCode, response.Header.Get(NameHeader))
}

func outcome(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	default:
		return err.Error()
	}
}

// patience is for an answer that is wanted to come, or not to.
func patience(want string) time.Duration {
	if want == "timeout" {
		return 100 * time.Millisecond
	}
	return 10 * time.Second
}

func fresh() *http.Client { return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} }

func TestModesLookFromOutsideLikeWhatTheyStandFor(t *testing.T) {
	b := start(t)
	for _, row := range []struct {
		mode         Mode
		connect, get string
	}{
		{Serve, "connected", "200 from worker-1"},
		{Refuse, "refused", "refused"},
		{Serve, "connected", "200 from worker-1"},
		{Silent, "timeout", "timeout"},
		{Error, "connected", "500 from worker-1"},
		{Silent, "timeout", "timeout"},
		{Refuse, "refused", "refused"},
		{Silent, "timeout", "timeout"},
		{Hang, "connected", "timeout"},
		{Refuse, "refused", "refused"},
		{Serve, "connected", "200 from worker-1"},
	} {
		set(t, b, row.mode)
		if got := connect(patience(row.connect)); got != row.connect {
			t.Errorf("%s: connecting: %s, want %s", row.mode, got, row.connect)
		}
		if got := get(fresh(), patience(row.get)); got != row.get {
			t.Errorf("%s: a request: %s, want %s", row.mode, got, row.get)
		}
	}
}

func TestASwitchHoldsForConnectionsThatAreOpen(t *testing.T) {
	for _, row := range []struct {
		mode Mode
		want string
	}{{Silent, "timeout"}, {Hang, "timeout"}, {Error, "500 from worker-1"}, {Serve, "200 from worker-1"}} {
		t.Run(string(row.mode), func(t *testing.T) {
			b := start(t)
			dialled := 0
			client := &http.Client{Transport: &http.Transport{
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					dialled++
					var d net.Dialer
					return d.DialContext(ctx, network, addr)
				},
			}}
			defer client.CloseIdleConnections()
			if got := get(client, patience("an answer")); got != "200 from worker-1" {
				t.Fatal(got)
			}
			set(t, b, row.mode)
			if got := get(client, patience(row.want)); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if dialled != 1 {
				t.Errorf("dialled %d times", dialled)
			}
			// Dead machines hear nothing; it is not enough that they do not answer.
			if heard := b.Requests() == 2; heard == (row.mode == Silent) {
				t.Errorf("heard the request: %v", heard)
			}
		})
	}
}

func TestBackendsOfOtherProtocolsFailInTheSameWays(t *testing.T) {
	secured := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	overTLS := func(ctx context.Context) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address.String(), nil)
		if err != nil {
			return err.Error()
		}
		response, err := secured.Do(request)
		if err != nil {
			return outcome(err)
		}
		defer response.Body.Close()
		return fmt.Sprintf("%d from %s", response.StatusCode, response.Header.Get(NameHeader))
	}
	byGRPC := func(ctx context.Context) string {
		conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
		switch status.Code(err) {
		case codes.OK:
			return answer.GetStatus().String()
		case codes.DeadlineExceeded:
			return "timeout"
		case codes.Unavailable:
			return "refused"
		default:
			return err.Error()
		}
	}
	for _, row := range []struct {
		protocol   Protocol
		ask        func(context.Context) string
		serve, err string
	}{
		{HTTPS, overTLS, "200 from worker-1", "500 from worker-1"},
		{GRPC, byGRPC, "SERVING", "NOT_SERVING"},
	} {
		t.Run(string(row.protocol), func(t *testing.T) {
			b, err := StartSpeaking(row.protocol, "worker-1", address)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			for _, step := range []struct {
				mode Mode
				want string
			}{{Serve, row.serve}, {Silent, "timeout"}, {Error, row.err}, {Hang, "timeout"}, {Refuse, "refused"}, {Serve, row.serve}} {
				set(t, b, step.mode)
				ctx, cancel := context.WithTimeout(t.Context(), patience(step.want))
				if got := row.ask(ctx); got != step.want {
					t.Errorf("%s: %s, want %s", step.mode, got, step.want)
				}
				cancel()
			}
		})
	}
	if _, err := StartSpeaking("smtp", "worker-1", address); err == nil {
		t.Error("a protocol that is none: no error")
	}
}

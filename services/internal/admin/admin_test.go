package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/credentials/insecure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startServer returns the URLs of the two listeners.
func startServer(t *testing.T, s *Server) (admin, debug string) {
	t.Helper()
	listeners, err := Listen(t.Context(), Address{"ADMIN_ADDRESS", "127.0.0.1:0"}, Address{"DEBUG_ADDRESS", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s.Admin, s.Debug = listeners[0], listeners[1]
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "slicefeed_test_total"}))
	s.Gatherer, s.Logger = registry, slog.New(slog.DiscardHandler)
	if s.Ready == nil {
		s.Ready = func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return "http://" + s.Admin.Addr().String(), "http://" + s.Debug.Addr().String()
}

func httpGet(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestProbeReportsWhyItFails(t *testing.T) {
	var cache error
	admin, _ := startServer(t, &Server{Ready: func() error { return cache }})
	for _, c := range []struct {
		name, path string
		cache      error
		code       int
		body       string
	}{
		{"ready", "/readyz", nil, 200, "ok"},
		{"not ready", "/readyz", errors.New("not synced"), 503, "not synced\n"},
		{"alive though not ready", "/livez", errors.New("not synced"), 200, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache = c.cache
			if code, body := httpGet(t, admin+c.path); code != c.code || body != c.body {
				t.Errorf("got %d %q, want %d %q", code, body, c.code, c.body)
			}
		})
	}
}

func TestServesEachPathOnOneListener(t *testing.T) {
	status := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"state":"fine"}`) })
	admin, debug := startServer(t, &Server{Status: status})
	for path, want := range map[string]struct{ admin, debug int }{
		"/metrics": {200, 404}, "/livez": {200, 404}, "/readyz": {200, 404},
		"/statusz": {404, 200}, "/debug/pprof/": {404, 200}, "/debug/pprof/heap": {404, 200}, "/": {404, 200},
	} {
		if got, _ := httpGet(t, admin+path); got != want.admin {
			t.Errorf("admin %s: %d, want %d", path, got, want.admin)
		}
		if got, _ := httpGet(t, debug+path); got != want.debug {
			t.Errorf("debug %s: %d, want %d", path, got, want.debug)
		}
	}
	if _, body := httpGet(t, admin+"/metrics"); !strings.Contains(body, "slicefeed_test_total 0") {
		t.Errorf("metrics are %q", body)
	}
}

func TestServesChannelzOnDebugListener(t *testing.T) {
	admin, debug := startServer(t, &Server{})
	getServers := func(url string) error {
		conn, err := grpc.NewClient(
			"passthrough:"+strings.TrimPrefix(url, "http://"),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
		)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = channelzpb.NewChannelzClient(conn).GetServers(t.Context(), &channelzpb.GetServersRequest{})
		return err
	}
	if err := getServers(debug); err != nil {
		t.Errorf("debug: %v", err)
	}
	if err := getServers(admin); err == nil {
		t.Error("admin: no error")
	}
}

func TestListenErrorNamesSetting(t *testing.T) {
	all, err := Listen(t.Context(), Address{"ADMIN_ADDRESS", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	l := all[0]
	defer l.Close()
	for address, want := range map[string]string{
		l.Addr().String(): `choose another port`,
		"nonsense":        `want host:port`,
		"127.0.0.1:99999": `want host:port`,
	} {
		_, err := Listen(t.Context(), Address{"DEBUG_ADDRESS", address})
		if err == nil || !strings.Contains(err.Error(), "DEBUG_ADDRESS="+`"`+address+`"`) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with the setting and %q", address, err, want)
		}
	}
}

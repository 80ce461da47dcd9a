// Package admin serves a process's HTTP endpoints: metrics and probes on one listener, and status page,
// profiles and channelz on a debug listener, which is on loopback by default. It guarantees that a
// failed probe says why. It does not change anything: all endpoints are
// read-only. The debug listener has no authentication of its own: on loopback, whoever may forward a port to the Pod
// may read it.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/reflection"

	"github.com/slicefeed/slicefeed/services/internal/link"
)

// Server serves the endpoints.
type Server struct {
	Admin net.Listener // /metrics /livez /readyz
	Debug net.Listener // /statusz /debug/pprof/, gRPC channelz and Operator; nil: off

	Gatherer prometheus.Gatherer
	Ready    func() error                // of /readyz; it must not block
	Status   http.Handler                // /statusz; nil: none
	Operator func(grpc.ServiceRegistrar) // registers what operators may read without a client certificate; nil: nothing
	Logger   *slog.Logger
}

// Address is where a setting says to listen.
type Address struct{ Setting, Address string }

// Listen opens the listeners of settings; nil for one without a value. Its error names each setting that does not work.
func Listen(ctx context.Context, settings ...Address) ([]net.Listener, error) {
	all, problems := make([]net.Listener, len(settings)), []error{}
	for i, s := range settings {
		if s.Address == "" {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
		advice := "want host:port or :port of this machine"
		switch {
		case err == nil:
			all[i] = l
			continue
		case errors.Is(err, syscall.EADDRINUSE):
			advice = "stop the process that uses the port, or choose another port"
		case errors.Is(err, syscall.EACCES):
			advice = "choose a port above 1023, or grant CAP_NET_BIND_SERVICE"
		}
		problems = append(problems, fmt.Errorf("%s=%q: %w; %s", s.Setting, s.Address, err, advice))
	}
	return all, errors.Join(problems...)
}

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.serveListener(ctx, httpListener{listener: s.Admin, handler: s.adminHandler(), timeout: maxRequestTime})
	})
	if s.Debug != nil {
		handler := s.debugHandler()
		if a, ok := s.Debug.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
			handler = checkHost(handler)
		} else if ok {
			s.Logger.Warn("debug listener has no authentication and is reachable from other machines", "address", a.String())
		}
		// No timeout, because a profile takes as long as requested. channelz needs HTTP/2.
		g.Go(func() error {
			return s.serveListener(ctx, httpListener{listener: s.Debug, handler: handler, http2: true})
		})
	}
	return g.Wait()
}

// maxRequestTime bounds receiving a request, and sending its response.
const maxRequestTime = 30 * time.Second

// httpListener is one of the listeners and how to serve it.
type httpListener struct {
	listener net.Listener
	handler  http.Handler
	timeout  time.Duration // for receiving a request, and for sending its response; 0: none
	http2    bool          // also HTTP/2 without TLS, which lets one connection leave a hundred responses unread
}

// maxConnsPerListener bounds the connections of a listener. A kubelet and a few scrapers have some each. They do not
// identify themselves, so only their addresses distinguish them: a new connection closes the oldest of the source address
// that has the most. Letting new connections wait (netutil.LimitListener) was rejected: idle connections would block
// the kubelet, which would then restart a healthy container.
const maxConnsPerListener = 128 // also in docs/design/limits.md

func (s *Server) serveListener(ctx context.Context, cfg httpListener) error {
	l := cfg.listener
	srv := &http.Server{
		Handler:           cfg.handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: cfg.timeout, WriteTimeout: cfg.timeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
		Protocols:      new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(cfg.http2)
	conns := link.NewEvictionSet(maxConnsPerListener, func(evicted net.Conn) {
		evicted.Close() //nolint:errcheck // its peer sees the connection end
	})
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			conns.Add(conn.RemoteAddr().String(), conn)
		case http.StateClosed:
			conns.Remove(conn)
		}
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- srv.Serve(l) }()
	select {
	case err := <-serveErr:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// A scrape or profile in progress gets a second.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	if err := <-serveErr; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newMetricsHandler(promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelError),
	})))
	mux.Handle("GET /livez", probeHandler(func() error { return nil }))
	mux.Handle("GET /readyz", probeHandler(s.Ready))
	return mux
}

func (s *Server) debugHandler() http.Handler {
	mux := http.NewServeMux()
	if s.Status != nil {
		mux.Handle("GET /statusz", s.Status)
		mux.Handle("GET /{$}", http.RedirectHandler("/statusz", http.StatusFound))
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	rpc := grpc.NewServer() // has no listener: only used through ServeHTTP
	service.RegisterChannelzServiceToServer(rpc)
	if s.Operator != nil {
		s.Operator(rpc)
	}
	reflection.Register(rpc)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// probeHandler responds with "ok", or with why the check fails.
func probeHandler(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ok")
	})
}

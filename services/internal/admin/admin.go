// Package admin is a process's side doors over HTTP: metrics and probes for the cluster on
// one listener, and on another, loopback by default, what only whoever is on the machine
// should see. It promises that readiness says which check fails and why, and refuses to
// change anything: every door is for looking.
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
)

// Check is one named condition. OK returns what is wrong, nil when nothing is; it is
// called for each request, from several goroutines, and answers at once.
type Check struct {
	Name string
	Err  func() error
}

// Server serves the side doors.
type Server struct {
	Admin net.Listener // /metrics /livez /readyz
	Debug net.Listener // /statusz /debug/pprof/ and gRPC channelz; nil: off

	Gatherer prometheus.Gatherer
	Live     []Check // failing means that only a restart helps; usually none
	Ready    []Check
	Status   http.Handler // /statusz; nil: none
	Logger   *slog.Logger
}

// Listen opens the listener of a setting, and says which setting to change when it cannot.
func Listen(ctx context.Context, setting, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s=%q: another process listens there already; stop it or choose another port: %w", setting, address, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s=%q: this user may not listen there; ports below 1024 need a privilege: %w", setting, address, err)
	default:
		return nil, fmt.Errorf("%s=%q: want host:port or :port of this machine: %w", setting, address, err)
	}
}

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.serveListener(ctx, httpListener{listener: s.Admin, handler: s.adminHandler(), timeout: maxRequestTime})
	})
	if s.Debug != nil {
		a, ok := s.Debug.Addr().(*net.TCPAddr)
		loopback := ok && a.IP.IsLoopback()
		if ok && !loopback {
			s.Logger.Warn("debug listener is open to other machines", "address", a.String())
		}
		// Profiles take as long as they are asked to, and channelz is gRPC.
		g.Go(func() error {
			return s.serveListener(ctx, httpListener{listener: s.Debug, handler: checkOrigin(s.debugHandler(), loopback), http2: true})
		})
	}
	return g.Wait()
}

// maxRequestTime is how long a request may take to come, and its answer to go.
const maxRequestTime = 30 * time.Second

// httpListener is one of the listeners.
type httpListener struct {
	listener net.Listener
	handler  http.Handler
	timeout  time.Duration // for a request, and for its answer; 0: none
	http2    bool          // without TLS. One connection has a hundred requests then, whose answers need not be read
}

func (s *Server) serveListener(ctx context.Context, v httpListener) error {
	l := v.listener
	srv := &http.Server{
		Handler:           v.handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: v.timeout, WriteTimeout: v.timeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
		Protocols:      new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(v.http2)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(newLimitListener(l, maxConnsPerListener)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// Nobody is owed an answer here: a scrape or profile under way gets a second.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // whoever is still there has had the second
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newMetricsHandler(promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelError),
	})))
	mux.Handle("GET /livez", checksHandler("livez", s.Live))
	mux.Handle("GET /readyz", checksHandler("readyz", s.Ready))
	return mux
}

func (s *Server) debugHandler() http.Handler {
	mux := http.NewServeMux()
	if s.Status != nil {
		mux.Handle("GET /statusz", s.Status)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	channelz := grpc.NewServer() // never listens: it only answers through ServeHTTP
	service.RegisterChannelzServiceToServer(channelz)
	reflection.Register(channelz)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			channelz.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// checksHandler answers as Kubernetes' own probes do: "ok", or each check's line when one fails or
// ?verbose asks. Unlike there the reason is not withheld: it is what the asker came for.
func checksHandler(name string, all []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b strings.Builder
		b.WriteString("[+]ping ok\n")
		code, verdict := http.StatusOK, name+" check passed\n"
		for _, c := range all {
			if err := c.Err(); err != nil {
				fmt.Fprintf(&b, "[-]%s failed: %s\n", c.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
				code, verdict = http.StatusServiceUnavailable, name+" check failed\n"
				continue
			}
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		if _, verbose := r.URL.Query()["verbose"]; code == http.StatusOK && !verbose {
			fmt.Fprint(w, "ok")
			return
		}
		fmt.Fprint(w, b.String()+verdict)
	})
}

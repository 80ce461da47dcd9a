package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newProber() *Prober {
	return New(Config{Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
}

// run runs a prober until the test is over, and then waits for it.
func run(t testing.TB, p *Prober) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func keyOf(t *testing.T, address string, spec Spec) Key {
	t.Helper()
	ap, err := netip.ParseAddrPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return Key{Address: ap.Addr(), Port: ap.Port(), Spec: spec}
}

// refusing returns an address that nobody listens on.
func refusing(t *testing.T) string {
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// raw answers each connection as f does, after its request came.
func raw(t *testing.T, f func(net.Conn)) string {
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			c.Read(buf) //nolint:errcheck // whatever it says
			f(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// What one probe says of every kind of backend.
func TestOneProbe(t *testing.T) {
	var redirected atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/host":
			if r.Host != "web.example" {
				w.WriteHeader(http.StatusNotFound)
			}
		case "/query":
			if r.URL.RawQuery != "full=1" {
				w.WriteHeader(http.StatusNotFound)
			}
		case "/elsewhere":
			redirected.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		case "/moved":
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		case "/slow":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/huge":
			part := make([]byte, 64<<10)
			for r.Context().Err() == nil {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		case "/hang":
			<-r.Context().Done()
		default:
			code := 200
			fmt.Sscanf(r.URL.Path, "/%d", &code) //nolint:errcheck // 200 otherwise
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(server.Close)
	silent := raw(t, func(c net.Conn) { io.Copy(io.Discard, c) }) //nolint:errcheck // until the prober hangs up
	hangsUp := raw(t, func(net.Conn) {})
	switches := raw(t, func(c net.Conn) {
		c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
	})
	garbage := raw(t, func(c net.Conn) { c.Write([]byte("no such thing\r\n\r\n")) })
	headers := raw(t, func(c net.Conn) {
		c.Write([]byte("HTTP/1.1 200 OK\r\n"))
		for {
			if _, err := c.Write([]byte("X-More: " + strings.Repeat("x", 1000) + "\r\n")); err != nil {
				return
			}
		}
	})
	short := 200 * time.Millisecond

	for _, row := range []struct {
		name, address string
		spec          Spec
		outcome       Outcome
		detail        string
	}{
		{"tcp: it accepts", server.URL, Spec{Mode: TCP}, Pass, ""},
		{"tcp: it refuses", refusing(t), Spec{Mode: TCP}, Fail, "connection refused"},
		{"http: 200", server.URL, Spec{Mode: HTTP}, Pass, ""},
		{"http: 204", server.URL, Spec{Mode: HTTP, Path: "/204"}, Pass, ""},
		{"http: 301 passes and is not followed", server.URL, Spec{Mode: HTTP, Path: "/moved"}, Pass, ""},
		{"http: 399", server.URL, Spec{Mode: HTTP, Path: "/399"}, Pass, ""},
		{"http: 400", server.URL, Spec{Mode: HTTP, Path: "/400"}, Fail, "status 400"},
		{"http: 500", server.URL, Spec{Mode: HTTP, Path: "/500"}, Fail, "status 500"},
		{"http: the Host header as set", server.URL, Spec{Mode: HTTP, Path: "/host", Host: "web.example"}, Pass, ""},
		{"http: the Host header by itself", server.URL, Spec{Mode: HTTP, Path: "/host"}, Fail, "status 404"},
		{"http: a query", server.URL, Spec{Mode: HTTP, Path: "/query?full=1"}, Pass, ""},
		{"http: it hangs", server.URL, Spec{Mode: HTTP, Path: "/hang", Timeout: short}, Fail, "no answer within 200ms"},
		{"http: the body hangs", server.URL, Spec{Mode: HTTP, Path: "/slow", Timeout: short}, Fail, "no answer within 200ms"},
		{"http: a body without end", server.URL, Spec{Mode: HTTP, Path: "/huge"}, Pass, ""},
		{"http: headers without end", headers, Spec{Mode: HTTP}, Fail, "no valid answer"},
		{"http: it refuses", refusing(t), Spec{Mode: HTTP}, Fail, "connection refused"},
		{"http: it accepts and is silent", silent, Spec{Mode: HTTP, Timeout: short}, Fail, "no answer within 200ms"},
		{"http: it hangs up", hangsUp, Spec{Mode: HTTP}, Fail, "closed without an answer"},
		{"http: 101", switches, Spec{Mode: HTTP}, Fail, "status 101"},
		{"http: garbage", garbage, Spec{Mode: HTTP}, Fail, "no valid answer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.spec.Timeout == 0 {
				row.spec.Timeout = 10 * time.Second // not what is tested here, and machines can be slow
			}
			outcome, detail := newAsker().ask(context.Background(), keyOf(t, row.address, row.spec))
			if outcome != row.outcome || detail != row.detail {
				t.Errorf("%v %q, want %v %q", outcome, detail, row.outcome, row.detail)
			}
		})
	}
	if n := redirected.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

func TestOurOwnTroubleIsNoWordOnTheBackend(t *testing.T) {
	for name, err := range map[string]error{
		"no file descriptors": &net.OpError{Op: "dial", Err: &net.DNSError{Err: "x", UnwrapErr: syscall.EMFILE}},
		"no ports":            fmt.Errorf("dial: %w", syscall.EADDRNOTAVAIL),
		"shutdown":            fmt.Errorf("dial: %w", context.Canceled),
	} {
		if got, _ := judge(err, Spec{}); got != Void {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, err := range map[string]error{
		"no route": fmt.Errorf("dial: %w", syscall.EHOSTUNREACH), "reset": fmt.Errorf("read: %w", syscall.ECONNRESET),
		"no network": fmt.Errorf("dial: %w", syscall.ENETUNREACH), "other": errors.New("malformed"),
	} {
		if got, detail := judge(err, Spec{}); got != Fail || detail == "" {
			t.Errorf("%s: %v %q", name, got, detail)
		}
	}
}

// A connection that was closed properly would be read as EOF; a reset leaves no TIME_WAIT behind.
func TestConnectionsAreClosedWithAReset(t *testing.T) {
	l := listen(t)
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_, err = c.Read(make([]byte, 1))
		}
		ended <- err
	}()
	if o, _ := newAsker().ask(context.Background(), keyOf(t, l.Addr().String(), Spec{Mode: TCP})); o != Pass {
		t.Fatal(o)
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend sees %v, want a reset", err)
	}
}

func TestAWordReachesEveryTargetThatSharesIt(t *testing.T) {
	l := listen(t)
	defer l.Close()
	p := newProber()
	up, down := keyOf(t, l.Addr().String(), Spec{Mode: TCP}), keyOf(t, refusing(t), Spec{Mode: TCP})
	p.Set("web/b", []Key{up})
	p.Set("web/a", []Key{up, down})
	p.Set("web/c", []Key{{Address: up.Address, Port: up.Port}}) // off
	run(t, p)

	dirty := map[string]bool{}
	for p.Word(up).Health != Passing || p.Word(down).Health != Failing {
		<-p.Changed()
		for _, target := range p.Take() {
			dirty[target] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"web/a": true, "web/b": true}, dirty); diff != "" {
		t.Errorf("dirty (-want +got):\n%s", diff)
	}
	if w := p.Word(down); w.Detail != "connection refused" || w.Since.IsZero() {
		t.Errorf("word on what refuses: %+v", w)
	}

	p.Set("web/b", nil)
	if got := p.Word(up).Health; got != Passing {
		t.Errorf("%v: what web/a still has lost its history", got)
	}
	p.Set("web/a", []Key{down})
	if got := p.Word(up).Health; got != Unjudged {
		t.Errorf("%v: nobody has it any more", got)
	}
	if err := testutil.CollectAndCompare(p.metrics.targets, strings.NewReader(`
# HELP slicefeed_writer_probe_targets What is probed (address, port and spec, however many Services share it), by the word on it.
# TYPE slicefeed_writer_probe_targets gauge
slicefeed_writer_probe_targets{health="failing"} 1
slicefeed_writer_probe_targets{health="passing"} 0
slicefeed_writer_probe_targets{health="unjudged"} 0
`)); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(p.metrics.probes.WithLabelValues("tcp", "fail")); n < 3 {
		t.Errorf("%v failed probes are counted, want 3", n)
	}
}

// The whole prober in simulated time, with backends that die while it runs.
func TestTheProberKeepsTheSchedulesBounds(t *testing.T) {
	for name, row := range map[string]struct {
		answer, within time.Duration
	}{
		"refuses": {0, 2500 * time.Millisecond},
		"silent":  {time.Second, 4500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProber()
				died := time.Now().Add(10 * time.Second)
				p.ask = func(context.Context, Key) (Outcome, string) {
					if time.Now().Before(died) {
						return Pass, ""
					}
					time.Sleep(row.answer)
					return Fail, "dead"
				}
				var keys []Key
				for n := range 200 {
					keys = append(keys, key(n))
				}
				p.Set("web/a", keys)
				run(t, p)
				time.Sleep(time.Until(died.Add(row.within)))
				synctest.Wait()
				for _, k := range keys {
					if p.Word(k).Health != Failing {
						t.Errorf("%v is not noticed within %v", k.Address, row.within)
					}
				}
			})
		})
	}
}

func TestANewKeyIsProbedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		p.ask = func(context.Context, Key) (Outcome, string) { return Pass, "" }
		run(t, p)
		time.Sleep(time.Minute)
		began := time.Now()
		p.Set("web/a", []Key{key(1)})
		<-p.Changed()
		if took := time.Since(began); took != 0 {
			t.Errorf("judged after %v", took)
		}
	})
}

// Thousands of keys need no more sockets and goroutines than are in flight.
func TestThousandsOfKeysStayWithinTheBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var now, most, asked atomic.Int64
		p.ask = func(context.Context, Key) (Outcome, string) {
			asked.Add(1)
			for n := now.Add(1); ; {
				if old := most.Load(); old >= n || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
			return Pass, ""
		}
		const targets, each = 5, 1000
		for i := range targets {
			var keys []Key
			for n := range each {
				keys = append(keys, key(i*each+n))
			}
			p.Set(fmt.Sprint("web/", i), keys)
		}
		before := runtime.NumGoroutine()
		run(t, p)
		time.Sleep(4 * time.Second)
		if got := runtime.NumGoroutine() - before; got > maxInFlight+2 {
			t.Errorf("%d goroutines", got)
		}
		if most.Load() > maxInFlight {
			t.Errorf("%d in flight", most.Load())
		}
		if want := int64(targets * each * 3); asked.Load() < want { // at once, and within each 2 s
			t.Errorf("%d probes in 4 s, want at least %d", asked.Load(), want)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.schedule.counts[Passing] != targets*each {
			t.Errorf("%d pass", p.schedule.counts[Passing])
		}
	})
}

func TestRunWaitsForItsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var ended atomic.Bool
		p.ask = func(ctx context.Context, _ Key) (Outcome, string) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Store(true)
			return Void, ""
		}
		p.Set("web/a", []Key{key(1)})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || !ended.Load() {
			t.Errorf("%v, ended %v", err, ended.Load())
		}
		if p.Word(key(1)).Health != Unjudged {
			t.Error("a probe that our shutdown cut short judged its backend")
		}
	})
}

func TestModesAreSettings(t *testing.T) {
	for _, m := range []Mode{Off, TCP, HTTP} {
		var back Mode
		if text, err := m.MarshalText(); err != nil || back.UnmarshalText(text) != nil || back != m {
			t.Errorf("%v does not come back", m)
		}
	}
	if _, err := ParseMode("grpc"); err == nil || !strings.Contains(err.Error(), "off, tcp, http") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestSpecsThatCannotWork(t *testing.T) {
	for _, bad := range []Spec{
		{Mode: 9},
		{Mode: HTTP, Path: "healthz"},
		{Mode: HTTP, Path: "http://other.example/"},
		{Mode: HTTP, Host: "two words"},
		{Mode: TCP, Interval: -1},
		{Mode: TCP, Timeout: -1},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	if err := (Spec{Mode: HTTP, Path: "/healthz?a=b", Host: "web.example:8080"}).Validate(); err != nil {
		t.Error(err)
	}
}

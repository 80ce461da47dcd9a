package statuspage

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// runStatus runs the command of a half with a debug address.
func runStatus(t *testing.T, address string, args ...string) (code int, text string) {
	t.Helper()
	component := command.Component[struct{}]{Name: "slicefeed-writer", Standalone: []command.StandaloneCommand{NewCommand("slicefeed-writer", "NAMESPACE/SERVICE")}}
	var out bytes.Buffer
	cmd := component.Command(func(name string) string { return map[string]string{"DEBUG_ADDRESS": address}[name] })
	cmd.SetArgs(append([]string{"status"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		out.WriteString(err.Error())
	}
	return settings.ExitCode(err), out.String()
}

func startServer(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestStatusShowsRunningComponent(t *testing.T) {
	grade := Error
	at := startServer(t, Handler(func(_ time.Time, asked string) Page {
		p := examplePage()
		p.Filter, p.Summary.Severity = asked, grade
		return p
	}, slog.New(slog.DiscardHandler)))
	if code, text := runStatus(t, at); code != 1 || !strings.Contains(text, "WRONG  web/shop  1 address is not written") {
		t.Errorf("something is wrong: exit code %d\n%s", code, text)
	}
	if code, text := runStatus(t, at, "web/shop"); code != 1 || !strings.Contains(text, "Only web/shop is shown.") {
		t.Errorf("one alone: exit code %d\n%s", code, text)
	}
	grade = Warning
	if code, _ := runStatus(t, at); code != 1 {
		t.Errorf("something is to be looked at: exit code %d", code)
	}
	grade = OK
	code, text := runStatus(t, at)
	if code != 0 || strings.Contains(text, "\x1b") {
		t.Errorf("all is well: exit code %d\n%s", code, text)
	}
	_, port, _ := net.SplitHostPort(at)
	for _, listens := range []string{":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		if code, text := runStatus(t, listens); code != 0 {
			t.Errorf("where it listens at %s: exit code %d\n%s", listens, code, text)
		}
	}
}

func TestStatusErrorsNameTheFix(t *testing.T) {
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	free.Close()
	other := examplePage()
	other.Component = "slicefeed-inventory"
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	for name, c := range map[string]struct {
		at   string
		args []string
		code int
		says string
	}{
		"nobody listens":           {nobody, nil, 1, "nobody listens at " + nobody + ": run this where slicefeed-writer runs"},
		"no address":               {"nonsense", nil, 2, `DEBUG_ADDRESS="nonsense": want host:port`},
		"two arguments":            {nobody, []string{"a", "b"}, 2, "[NAMESPACE/SERVICE]"},
		"something else":           {startServer(t, answer("hello")), nil, 1, "does not answer as a slicefeed-writer of this version does"},
		"something without it":     {startServer(t, http.NotFoundHandler()), nil, 1, "answers 404 Not Found to /statusz"},
		"the other half":           {startServer(t, Handler(func(time.Time, string) Page { return other }, slog.New(slog.DiscardHandler))), nil, 1, "slicefeed-inventory listens at"},
		"one that leads to others": {startServer(t, http.RedirectHandler("http://example.com/", http.StatusFound)), nil, 1, "answers 302"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, text := runStatus(t, c.at, c.args...); code != c.code || !strings.Contains(text, c.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, text)
			}
		})
	}
}

func TestFetchStopsWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	if _, err := Fetch(ctx, "slicefeed-writer", at, ""); err == nil {
		t.Error("no error")
	}
}

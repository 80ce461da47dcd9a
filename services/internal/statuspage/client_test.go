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

// runStatus runs the status command with a debug address.
func runStatus(t *testing.T, address string, args ...string) (code int, text string) {
	t.Helper()
	component := command.Component[struct{}]{
		Name:       "slicefeed-writer",
		Standalone: []command.StandaloneCommand{NewCommand("slicefeed-writer", "NAMESPACE/SERVICE")},
	}
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
	severity := Error
	at := startServer(t, Handler(func(_ time.Time, filter string) Page {
		p := examplePage()
		p.Filter, p.Summary.Severity = filter, severity
		return p
	}, slog.New(slog.DiscardHandler)))
	if code, text := runStatus(t, at); code != 1 || !strings.Contains(text, "ERROR  web/shop  1 address out of sync") {
		t.Errorf("an error: exit code %d\n%s", code, text)
	}
	if code, text := runStatus(t, at, "web/shop"); code != 1 || !strings.Contains(text, "Showing only web/shop.") {
		t.Errorf("with a filter: exit code %d\n%s", code, text)
	}
	for format, want := range map[string]string{"json": "{\n  \"component\": \"slicefeed-writer\",\n", "yaml": "at: \"2026-03-01T03:00:00Z\"\ncomponent: slicefeed-writer\n"} {
		if code, text := runStatus(
			t,
			at,
			"-o",
			format,
		); code != 1 || !strings.HasPrefix(text, want) ||
			!strings.HasSuffix(text, "\n"+errProblemsFound.Error()) {
			t.Errorf("%s: exit code %d\n%s", format, code, text)
		}
	}
	severity = Warning
	if code, _ := runStatus(t, at); code != 1 {
		t.Errorf("a warning: exit code %d", code)
	}
	severity = OK
	code, text := runStatus(t, at)
	if code != 0 || strings.Contains(text, "\x1b") {
		t.Errorf("no problem: exit code %d\n%s", code, text)
	}
	_, port, _ := net.SplitHostPort(at)
	for _, listens := range []string{":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		if code, text := runStatus(t, listens); code != 0 {
			t.Errorf("listener at %s: exit code %d\n%s", listens, code, text)
		}
	}
}

func TestStatusErrorsNameTheFix(t *testing.T) {
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := free.Addr().String()
	free.Close()
	other := examplePage()
	other.Component = "slicefeed-inventory"
	respond := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	for name, c := range map[string]struct {
		at   string
		args []string
		code int
		want string
	}{
		"no listener":         {closed, nil, 1, "connection refused at " + closed + "; run this in the Pod of slicefeed-writer"},
		"no address":          {"nonsense", nil, 2, `DEBUG_ADDRESS="nonsense": want host:port`},
		"two arguments":       {closed, []string{"a", "b"}, 2, "[NAMESPACE/SERVICE]"},
		"another program":     {startServer(t, respond("hello")), nil, 1, "is not the status of a slicefeed-writer of this version"},
		"no such page":        {startServer(t, http.NotFoundHandler()), nil, 1, "returned 404 Not Found for /statusz"},
		"the other component": {startServer(t, Handler(func(time.Time, string) Page { return other }, slog.New(slog.DiscardHandler))), nil, 1, "slicefeed-inventory listens at"},
		"a redirect":          {startServer(t, http.RedirectHandler("http://example.com/", http.StatusFound)), nil, 1, "returned 302"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, text := runStatus(t, c.at, c.args...); code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.want, text)
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

package statuspage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Settings say where the running half is.
type Settings struct {
	DebugAddress string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"host:port" help:"the debug listener of the running half, on this machine or in this Pod"`
}

const (
	requestTimeout   = 15 * time.Second
	maxResponseBytes = 64 << 20
)

// NewCommand is the command that shows the page of the half that runs here, in a terminal.
func NewCommand(component, argument string) command.StandaloneCommand {
	return command.NewStandalone("status ["+argument+"]", "Show what the half that runs here knows, what is wrong first", func(ctx context.Context, call command.Invocation[Settings]) error {
		only := ""
		if len(call.Args) > 0 {
			only = call.Args[0]
		}
		p, err := Fetch(ctx, component, call.Config.DebugAddress, only)
		if err != nil {
			return err
		}
		if err := detectTerminal(call.Out).Write(call.Out, p); err != nil {
			return err
		}
		if p.Summary.Severity != OK {
			return errProblemsFound
		}
		return nil
	})
}

var errProblemsFound = errors.New("not all is well")

// Fetch fetches the page of the half that listens at an address.
func Fetch(ctx context.Context, component, address, only string) (*Page, error) {
	at, err := dialAddress(address)
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	where := url.URL{Scheme: "http", Host: at, Path: "/statusz"}
	if only != "" {
		where.RawQuery = url.Values{"only": {only}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), http.NoBody)
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	request.Header.Set("Accept", "application/json")
	client := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true}, // a proxy has no way to our loopback
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, connectError(component, at, err)
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	switch {
	case err != nil:
		return nil, connectError(component, at, err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("what listens at %s answers %s to /statusz: is DEBUG_ADDRESS that of a %s? It says: %s",
			at, response.Status, component, display.Sanitize(string(body[:min(len(body), 200)])))
	}
	p := &Page{}
	if err := json.Unmarshal(body, p); err != nil || p.Component == "" {
		return nil, fmt.Errorf("what listens at %s does not answer as a %s of this version does: is DEBUG_ADDRESS right?", at, component)
	}
	if p.Component != component {
		return nil, fmt.Errorf("%s listens at %s, and this is %s: set DEBUG_ADDRESS", display.Sanitize(p.Component), at, component)
	}
	return p, nil
}

// dialAddress is where to connect to for a listener's address.
func dialAddress(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", &settings.Problem{Setting: "DEBUG_ADDRESS", Value: address, Expected: "host:port"}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

func connectError(component, at string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nobody listens at %s: run this where %s runs and with its DEBUG_ADDRESS, for instance by kubectl exec POD -- /%s status", at, component, component)
	}
	return fmt.Errorf("ask %s at %s: %w", component, at, err)
}

// detectTerminal is what is known of where text goes: colour is for people's eyes only.
func detectTerminal(out io.Writer) Terminal {
	t := Terminal{Width: 80}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		t.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			t.Width = min(width, 120)
		}
	}
	if n, err := strconv.Atoi(strings.TrimSpace(os.Getenv("COLUMNS"))); err == nil {
		t.Width = cmp.Or(max(n, 0), t.Width)
	}
	return t
}

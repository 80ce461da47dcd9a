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
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Settings name the address where the running component listens.
type Settings struct {
	DebugAddress string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"[host]:port" help:"debug listener of the running component, on this machine or in this Pod"`
}

const (
	requestTimeout   = 15 * time.Second
	maxResponseBytes = 64 << 20
)

// NewCommand returns the command that shows the page of the local component in a terminal.
func NewCommand(component, argument string) command.StandaloneCommand {
	return command.NewStandalone(command.Subcommand[Settings]{
		Use: "status [" + argument + "]", Short: "Show the status of the local component, problems first", Formats: true,
		Example: component + " status\n" + component + " status -o json", Failure: "there are problems, or the component does not respond",
		Run: func(ctx context.Context, call command.Invocation[Settings]) error {
			filter := ""
			if len(call.Args) > 0 {
				filter = call.Args[0]
			}
			p, err := Fetch(ctx, component, call.Config.DebugAddress, filter)
			if err != nil {
				return err
			}
			if call.Format.IsTable() {
				err = NewTerminal(call.Out).Write(call.Out, p)
			} else {
				sanitize(reflect.ValueOf(p))
				err = call.Format.Write(call.Out, p)
			}
			if err != nil {
				return err
			}
			if p.Summary.Severity != OK {
				return errProblemsFound
			}
			return nil
		},
	})
}

var errProblemsFound = errors.New("problems found")

// Fetch gets the page of the component that listens at an address.
func Fetch(ctx context.Context, component, address, filter string) (*Page, error) {
	hostPort, err := dialAddress(address)
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target := url.URL{Scheme: "http", Host: hostPort, Path: "/statusz"}
	if filter != "" {
		target.RawQuery = url.Values{"filter": {filter}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	request.Header.Set("Accept", "application/json")
	client := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true}, // no proxy can reach this machine's loopback
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, connectError(component, hostPort, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	switch {
	case err != nil:
		return nil, connectError(component, hostPort, err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s returned %s for /statusz: %s; check that DEBUG_ADDRESS is that of a %s",
			hostPort, response.Status, display.Sanitize(string(body[:min(len(body), 200)])), component)
	}
	p := &Page{}
	if err := json.Unmarshal(body, p); err != nil || p.Component == "" {
		return nil, fmt.Errorf("response of %s is not the status of a %s of this version; check DEBUG_ADDRESS", hostPort, component)
	}
	if p.Component != component {
		return nil, fmt.Errorf("%s listens at %s, want %s; set DEBUG_ADDRESS", display.Sanitize(p.Component), hostPort, component)
	}
	return p, nil
}

// dialAddress returns the address to connect to for the address of a listener.
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

func connectError(component, hostPort string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf(
			"connection refused at %s; run this in the Pod of %s with its DEBUG_ADDRESS, for example kubectl exec POD -- /%s status",
			hostPort,
			component,
			component,
		)
	}
	return fmt.Errorf("get status of %s at %s: %w", component, hostPort, err)
}

// NewTerminal returns the width of the output, and whether it shows colors.
func NewTerminal(out io.Writer) Terminal {
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

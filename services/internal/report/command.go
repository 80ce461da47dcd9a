package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Settings are those of the command status.
type Settings struct {
	DebugAddress string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"[host]:port" help:"debug listener of the running component, on this machine or in this Pod"`
	Watch        bool   `flag:"watch"                                                            help:"print it again every two seconds"                                        flagonly:"true"`
}

const (
	requestTimeout = 15 * time.Second
	watchInterval  = 2 * time.Second
)

// NewCommand returns the command that prints the report of the local component.
func NewCommand(component string) command.StandaloneCommand {
	return command.NewStandalone(command.Subcommand[Settings]{
		Use: "status [FILTER]", Short: "Show the state of the local component, problems first",
		Example: component + " status\n" + component + " status web/shop -o json\n" + component + " status 10.0.1.11 --watch",
		Failure: "there are problems, or the component does not respond",
		Run: func(ctx context.Context, call command.Invocation[Settings]) error {
			filter := ""
			if len(call.Args) > 0 {
				filter = call.Args[0]
			}
			return Repeat(ctx, call.Config.Watch, call.Out, func(out io.Writer) error {
				r, err := Fetch(ctx, component, call.Config.DebugAddress, filter)
				if err != nil {
					return err
				}
				return errors.Join(WriteAs(out, call.Format, r), Err(r))
			})
		},
	})
}

// Err returns ErrProblems unless a report is healthy.
func Err(r Report) error {
	if IsHealthy(r.GetProblems()) {
		return nil
	}
	return ErrProblems
}

// Repeat calls show once, or with watch until ctx is done, and returns its last error.
func Repeat(ctx context.Context, watch bool, out io.Writer, show func(out io.Writer) error) error {
	for {
		err := show(out)
		if !watch || errors.Is(err, settings.ErrConfiguration) {
			return err
		}
		if err != nil && !errors.Is(err, ErrProblems) {
			fmt.Fprintln(out, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(watchInterval):
			fmt.Fprintln(out)
		}
	}
}

// Fetch requests the report of the component whose debug listener has an address.
func Fetch(ctx context.Context, component, address, filter string) (Report, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	address = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, settings.NewConfigError(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := Get(ctx, component, conn, filter)
	message := display.Truncate(display.Sanitize(status.Convert(err).Message()), maxText)
	switch status.Code(err) {
	case codes.OK:
		return r, nil
	case codes.InvalidArgument:
		return nil, settings.NewConfigError(errors.New(message))
	case codes.Unimplemented:
		return nil, fmt.Errorf("no %s of this version listens at %s; check its DEBUG_ADDRESS", component, address)
	default:
		return nil, fmt.Errorf("get report of %s at %s: %s; check that it runs there, with its DEBUG_ADDRESS", component, address, message)
	}
}

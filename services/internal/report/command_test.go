package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// server is a writer with a Service for each page, and a problem in one of them.
type server struct {
	writerv1.UnimplementedWriterReportServiceServer
}

func (server) GetReport(_ context.Context, request *reportv1.GetReportRequest) (*writerv1.WriterReport, error) {
	r := writer()
	switch {
	case request.GetFilter() == "no//filter":
		return nil, status.Error(codes.InvalidArgument, "want NAMESPACE/SERVICE")
	case request.GetFilter() == "web/api":
		r.Problems, r.Services = r.GetProblems()[4:], r.GetServices()[:1]
	case request.GetPageToken() == "":
		r.Services, r.NextPageToken = r.GetServices()[:1], "shop"
	default:
		r.Services = r.GetServices()[1:]
	}
	return r, nil
}

// TestMain runs the tests, or the command status as a process of its own, which sets the loggers of the whole process.
func TestMain(m *testing.M) {
	component := os.Getenv("STATUS_OF")
	if component == "" {
		goleak.VerifyTestMain(m)
	}
	cmd := NewCommand(component)(os.Getenv)
	cmd.SetArgs(os.Args[1:])
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(settings.ExitCode(err))
}

func TestStatusOfRunningComponent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	writerv1.RegisterWriterReportServiceServer(s, server{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	here := l.Addr().String()
	port := here[strings.LastIndex(here, ":"):]
	for _, c := range []struct {
		component, args, address string
		code                     int
		want                     string
	}{
		{Writer, "", here, 1, "web/api"},
		{Writer, "-o json", "0.0.0.0" + port, 1, `"name": "shop"`},
		{Writer, "web/api", port, 0, "Healthy."},
		{Writer, "no//filter", here, 2, "want NAMESPACE/SERVICE"},
		{Writer, "", "nonsense", 2, "DEBUG_ADDRESS"},
		{Inventory, "", here, 1, "no slicefeed-inventory of this version listens at " + here},
		{Writer, "", "127.0.0.1:1", 1, "connection refused"},
	} {
		t.Run(fmt.Sprintf("%s %s at %s", c.component, c.args, c.address), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(c.args)...)
			cmd.Env = append(os.Environ(), "STATUS_OF="+c.component, "DEBUG_ADDRESS="+c.address)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.want, out)
			}
		})
	}
}

func TestWatchesUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		times := 0
		err := Repeat(ctx, true, &out, func(out io.Writer) error {
			fmt.Fprintln(out, "shown")
			if times++; times < 3 {
				return errors.New("refused")
			}
			cancel()
			return ErrProblems
		})
		if want := strings.Repeat("shown\nrefused\n\n", 2) + "shown\n"; out.String() != want || !errors.Is(err, ErrProblems) {
			t.Errorf("%v: %q, want %q", err, out.String(), want)
		}
	})
}

// Package demo shows the main job step by step: real control planes, both components as processes, an emulated cloud, and
// a client that sends requests all the time. Each sentence that it prints has been checked, and the first that is not true
// ends it with an error.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// Command returns the subcommand of lab.
func Command() *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job step by step, on real control planes, in one minute",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), cmd.OutOrStdout(), keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep everything running afterwards, and print how to inspect it")
	return cmd
}

func run(ctx context.Context, out io.Writer, keep bool) (err error) {
	programs, err := controlplane.Build(ctx, out)
	if err != nil {
		return err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return err
	}
	fmt.Fprint(out, opening)
	s := &story{out: out, began: time.Now()}
	if s.pair, err = pair.Start(ctx, pair.Options{
		Programs: programs, Writers: 2,
		Cloud:     pair.CloudOptions{OtherServers: otherServers, PageLimit: pageLimit},
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "1s", "SOURCE_POLL_INTERVAL": "1s", "IONOS_REQUEST_BUDGET": "6000"},
		Writer:    map[string]string{"SHRINK_WINDOW": "2s"}, // workers come and go within seconds of the first decision
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.pair.Stop()) }()
	if file, err := os.Create(filepath.Join(s.pair.Dir(), "lab.log")); err == nil { // closed by our end
		klog.SetSlogLogger(slog.New(slog.NewTextHandler(file, nil))) // what client-go logs about our own watches
	}

	var requests sync.WaitGroup
	defer requests.Wait()
	requesting, stop := context.WithCancel(ctx)
	defer stop()
	s.client = s.pair.NewClient(time.Second / requestsPerSecond)
	s.startClient = func() { requests.Go(func() { _ = s.client.Run(requesting) }) }
	if err := s.play(ctx); err != nil {
		return s.failed(err)
	}
	if err := s.figures(ctx); err != nil || !keep {
		return err
	}
	s.tour(filepath.Dir(programs.Kubectl))
	<-ctx.Done()
	return nil
}

// story is what is up, what was measured, and where that is printed.
type story struct {
	out         io.Writer
	pair        *pair.Pair
	client      *client.Client
	startClient func()

	workers []*pair.Worker  // those that serve
	samples []time.Duration // from a Node's change to the watch event of its slice
	began   time.Time
}

// width is where lines end.
const width = 93

// sayf prints something that takes no time.
func (s *story) sayf(format string, args ...any) {
	for _, line := range wrap(fmt.Sprintf(format, args...), width) {
		fmt.Fprintf(s.out, "   %s\n", line)
	}
}

// tookf prints something that came true, and how long that took.
func (s *story) tookf(d time.Duration, format string, args ...any) {
	lines := wrap(fmt.Sprintf(format, args...), width-12)
	last := len(lines) - 1
	for _, line := range lines[:last] {
		fmt.Fprintf(s.out, "   %s\n", line)
	}
	dots := strings.Repeat(".", max(2, width-12-len([]rune(lines[last]))))
	fmt.Fprintf(s.out, "   %s %s %9s\n", lines[last], dots, short(d))
}

// failed prints what did not come true, and the ends of the logs.
func (s *story) failed(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	s.pair.Keep()
	for _, component := range append([]*pair.Component{s.pair.Inventory}, s.pair.Writers...) {
		fmt.Fprintln(s.out, component.Tail())
	}
	return fmt.Errorf("this did not come true: %w; logs and keys stay in %s", err, s.pair.Dir())
}

// figures are the last lines. Requests that failed because of a wrong slice are an error.
func (s *story) figures(ctx context.Context) error {
	if err := s.client.Settle(ctx); err != nil {
		return err
	}
	writes, err := s.pair.Writes(ctx)
	if err != nil {
		return err
	}
	tally := s.client.Tally()
	slices.Sort(s.samples)
	fmt.Fprintln(s.out, "\nIn figures")
	for _, row := range [][3]string{
		{"requests of the client", strconv.Itoa(tally.Requests), fmt.Sprintf("%d a second, a new connection each", requestsPerSecond)},
		{"failed because of a wrong slice", strconv.Itoa(tally.Wrong), ""},
		{"API writes on EndpointSlices", strconv.Itoa(len(writes)), "by the writers, from the API server's audit log"},
		{"propagation, p50", short(s.samples[len(s.samples)/2]), "from a Node's change in one API server to the watch"},
		{"propagation, worst", short(s.samples[len(s.samples)-1]), "event of its EndpointSlice from the other"},
		{"total time", short(time.Since(s.began)), ""},
	} {
		fmt.Fprintln(s.out, strings.TrimRight(fmt.Sprintf("   %-34s %9s   %s", row[0], row[1], row[2]), " "))
	}
	return s.noneFailed()
}

func (s *story) noneFailed() error {
	if tally := s.client.Tally(); tally.Wrong+tally.Other > 0 {
		return fmt.Errorf("%d requests failed that must not: %s", tally.Wrong+tally.Other, strings.Join(tally.Examples, "; "))
	}
	return nil
}

// tour prints how to inspect what is kept running.
func (s *story) tour(kubectl string) {
	root, _ := pair.Root()
	writers := s.pair.Writers
	fmt.Fprintf(s.out, `
Everything keeps running until you press Ctrl-C here. This opens a shell beside it, in another terminal:

   nsenter --user --net --preserve-credentials -t %d env PATH=%s:%s:$PATH KUBECONFIG=%s sh

   kubectl --context consuming -n %s get endpointslices,events,leases
   kubectl --context secured taint node %s %s=:NoSchedule
   kubectl slicefeed status --inventory-address %s --writer-address %s,%s
   curl -s -X POST %s/lab/faults -d '{"kind":"503"}'    # the cloud fails; -X DELETE ends that
   curl -s http://%s/metrics

Logs, keys and kubeconfigs are in %s.
`, os.Getpid(), filepath.Join(root, ".bin"), kubectl, s.pair.Secured.AdminKubeconfig()+":"+s.pair.Consuming.AdminKubeconfig(),
		pair.Namespace, s.workers[0].Name, pair.DrainTaint, s.pair.Inventory.DebugAddress(), writers[1].DebugAddress(),
		writers[0].DebugAddress(), s.pair.Cloud.SideDoor, s.pair.Inventory.AdminAddress(), s.pair.Dir())
}

// short prints a duration as people would.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// wrap breaks a text into lines of at most so many characters.
func wrap(text string, limit int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > limit:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

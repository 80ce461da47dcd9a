package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/node"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// shared is the one world of all tests: a pair of control planes takes longer to start than most
// tests to run.
var shared *World

func TestMain(m *testing.M) {
	containers := os.Getenv("SLICEFEED_VERIFY") == "1"
	if containers {
		if err := node.Missing(); err != nil {
			fmt.Fprintln(os.Stdout, "not run: both charts on nodes with containerd:", err)
			return
		}
	}
	if !netns.Inside() { // inside there is no network
		_, err := Definitions(context.Background())
		_, other := schemas(context.Background())
		if err := errors.Join(err, other); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if !containers {
		Main(runner{m})
	}
	if err := node.Enter(context.Background(), pair.Addresses()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runner{m}.Run())
}

type runner struct{ m *testing.M }

// Run runs the tests between the start and the end of the world.
func (r runner) Run() int {
	if err := startWorld(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := r.m.Run()
	if code != 0 {
		shared.Keep()
		fmt.Fprintln(os.Stderr, "everything is left in", shared.Pair.Dir())
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func startWorld() error {
	bin, err := pair.Halves()
	if err != nil {
		return err
	}
	programs, err := controlplane.Build(context.Background(), os.Stderr)
	if err != nil {
		return err
	}
	options := Options{Programs: programs, Bin: bin}
	if os.Getenv("SLICEFEED_VERIFY") == "1" {
		if options.Images, err = node.Images(); err != nil {
			return err
		}
	}
	shared, err = Start(context.Background(), options)
	return err
}

// stage is the world as one test sees it.
type stage struct {
	*World

	t *testing.T
}

func enter(t *testing.T) *stage { return &stage{shared, t} }

// step is a part of a test that the later parts build upon.
func (s *stage) step(name string, play func(*stage)) {
	s.t.Helper()
	began := time.Now()
	if !s.t.Run(name, func(t *testing.T) { play(&stage{s.World, t}) }) {
		s.t.FailNow()
	}
	s.t.Logf("%s: %s", name, time.Since(began).Round(10*time.Millisecond))
}

const patience = 60 * time.Second

func (s *stage) ctx() context.Context {
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), patience, fmt.Errorf("not within %s", patience))
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// run runs a script that has to work.
func (s *stage) run(script string) string {
	s.t.Helper()
	out, err := s.Run(s.ctx(), script)
	s.must(err)
	return out
}

func (s *stage) until(what string, yes func() bool) {
	s.t.Helper()
	ctx := s.ctx()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("waited until %s: %v", what, context.Cause(ctx))
		}
	}
}

func (s *stage) pods(side string) []corev1.Pod {
	s.t.Helper()
	all, err := s.Pods(s.ctx(), side)
	s.must(err)
	return all
}

// alive says of each Pod how often its container was started: what must not change if nothing is
// to be restarted.
func (s *stage) alive(side string) string {
	s.t.Helper()
	var all []string
	for _, p := range s.pods(side) {
		all = append(all, fmt.Sprintf("%s %d", p.Name, p.Status.ContainerStatuses[0].RestartCount))
	}
	return strings.Join(all, ", ")
}

// last is the last byte of the next worker's address.
var last = 10

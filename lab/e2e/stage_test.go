// Package e2e has the pair on real control planes: etcd, kube-apiserver with RBAC, both
// halves as processes built with the race detector, mutual TLS, the cloud API over HTTPS.
// The tests promise to see only what an operator could see, to wait for events instead of
// sleeping, and to leave nothing of one test to the next; they refuse to repeat what a pure
// core's own tests show.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// shared is the one pair of all tests: two control planes take longer to start than most
// tests to run.
var shared *pair.Pair

// bin is where the halves are.
var bin string

func TestMain(m *testing.M) { pair.Main(runner{m}) }

type runner struct{ m *testing.M }

// Run runs the tests between the start and the end of the pair.
func (r runner) Run() int {
	if err := startPair(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := r.m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func startPair() error {
	var err error
	if bin, err = pair.Halves(); err != nil {
		return err
	}
	if os.Getenv("GORACE") == "" { // the halves get it too: without it each end takes a second
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			return err
		}
	}
	programs, err := controlplane.Build(context.Background(), os.Stderr)
	if err != nil {
		return err
	}
	shared, err = pair.Start(context.Background(), pair.Options{
		Programs: programs, Bin: bin, Writers: 2, Cloud: pair.CloudOptions{OtherServers: 20, PageLimit: 10},
		// Everything else that has to do with time is at its default, but for the shrink window.
		// Listing every second needs more requests than a cloud should be asked for.
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "1s", "SOURCE_POLL_INTERVAL": "1s", "IONOS_REQUEST_BUDGET": "6000"},
		// A new leader lets nobody leave on the feed's word for a whole window, and each test has a new
		// leader: a minute each. Tests of that guard set it.
		Writer: map[string]string{"SHRINK_WINDOW": "0"},
	})
	return err
}

// patience is how long anything may take, unless a test says otherwise: an idle machine needs a
// fraction of it.
const patience = 90 * time.Second

// stage is the pair as one test has it: no Node, no slice, no Lease, one Service, and
// halves that do not run yet.
type stage struct {
	*pair.Pair

	t       *testing.T
	service *corev1.Service
	writers []*pair.Half // those that take part

	logs     map[*pair.Half]int64 // where this test's part of each log begins
	patience time.Duration
}

// script is what a test wants to be different.
type script struct {
	inventory, writer map[string]string
	writers           int // 0: one
	service           func(*corev1.Service)
}

// enter clears the stage and builds up what the script says. Start starts the halves.
func enter(t *testing.T, sc script) *stage {
	t.Helper()
	s := &stage{Pair: shared, t: t, logs: map[*pair.Half]int64{}, patience: patience}
	s.writers = s.Writers[:max(1, sc.writers)]
	s.clear()
	for _, half := range s.halves() {
		if info, err := os.Stat(half.Log()); err == nil {
			s.logs[half] = info.Size()
		}
	}
	s.with(s.Inventory, sc.inventory)
	for _, writer := range s.Writers {
		s.with(writer, sc.writer)
	}
	s.createService(sc.service)
	t.Cleanup(func() {
		for _, half := range s.halves() {
			if err := half.Kill(); err != nil {
				t.Errorf("%s did not live to the end of the test: %v", half.Name, err)
			}
			s.readLog(half)
		}
	})
	return s
}

// step is a part of a test that the later parts build upon: when it fails, the test ends.
func (s *stage) step(name string, play func(*stage)) {
	s.t.Helper()
	ok := s.t.Run(name, func(t *testing.T) {
		inner := *s
		inner.t = t
		play(&inner)
	})
	if !ok {
		s.t.FailNow()
	}
}

func (s *stage) halves() []*pair.Half { return append([]*pair.Half{s.Inventory}, s.Writers...) }

// with gives a half settings for this test only.
func (s *stage) with(half *pair.Half, settings map[string]string) {
	before := map[string]string{}
	for _, line := range half.Env() {
		name, value, _ := strings.Cut(line, "=")
		before[name] = value
	}
	for name, value := range settings {
		half.Set(name, value)
		s.t.Cleanup(func() { half.Set(name, before[name]) })
	}
}

// readLog fails the test for what no log may ever say.
func (s *stage) readLog(half *pair.Half) {
	text := s.log(half)
	for _, bad := range []string{"DATA RACE", "panic"} {
		if at := strings.Index(text, bad); at >= 0 {
			s.t.Errorf("the log of %s says %q:\n%s", half.Name, bad, text[max(0, at-500):min(len(text), at+6000)])
		}
	}
	if s.t.Failed() {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		s.t.Logf("%s said last:\n%s", half.Name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

// log is what a half has written in this test.
func (s *stage) log(half *pair.Half) string {
	raw, err := os.ReadFile(half.Log())
	if err != nil {
		return ""
	}
	return string(raw[min(s.logs[half], int64(len(raw))):])
}

// clear takes away what another test left.
func (s *stage) clear() {
	s.t.Helper()
	ctx := s.ctx()
	s.Cloud.ClearFaults()
	all := metav1.ListOptions{}
	at := metav1.DeleteOptions{}
	s.must(s.SecuredClient().CoreV1().Nodes().DeleteCollection(ctx, at, all))
	client := s.ConsumingClient()
	if err := client.CoreV1().Services(pair.Namespace).Delete(ctx, pair.Service, at); err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	s.must(client.DiscoveryV1().EndpointSlices(pair.Namespace).DeleteCollection(ctx, at, all))
	s.must(client.CoordinationV1().Leases(pair.Namespace).DeleteCollection(ctx, at, all))
	s.slices("none is left", func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 0 })
	s.until("nobody holds the Lease", func() bool { return s.Leader() == "" })
}

// createService makes the Service, changed as told; nil: as it is.
func (s *stage) createService(change func(*corev1.Service)) {
	s.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: pair.Service},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(pair.NodePort),
		}}},
	}
	if change != nil {
		change(service)
	}
	var err error
	s.service, err = s.ConsumingClient().CoreV1().Services(pair.Namespace).Create(s.ctx(), service, metav1.CreateOptions{})
	s.must(err)
}

// start starts the inventory and the writers that take part; the first one leads.
func (s *stage) start() {
	s.t.Helper()
	s.must(s.Inventory.Start(s.ctx())) // first: who finds nobody waits a while before trying again
	s.startWriters()
}

func (s *stage) startWriters() {
	s.t.Helper()
	for _, writer := range s.writers {
		s.must(writer.Start(s.ctx()))
		_, err := s.WaitLeading(s.ctx())
		s.must(err)
	}
}

// ctx ends when patience does, or with the test.
func (s *stage) ctx() context.Context {
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), s.patience, fmt.Errorf("not within %s", s.patience))
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// last is the last byte of the next worker's address: none is used twice.
var last = 10

func nextAddress() netip.Addr {
	last++
	return netip.AddrFrom4([4]byte{10, 0, 1, byte(last)})
}

// machine makes a worker that is in the cloud and answers, and is no Node yet. What is not
// told is chosen.
func (s *stage) machine(options pair.WorkerOptions) *pair.Worker {
	s.t.Helper()
	if !options.Address.IsValid() {
		options.Address = nextAddress()
	}
	if options.Name == "" {
		options.Name = "worker-" + strings.ReplaceAll(options.Address.String(), ".", "-")
	}
	w, err := s.AddWorker(options)
	s.must(err)
	s.t.Cleanup(func() {
		if err := w.Destroy(); err != nil {
			s.t.Error(err)
		}
	})
	return w
}

// join lets so many new workers join, and waits until they serve.
func (s *stage) join(n int) []*pair.Worker {
	s.t.Helper()
	var all []*pair.Worker
	for range n {
		w := s.machine(pair.WorkerOptions{})
		s.must(w.Join(s.ctx()))
		all = append(all, w)
	}
	s.slices("the new workers serve", pair.Are(pair.Ready, addresses(all)...))
	return all
}

func addresses(workers []*pair.Worker) []netip.Addr {
	var all []netip.Addr
	for _, w := range workers {
		all = append(all, w.Address)
	}
	return all
}

// slices waits until the slices are as told, and says how long that took.
func (s *stage) slices(what string, are func([]*discoveryv1.EndpointSlice) bool) time.Duration {
	s.t.Helper()
	took, err := s.WaitSlices(s.ctx(), are)
	if err != nil {
		s.t.Fatalf("waited until %s: %v", what, err)
	}
	return took
}

// writes is how many answered writes of slices there have been by the writers.
func (s *stage) writes() int {
	s.t.Helper()
	all, err := s.Writes(s.ctx())
	s.must(err)
	return len(all)
}

// quiet wants no write on any slice while something happens.
func (s *stage) quiet(during func()) {
	s.t.Helper()
	before := s.writes()
	during()
	if n := s.writes() - before; n != 0 {
		s.t.Errorf("%d writes of slices, though nothing had changed; now they say: %s", n, pair.Describe(s.Now()))
	}
}

// event waits for an Event of this test's Service.
func (s *stage) event(reason string) *eventsv1.Event {
	s.t.Helper()
	found, err := s.WaitEvent(s.ctx(), func(e *eventsv1.Event) bool {
		return e.Regarding.UID == s.service.UID && e.Reason == reason
	})
	if err != nil {
		s.t.Fatalf("waited for an Event %s: %v", reason, err)
	}
	return found
}

// until asks again and again: for what tells nobody when it changes.
func (s *stage) until(what string, yes func() bool) {
	s.t.Helper()
	s.every(20*time.Millisecond, what, yes)
}

// called is until for what is asked by a gRPC call: a client may make ten a second.
func (s *stage) called(what string, yes func() bool) {
	s.t.Helper()
	s.every(150*time.Millisecond, what, yes)
}

func (s *stage) every(pause time.Duration, what string, yes func() bool) {
	s.t.Helper()
	ctx := s.ctx()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("waited until %s: %v", what, context.Cause(ctx))
		}
	}
}

// metric waits until a metric, told with its labels, has a value.
func (s *stage) metric(half *pair.Half, name string, is func(float64) bool) {
	s.t.Helper()
	var value float64
	var err error
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s of %s is %v (%v)", name, half.Name, value, err)
		}
	}()
	s.until(name+" of "+half.Name+" is as expected", func() bool {
		value, err = half.Metric(s.t.Context(), name)
		return err == nil && is(value)
	})
}

func equals(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
func atLeast(want float64) func(float64) bool {
	return func(v float64) bool { return v >= want }
}

// The metrics that are asked for most.
const (
	sourceConnected = `slicefeed_writer_source_connected{source="default"}`
	sourceSynced    = `slicefeed_writer_source_synced{source="default"}`
	sourceMembers   = `slicefeed_writer_source_members{source="default"}`
	managed         = `slicefeed_writer_target_managed{namespace="web",service="shop"}`
	leads           = `slicefeed_writer_leader`
)

func partSynced(part string) string {
	return `slicefeed_inventory_source_synced{part="` + part + `"}`
}

// told waits until the writer has heard all that was told before: the feed is in order, so
// a worker that joins now, and serves, comes after it. It returns that worker.
func (s *stage) told() *pair.Worker {
	s.t.Helper()
	return s.join(1)[0]
}

// is compares what the slices say of an address now.
func (s *stage) is(want pair.Condition, w *pair.Worker) {
	s.t.Helper()
	if got := pair.Conditions(s.Now())[w.Address]; got != want {
		s.t.Errorf("%s is %q in the slices, want %q", w.Address, got, want)
	}
}

// restart ends a half in order and starts it again.
func (s *stage) restart(half *pair.Half) {
	s.t.Helper()
	s.must(half.Terminate(20 * time.Second))
	s.must(half.Start(s.ctx()))
}

// keep puts files back as they are now when the test is over.
func (s *stage) keep(files ...string) {
	s.t.Helper()
	for _, file := range files {
		before, err := os.ReadFile(file)
		s.must(err)
		s.t.Cleanup(func() { _ = os.WriteFile(file, before, 0o600) })
	}
}

// slice is the one slice that there is.
func (s *stage) slice() *discoveryv1.EndpointSlice {
	s.t.Helper()
	all := s.Now()
	if len(all) != 1 {
		var names bytes.Buffer
		for _, one := range all {
			fmt.Fprintln(&names, one.Name)
		}
		s.t.Fatalf("%d slices, want one:\n%s", len(all), names.String())
	}
	return all[0]
}

// Package e2e sets up end-to-end tests: two real control planes (etcd, kube-apiserver with RBAC), the cloud API over HTTPS,
// and both components as processes with their own credentials. Each package of tests below it has control planes of its own,
// in a network namespace of its own, so packages run side by side. Tests see what an operator can see, wait for events
// instead of sleeping, and leave nothing behind for the next test.
package e2e

import (
	"context"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// shared is the pair of all tests of a package: it takes longer to start than most tests to run.
var shared *pair.Pair

// Bin is the directory of the components.
var Bin string

// Main is the body of a package's TestMain.
func Main(m *testing.M) { pair.Main(runner{m}) }

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
	if Bin, err = pair.Programs(); err != nil {
		return err
	}
	if os.Getenv("GORACE") == "" { // otherwise each end of a component takes a second
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			return err
		}
	}
	programs, err := controlplane.Build(context.Background(), os.Stderr)
	if err != nil {
		return err
	}
	shared, err = pair.Start(context.Background(), pair.Options{
		Programs: programs, Bin: Bin, Writers: 2, Cloud: pair.CloudOptions{OtherServers: 20, PageLimit: 10},
		// All other settings of time have their defaults, except the shrink window. Listing every second takes more
		// requests than a cloud should get.
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "1s", "SOURCE_POLL_INTERVAL": "1s", "IONOS_REQUEST_BUDGET": "6000"},
		// In a new leader's first window no endpoint leaves on an inventory's report, and each test has a new leader: that
		// would take a minute each time. Tests of that guard set it.
		Writer: map[string]string{"SHRINK_WINDOW": "0"},
	})
	return err
}

// IsLong reports whether every test is wanted, as by make verify.
func IsLong() bool { return os.Getenv("SLICEFEED_LONG") == "1" }

// Long skips a test that takes minutes, or that another test of the gate resembles: make verify runs it.
func Long(t *testing.T) {
	t.Helper()
	if !IsLong() {
		t.Skip("make verify runs it: SLICEFEED_LONG=1")
	}
}

// Patience is how long anything may take, unless a test sets another limit: an idle machine needs a fraction of it.
const Patience = 90 * time.Second

// Setup is the pair as one test has it: no Node, no slice, no Lease, one Service, and components that do not run yet.
type Setup struct {
	*pair.Pair

	T        *testing.T
	Service  *corev1.Service
	Patience time.Duration

	replicas int                       // of the writer
	logs     map[*pair.Component]int64 // where this test's part of each log begins
}

// Options are what a test wants to be different.
type Options struct {
	Inventory, Writer map[string]string // settings
	Writers           int               // replicas; 0: one
	Service           func(*corev1.Service)
}

// New removes what the last test left, and sets up what the options say. StartAll starts the components.
func New(t *testing.T, options Options) *Setup {
	t.Helper()
	s := &Setup{Pair: shared, T: t, replicas: max(1, options.Writers), logs: map[*pair.Component]int64{}, Patience: Patience}
	s.clear()
	for _, component := range s.Components() {
		if info, err := os.Stat(component.Log()); err == nil {
			s.logs[component] = info.Size()
		}
	}
	s.With(s.Inventory, options.Inventory)
	for _, writer := range s.Writers {
		s.With(writer, options.Writer)
	}
	s.RecreateService(options.Service)
	t.Cleanup(func() {
		for _, component := range s.Components() {
			if err := component.Kill(); err != nil {
				t.Errorf("%s did not run until the end of the test: %v", component.Name, err)
			}
			s.CheckLog(component)
		}
	})
	return s
}

// NewLabeled is New for a writer that knows its Services by their label only. The own Service is one of them.
func NewLabeled(t *testing.T, options Options) *Setup {
	t.Helper()
	settings := map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}
	maps.Copy(settings, options.Writer)
	options.Writer = settings
	change := options.Service
	options.Service = func(service *corev1.Service) {
		InClass(service)
		if change != nil {
			change(service)
		}
	}
	return New(t, options)
}

// Step runs a part of a test that later parts depend on: if it fails, the test ends.
func (s *Setup) Step(name string, play func(*Setup)) {
	s.T.Helper()
	ok := s.T.Run(name, func(t *testing.T) {
		inner := *s
		inner.T = t
		play(&inner)
	})
	if !ok {
		s.T.FailNow()
	}
}

// Components returns all processes of the pair.
func (s *Setup) Components() []*pair.Component {
	return append([]*pair.Component{s.Inventory}, s.Writers...)
}

// With gives a component settings for this test only.
func (s *Setup) With(component *pair.Component, settings map[string]string) {
	before := map[string]string{}
	for _, line := range component.Env() {
		name, value, _ := strings.Cut(line, "=")
		before[name] = value
	}
	for name, value := range settings {
		component.Set(name, value)
		s.T.Cleanup(func() { component.Set(name, before[name]) })
	}
}

// CheckLog fails the test for what no log may contain.
func (s *Setup) CheckLog(component *pair.Component) {
	text := s.LogOf(component)
	for _, bad := range []string{"DATA RACE", "panic"} {
		if at := strings.Index(text, bad); at >= 0 {
			s.T.Errorf("the log of %s says %q:\n%s", component.Name, bad, text[max(0, at-500):min(len(text), at+6000)])
		}
	}
	if s.T.Failed() {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		s.T.Logf("%s said last:\n%s", component.Name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

// LogOf is what a component has logged in this test.
func (s *Setup) LogOf(component *pair.Component) string {
	raw, err := os.ReadFile(component.Log())
	if err != nil {
		return ""
	}
	return string(raw[min(s.logs[component], int64(len(raw))):])
}

// clear removes what another test left.
func (s *Setup) clear() {
	s.T.Helper()
	ctx, all, at := s.Ctx(), metav1.ListOptions{}, metav1.DeleteOptions{}
	s.Cloud.ClearFaults()
	s.Must(s.SecuredClient().CoreV1().Nodes().DeleteCollection(ctx, at, all))
	client := s.ConsumingClient()
	for _, namespace := range []string{pair.Namespace, pair.OtherNamespace} {
		services, err := client.CoreV1().Services(namespace).List(ctx, all)
		s.Must(err)
		for _, service := range services.Items {
			if err := client.CoreV1().Services(namespace).Delete(ctx, service.Name, at); !apierrors.IsNotFound(err) {
				s.Must(err)
			}
		}
		s.Must(client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, at, all))
	}
	s.Must(client.CoordinationV1().Leases(pair.Namespace).DeleteCollection(ctx, at, all))
	s.Await("none is left", None)
	s.Until("the Lease is not held", func() bool { return s.Leader() == "" })
}

// RecreateService creates the own Service, with a change if there is one.
func (s *Setup) RecreateService(change func(*corev1.Service)) {
	s.T.Helper()
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
	s.Service, err = s.ConsumingClient().CoreV1().Services(pair.Namespace).Create(s.Ctx(), service, metav1.CreateOptions{})
	s.Must(err)
}

// StartAll starts the inventory and the writers that take part; the first one leads.
func (s *Setup) StartAll() {
	s.T.Helper()
	s.Must(s.Inventory.Start(s.Ctx())) // first: a writer that finds none waits before it tries again
	s.StartWriters()
}

// Replicas are the writers that take part.
func (s *Setup) Replicas() []*pair.Component { return s.Writers[:s.replicas] }

// StartWriters starts the writers that take part; the first one leads.
func (s *Setup) StartWriters() {
	s.T.Helper()
	for _, writer := range s.Replicas() {
		s.Must(writer.Start(s.Ctx()))
		_, err := s.WaitLeading(s.Ctx())
		s.Must(err)
	}
}

// Ctx ends after Patience, or with the test.
func (s *Setup) Ctx() context.Context {
	ctx, cancel := context.WithTimeoutCause(s.T.Context(), s.Patience, fmt.Errorf("not within %s", s.Patience))
	s.T.Cleanup(cancel)
	return ctx
}

// Must ends the test if there is an error.
func (s *Setup) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// last is the last byte of the newest worker's address: none is used twice.
var last = 10

// NextAddress returns an address that no worker has had.
func NextAddress() netip.Addr {
	last++
	return netip.AddrFrom4([4]byte{10, 0, 1, byte(last)})
}

// Machine makes a worker that is in the cloud and answers, and is no Node yet.
func (s *Setup) Machine(options pair.WorkerOptions) *pair.Worker {
	s.T.Helper()
	if !options.Address.IsValid() {
		options.Address = NextAddress()
	}
	if options.Name == "" {
		options.Name = "worker-" + strings.ReplaceAll(options.Address.String(), ".", "-")
	}
	w, err := s.AddWorker(options)
	s.Must(err)
	s.T.Cleanup(func() {
		if err := w.Destroy(); err != nil {
			s.T.Error(err)
		}
	})
	return w
}

// Join has new workers join, and waits until they serve.
func (s *Setup) Join(n int) []*pair.Worker {
	s.T.Helper()
	var all []*pair.Worker
	for range n {
		w := s.Machine(pair.WorkerOptions{})
		s.Must(w.Join(s.Ctx()))
		all = append(all, w)
	}
	s.Await("the new workers serve", pair.Are(pair.Ready, Addresses(all)...))
	return all
}

// Addresses are those of the workers.
func Addresses(workers []*pair.Worker) []netip.Addr {
	var all []netip.Addr
	for _, w := range workers {
		all = append(all, w.Address)
	}
	return all
}

// Await waits for the slices of the own Service, and returns how long that took.
func (s *Setup) Await(what string, are func([]*discoveryv1.EndpointSlice) bool) time.Duration {
	s.T.Helper()
	took, err := s.WaitSlices(s.Ctx(), are)
	if err != nil {
		s.T.Fatalf("waited until %s: %v", what, err)
	}
	return took
}

// WriteCount is how many writes of slices by the writers have been answered.
func (s *Setup) WriteCount() int {
	s.T.Helper()
	all, err := s.Writes(s.Ctx())
	s.Must(err)
	return len(all)
}

// ExpectNoWrites wants no write of any slice while something happens.
func (s *Setup) ExpectNoWrites(during func()) {
	s.T.Helper()
	before := s.WriteCount()
	during()
	if n := s.WriteCount() - before; n != 0 {
		s.T.Errorf("%d writes of slices, though nothing had changed; now they say: %s", n, pair.Describe(s.Now()))
	}
}

// AwaitEvent waits for an Event on the own Service.
func (s *Setup) AwaitEvent(reason string) *eventsv1.Event {
	s.T.Helper()
	found, err := s.WaitEvent(s.Ctx(), func(e *eventsv1.Event) bool {
		return e.Regarding.UID == s.Service.UID && e.Reason == reason
	})
	if err != nil {
		s.T.Fatalf("waited for an Event %s: %v", reason, err)
	}
	return found
}

// Until polls what cannot be watched.
func (s *Setup) Until(what string, yes func() bool) {
	s.T.Helper()
	s.every(20*time.Millisecond, what, yes)
}

// UntilCalled is Until by gRPC calls: a client may make ten a second.
func (s *Setup) UntilCalled(what string, yes func() bool) {
	s.T.Helper()
	s.every(150*time.Millisecond, what, yes)
}

func (s *Setup) every(pause time.Duration, what string, yes func() bool) {
	s.T.Helper()
	ctx := s.Ctx()
	if wait.PollUntilContextCancel(ctx, pause, true, func(context.Context) (bool, error) { return yes(), nil }) != nil {
		s.T.Fatalf("waited until %s: %v", what, context.Cause(ctx))
	}
}

// AwaitMetric waits until a metric, named with its labels, has a value.
func (s *Setup) AwaitMetric(component *pair.Component, name string, is func(float64) bool) {
	s.T.Helper()
	var value float64
	var err error
	defer func() {
		if s.T.Failed() {
			s.T.Logf("%s of %s is %v (%v)", name, component.Name, value, err)
		}
	}()
	s.Until(name+" of "+component.Name+" is as expected", func() bool {
		value, err = component.Metric(s.T.Context(), name)
		return err == nil && is(value)
	})
}

// Equals accepts one value.
func Equals(want float64) func(float64) bool { return func(v float64) bool { return v == want } }

// AtLeast accepts a value and all above it.
func AtLeast(want float64) func(float64) bool {
	return func(v float64) bool { return v >= want }
}

// The metrics that are read most.
const (
	SourceConnected = `slicefeed_writer_source_connected{source="default"}`
	SourceSynced    = `slicefeed_writer_source_synced{source="default"}`
	SourceMembers   = `slicefeed_writer_source_members{source="default"}`
	Managed         = `slicefeed_writer_target_managed{namespace="web",service="shop"}`
	Leads           = `slicefeed_writer_leader`
)

// PartSynced is whether a part of the inventory's source is synced.
func PartSynced(part string) string {
	return `slicefeed_inventory_source_synced{part="` + part + `"}`
}

// CatchUp waits until the writer has received all that was published before: the feed is in order, so a worker that joins
// now, and serves, comes after it. It returns that worker.
func (s *Setup) CatchUp() *pair.Worker {
	s.T.Helper()
	return s.Join(1)[0]
}

// Expect compares the condition of a worker in the slices now.
func (s *Setup) Expect(want pair.Condition, w *pair.Worker) {
	s.T.Helper()
	if got := pair.Conditions(s.Now())[w.Address]; got != want {
		s.T.Errorf("%s is %q in the slices, want %q", w.Address, got, want)
	}
}

// Restart terminates a component and starts it again.
func (s *Setup) Restart(component *pair.Component) {
	s.T.Helper()
	s.Must(component.Terminate(20 * time.Second))
	s.Must(component.Start(s.Ctx()))
}

// RestoreFiles restores files at the end of the test as they are now.
func (s *Setup) RestoreFiles(files ...string) {
	s.T.Helper()
	for _, file := range files {
		before, err := os.ReadFile(file)
		s.Must(err)
		s.T.Cleanup(func() { _ = os.WriteFile(file, before, 0o600) })
	}
}

// Slice is the only slice of the own Service.
func (s *Setup) Slice() *discoveryv1.EndpointSlice {
	s.T.Helper()
	all := s.Now()
	if len(all) != 1 {
		s.T.Fatalf("%d slices, want one: %s", len(all), pair.Describe(all))
	}
	return all[0]
}

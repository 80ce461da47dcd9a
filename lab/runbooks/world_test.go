package runbooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/charts"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestMain(m *testing.M) {
	if !netns.Inside() { // inside there is no network
		_, built := controlplane.BuildPrograms(context.Background(), os.Stderr, managers...)
		_, err := charts.Definitions(context.Background())
		if err := errors.Join(built, err); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	charts.Main(m)
}

// world is what the readers of all pages work in, one after the other: each page leaves it as
// the next one needs it. Commands are run in its Dir.
type world struct {
	*charts.World

	t       *testing.T
	workers map[string]*pair.Worker
}

func begin(t *testing.T) *world {
	t.Helper()
	root, err := pair.Root()
	must(t, err)
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	must(t, err)
	w := &world{t: t, workers: map[string]*pair.Worker{}}
	w.World, err = charts.Start(t.Context(), charts.Options{Programs: programs})
	must(t, err)
	t.Cleanup(func() { w.ended(w.Stop()) })
	must(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(w.Dir(), "deploy")))
	must(t, w.newToken(w.Cloud.Token))
	w.followServices()
	return w
}

// followServices stands in for the controller that has a load balancer made for a Service and
// tells it the address. It follows them from the beginning, since helm --wait waits for that.
func (w *world) followServices() {
	w.t.Helper()
	services, err := w.SecuredClient().CoreV1().Services(charts.InventoryNamespace).Watch(w.t.Context(), metav1.ListOptions{})
	must(w.t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for event := range services.ResultChan() {
			s, ok := event.Object.(*corev1.Service)
			if !ok || event.Type == watch.Deleted || s.Spec.Type != corev1.ServiceTypeLoadBalancer ||
				len(s.Status.LoadBalancer.Ingress) > 0 {
				continue
			}
			if err := w.giveBalancer(w.t.Context(), s); err != nil {
				w.t.Error(err)
			}
		}
	}()
	w.t.Cleanup(func() { services.Stop(); <-over })
}

func (w *world) giveBalancer(ctx context.Context, s *corev1.Service) error {
	if err := w.Balance(ctx); err != nil {
		return err
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: pair.InventoryAddress.String()}}
	if _, err := w.SecuredClient().CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("tell Service %s its address: %w", s.Name, err)
	}
	return nil
}

// join makes a worker of the secured cluster. One that is not on the LAN has no private NIC before
// attach gives it one.
func (w *world) join(ctx context.Context, name, address string, onLAN bool, labels map[string]string) error {
	all := map[string]string{corev1.LabelTopologyZone: ""} // the pages show nodes that have no zone
	maps.Copy(all, labels)
	options := pair.WorkerOptions{Name: name, Address: netip.MustParseAddr(address), Labels: all}
	if !onLAN {
		options.NICAfter = time.Hour // which no test lasts
	}
	made, err := w.AddWorker(options)
	if err != nil {
		return err
	}
	w.workers[name] = made
	return made.Join(ctx)
}

// attach puts a worker's server on the private LAN.
func (w *world) attach(name string) error {
	m := w.workers[name]
	return w.Cloud.AddNIC(pair.Datacenter, m.Server, ionosapi.NIC{LAN: pair.PrivateLAN, IPs: []string{m.Address.String()}})
}

// destroy takes machines away, as the cloud does once their Nodes have left.
func (w *world) destroy(names ...string) error {
	for _, name := range names {
		if err := w.workers[name].Destroy(); err != nil {
			return err
		}
		delete(w.workers, name)
	}
	return nil
}

// names are those of all workers that there are.
func (w *world) names() []string { return slices.Sorted(maps.Keys(w.workers)) }

// set changes how workers' backends behave.
func (w *world) set(mode backend.Mode, names ...string) error {
	for _, name := range names {
		if err := w.workers[name].Set(mode); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) ended(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read runs a page, or a part of it, and tells the world's part of it by name.
func (w *world) read(t *testing.T, path, heading string, events map[string]func(context.Context) error) {
	t.Helper()
	steps, err := Read(path, heading)
	must(t, err)
	w.follow(t, path, heading == "", steps, events)
}

// readCommands runs the commands of a page whose outputs are examples.
func (w *world) readCommands(t *testing.T, path string, events map[string]func(context.Context) error) {
	t.Helper()
	steps, err := ReadCommands(path)
	must(t, err)
	w.follow(t, path, true, steps, events)
}

// follow takes the steps of a page. One of docs/operate needs the commands that the runbooks define first.
func (w *world) follow(t *testing.T, path string, operates bool, steps []Step, events map[string]func(context.Context) error) {
	t.Helper()
	shell, err := Open(w.Dir(), w.Env())
	must(t, err)
	defer func() { w.ended(shell.Close()) }()
	if operates {
		first, err := Read(docs+"README.md", "First")
		must(t, err)
		steps = slices.Concat(first, steps)
	}
	happened := map[string]bool{}
	for _, step := range steps {
		begun := time.Now()
		if step.Event != "" {
			event, ok := events[step.Event]
			if !ok {
				t.Fatalf("%s, line %d: nothing here makes it happen that %q", path, step.Line, step.Event)
			}
			happened[step.Event] = true
			if err := event(t.Context()); err != nil {
				t.Fatalf("%s, line %d: %s: %v", path, step.Line, step.Event, err)
			}
		} else if err := shell.Do(t.Context(), step); err != nil {
			t.Fatalf("%s, %v%s", path, err, w.look())
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Logf("line %d took %s: %s", step.Line, took.Round(100*time.Millisecond), firstLine(step))
		}
	}
	for name := range events {
		if !happened[name] {
			t.Errorf("%s: no line says that %q", path, name)
		}
	}
}

func firstLine(s Step) string {
	line, _, _ := strings.Cut(s.Event+s.Command, "\n")
	return line
}

// look shows what a person would look at next.
func (w *world) look() string {
	printed, _ := w.Run(context.Background(), `
kubectl --context secured get nodes,pods,services -A || :
kubectl --context consuming get pods,endpointslices,events -A || :
kubectl --context secured -n slicefeed logs deploy/slicefeed-inventory --tail=20 || :
kubectl --context consuming -n web logs deploy/slicefeed-writer --tail=20 || :
`)
	return "\n\nafter that:\n" + printed
}

// edit replaces text in a file of the reader's.
func (w *world) edit(name, from, to string) error {
	path := filepath.Join(w.Dir(), name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), from) {
		return fmt.Errorf("edit %s: it does not say %q", name, from)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(raw), from, to, 1)), 0o600)
}

// run runs commands that no page shows, where those of the pages are run.
func (w *world) run(ctx context.Context, commands string) error {
	_, err := w.Run(ctx, "cd \"$DIR\"\n"+commands)
	return err
}

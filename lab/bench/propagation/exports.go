package propagation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// exportsPlan is how much is measured of exported Services.
type exportsPlan struct {
	services int
	samples  int           // of changes on each side
	rounds   int           // of changes whose CPU is added up, at least 2
	changes  int           // in a round; an even number
	restFor  time.Duration // without changes: at least a minute, in which the inventory verifies each Service once
}

var (
	wholeExports = exportsPlan{services: 200, samples: 600, rounds: 8, changes: 200, restFor: 62 * time.Second}
	quickExports = exportsPlan{services: 50, samples: 60, rounds: 2, changes: 60, restFor: 5 * time.Second}
)

// exportedEndpoints is how many each Service has. The first of them is changed.
const exportedEndpoints = 2

// exportNamespace is where the exported Services are. The inventory's manifest names it.
const exportNamespace = "shop"

var manyInventoryAddress = netip.MustParseAddr("10.0.0.33")

// RunExports is the section of the bench about exported Services. Two sides share the API servers, with an inventory
// and a writer each: one side has a single Service. So both are measured in turn.
func RunExports(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	writer := map[string]string{
		"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": "", "WATCH_NAMESPACES": pair.Namespace, "INVENTORY_EXPORTS_SERVICES": "true",
	}
	maps.Copy(writer, bare)
	p, err := pair.Start(ctx, pair.Options{
		Programs: programs, Writer: writer,
		Inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE_SELECTOR": exportLabel + "=one"},
	})
	if err != nil {
		return nil, err
	}
	plan := wholeExports
	if env.Quick {
		plan = quickExports
	}
	e := &exportsBench{exportsPlan: plan, pair: p}
	if err := errors.Join(e.measure(ctx, env.Out), p.Stop()); err != nil {
		return nil, err
	}
	return []*report.Part{e.part()}, nil
}

const exportLabel = "slicefeed.dev/export"

// exportsBench is both sides, and what was measured.
type exportsBench struct {
	exportsPlan

	pair               *pair.Pair
	secured, consuming *kubernetes.Clientset
	one, many          *exportSide
	cost               cost // of all changes in the rounds
}

// exportSide is an inventory that exports Services, and its writer.
type exportSide struct {
	name       string // the value of the label that exports its Services, and the first part of their names
	services   int
	namespace  string // of its targets
	class      string
	components [2]*pair.Half // inventory and writer

	sight  *sight
	took   []sample
	cpu    [2][]float64     // milliseconds of CPU of a change beyond that at rest, in each round
	rest   [2]float64       // of a core, without changes
	memory [2]figures.Usage // after all changes
}

func (e *exportsBench) measure(ctx context.Context, out io.Writer) (err error) {
	if e.secured, err = pair.FastClient(e.pair.Secured); err != nil {
		return err
	}
	if e.consuming, err = pair.FastClient(e.pair.Consuming); err != nil {
		return err
	}
	e.one = &exportSide{
		name: "one", services: 1, namespace: pair.Namespace, class: "default",
		components: [2]*pair.Half{e.pair.Inventory, e.pair.Writers[0]},
	}
	if err := e.addMany(ctx); err != nil {
		return err
	}
	if err := e.allow(ctx); err != nil {
		return err
	}
	for _, side := range []*exportSide{e.one, e.many} {
		if err := e.start(ctx, out, side); err != nil {
			return fmt.Errorf("start with %d Services: %w", side.services, err)
		}
		defer side.sight.close()
	}
	e.pair.StopWatching()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"changes in turn", e.inTurn},
		{"at rest", e.atRest},
		{"changes of one side at a time", e.alone},
	} {
		fmt.Fprintln(out, step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	for _, side := range []*exportSide{e.one, e.many} {
		fmt.Fprintf(
			out,
			"%d Services: p50 %s; CPU of a change %.2f, %.2f ms; at rest %.2f %%, %.2f %%; resident %d, %d MB\n",
			side.services,
			ms(figures.Percentile(times(side.took), 50)),
			middle(side.cpu[0]),
			middle(side.cpu[1]),
			side.rest[0]*100,
			side.rest[1]*100,
			side.memory[0].Resident>>20,
			side.memory[1].Resident>>20,
		)
	}
	return nil
}

// addMany prepares the side with many Services.
func (e *exportsBench) addMany(ctx context.Context) error {
	inventory, err := e.pair.AddSource("many", manyInventoryAddress)
	if err != nil {
		return err
	}
	kubeconfig, err := e.pair.Secured.ServiceAccountKubeconfig(ctx, "slicefeed", "slicefeed-inventory")
	if err != nil {
		return err
	}
	if err := e.pair.OpenNamespace(ctx, pair.OtherNamespace); err != nil {
		return err
	}
	e.many = &exportSide{name: "many", services: e.services, namespace: pair.OtherNamespace, class: "many"}
	writer, err := e.pair.AddRival(ctx, e.many.class, e.many.namespace)
	if err != nil {
		return err
	}
	e.many.components = [2]*pair.Half{inventory.Half, writer}
	for i, settings := range []map[string]string{{
		"SOURCE_KIND": "service", "SOURCE_SERVICE_SELECTOR": exportLabel + "=" + e.many.name, "SECURED_KUBECONFIG": kubeconfig,
		"INVENTORY_FILE_PATH": "", "SOURCE_POLL_INTERVAL": "", "SECURED_SUBNET_CIDR": pair.Subnet,
	}, {
		"CLASS": e.many.class, "WATCH_NAMESPACES": e.many.namespace,
		"INVENTORY_ADDRESS": netip.AddrPortFrom(inventory.Address, pair.LinkPort).String(), "INVENTORY_SAN": inventory.SAN, "TLS_PEER_CA_FILE": inventory.CA,
	}} {
		for name, value := range settings {
			e.many.components[i].Set(name, value)
		}
	}
	return nil
}

// allow lets both inventories read the exported Services, and both writers see them.
func (e *exportsBench) allow(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: exportNamespace}}
	if _, err := e.secured.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	root, err := pair.Root()
	if err != nil {
		return err
	}
	clients := fmt.Sprintf("clients:\n- {san: %q, role: subscriber, services: [%s/*]}\n", pair.WriterSAN, exportNamespace)
	for _, side := range []*exportSide{e.one, e.many} {
		if err := os.WriteFile(filepath.Join(side.components[0].Dir(), "clients.yaml"), []byte(clients), 0o600); err != nil {
			return err
		}
	}
	return e.pair.Secured.Apply(ctx, filepath.Join(root, "deploy", "manifests", "inventory-rbac-exports.yaml"))
}

func (s *exportSide) service(i int) string { return fmt.Sprintf("%s-%03d", s.name, i) }

// start makes the Services of a side and starts its components, until all are served.
func (e *exportsBench) start(ctx context.Context, out io.Writer, side *exportSide) (err error) {
	all, creating := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i := range side.services {
		all.Go(func() error { return e.create(creating, side, side.service(i)) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	began := time.Now()
	for _, component := range side.components {
		if err := component.Start(ctx); err != nil {
			return err
		}
	}
	if err := waitServed(ctx, e.consuming, side.namespace, side.services, exportedEndpoints); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d exported Services are served after %s\n", side.services, time.Since(began).Round(100*time.Millisecond))
	side.sight, err = newSight(ctx, e.pair, side.namespace)
	return err
}

// create makes a Service with its slice in the secured cluster, and the target in the other.
func (e *exportsBench) create(ctx context.Context, side *exportSide, name string) error {
	service := func(meta metav1.ObjectMeta) *corev1.Service {
		meta.Name = name
		return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(pair.NodePort),
		}}}}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(pair.NodePort))}},
	}
	address := netip.MustParsePrefix(pair.Subnet).Addr()
	for i := range exportedEndpoints {
		address = address.Next()
		pod := fmt.Sprintf("%s-%d", name, i)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: exportNamespace, Name: pod, UID: types.UID("uid-of-" + pod)},
		})
	}
	exported := service(metav1.ObjectMeta{Labels: map[string]string{exportLabel: side.name}})
	if _, err := e.secured.CoreV1().Services(exportNamespace).Create(ctx, exported, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := e.secured.DiscoveryV1().EndpointSlices(exportNamespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return err
	}
	target := service(metav1.ObjectMeta{
		Labels:      map[string]string{"slicefeed.dev/class": side.class},
		Annotations: map[string]string{"slicefeed.dev/source-service": exportNamespace + "/" + name},
	})
	_, err := e.consuming.CoreV1().Services(side.namespace).Create(ctx, target, metav1.CreateOptions{})
	return err
}

// change toggles the first endpoint of a Service: each change there and back, all over the Services.
func (e *exportsBench) change(ctx context.Context, side *exportSide, number int) (sample, error) {
	if err := pause(ctx); err != nil {
		return sample{}, err
	}
	const stride = 37 // prime to all sizes
	name, ready := side.service(number/2*stride%side.services), number%2 == 1
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/endpoints/0/conditions/ready","value":%t}]`, ready)
	start := time.Now()
	if _, err := e.secured.DiscoveryV1().
		EndpointSlices(exportNamespace).
		Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return sample{}, err
	}
	address := netip.MustParsePrefix(pair.Subnet).Addr().Next().String()
	seen, err := side.sight.until(ctx, 1, func(slice *discoveryv1.EndpointSlice) bool {
		return slice.Labels[discoveryv1.LabelServiceName] == name && lists(slice, address, ready)
	})
	if err != nil {
		return sample{}, fmt.Errorf("change %d of %s: %w", number, name, err)
	}
	return sample{start, seen[0]}, nil
}

// inTurn makes a change of each side, by chance of either first.
func (e *exportsBench) inTurn(ctx context.Context) error {
	for i := range warmUp + e.samples {
		sides := []*exportSide{e.one, e.many}
		rand.Shuffle(len(sides), func(a, b int) { sides[a], sides[b] = sides[b], sides[a] })
		for _, side := range sides {
			took, err := e.change(ctx, side, i)
			if err != nil {
				return err
			}
			if i >= warmUp {
				side.took = append(side.took, took)
			}
		}
	}
	return nil
}

// atRest measures both sides at the same time.
func (e *exportsBench) atRest(ctx context.Context) error {
	sides := []*exportSide{e.one, e.many}
	var before [2][2]figures.Usage
	start := time.Now()
	for i, side := range sides {
		var err error
		if before[i], err = usageOf(side.components); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.restFor):
	}
	for i, side := range sides {
		now, err := usageOf(side.components)
		if err != nil {
			return err
		}
		for c := range side.rest {
			side.rest[c] = (now[c].CPU - before[i][c].CPU).Seconds() / time.Since(start).Seconds()
		}
	}
	return nil
}

// alone adds up what rounds of changes cost the components of either side, and how many writes they take.
func (e *exportsBench) alone(ctx context.Context) error {
	counted, err := counts(ctx, e.consuming)
	if err != nil {
		return err
	}
	for range e.rounds {
		for _, side := range []*exportSide{e.one, e.many} {
			if err := e.round(ctx, side); err != nil {
				return err
			}
		}
	}
	now, err := counts(ctx, e.consuming)
	e.cost = now.minus(counted)
	return err
}

func (e *exportsBench) round(ctx context.Context, side *exportSide) error {
	before, err := usageOf(side.components)
	if err != nil {
		return err
	}
	start := time.Now()
	for i := range e.changes {
		if _, err := e.change(ctx, side, i); err != nil {
			return err
		}
	}
	took := time.Since(start)
	now, err := usageOf(side.components)
	side.addRound(before, now, took, e.changes)
	return err
}

// addRound adds what a change took beyond what the same time at rest takes.
func (s *exportSide) addRound(before, now [2]figures.Usage, took time.Duration, changes int) {
	s.memory = now
	for c := range s.cpu {
		spent := (now[c].CPU - before[c].CPU).Seconds() - took.Seconds()*s.rest[c]
		s.cpu[c] = append(s.cpu[c], spent*1000/float64(changes))
	}
}

package propagation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const perSlice = 100 // endpoints, as the writer has it

// plan is for how much is measured with one number of Services.
type plan struct {
	services int
	nodes    []int
	samples  int // of changes by either side, at each number of nodes
	rounds   int // of changes whose CPU and writes are added up
	changes  int // in a round
	starts   int // of the inventory
}

func plans(quick bool) (growing, many plan) {
	if quick {
		return plan{services: 1, nodes: []int{10, 100, 1000}, samples: 60, rounds: 2, changes: 60, starts: 1},
			plan{services: 100, nodes: []int{50}, samples: 10, rounds: 1, changes: 10}
	}
	return plan{services: 1, nodes: []int{10, 100, 1000, 5000}, samples: 300, rounds: 3, changes: 200, starts: 5},
		plan{services: 500, nodes: []int{50}, samples: 30, rounds: 1, changes: 30}
}

// measureSizes measures more nodes of one Service on one pair, and more Services on another.
func measureSizes(ctx context.Context, env report.Env, programs controlplane.Programs) ([]*report.Part, error) {
	growing, many := plans(env.Quick)
	var started *started
	grown, err := growing.measure(ctx, env.Out, programs, func(p *pair.Pair) (err error) {
		started, err = starts(ctx, env.Out, p, growing.starts)
		return err
	})
	if err != nil {
		return nil, err
	}
	services, err := many.measure(ctx, env.Out, programs, func(*pair.Pair) error { return nil })
	if err != nil {
		return nil, err
	}
	return []*report.Part{growthPart(growing, grown, started), servicesPart(many, services[0])}, nil
}

// measure returns what was measured at each number of nodes. then is called at the largest.
func (of plan) measure(
	ctx context.Context,
	out io.Writer,
	programs controlplane.Programs,
	then func(*pair.Pair) error,
) (all []*size, err error) {
	p, err := pair.Start(ctx, pair.Options{
		Programs:  programs,
		Inventory: map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
		Writer: map[string]string{
			"SECURED_SUBNET_CIDR": pair.HerdSubnet, "HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0",
			"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": "", "WATCH_NAMESPACES": pair.Namespace,
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	s := &scene{plan: of, pair: p}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	for _, nodes := range of.nodes {
		start := time.Now()
		if err := s.grow(ctx, nodes); err != nil {
			return nil, fmt.Errorf("grow to %d nodes: %w", nodes, err)
		}
		fmt.Fprintf(out, "%d Services of %d nodes are served after %s\n", of.services, nodes, time.Since(start).Round(100*time.Millisecond))
		at, err := s.sample(ctx)
		if err != nil {
			return nil, fmt.Errorf("%d Services of %d nodes: %w", of.services, nodes, err)
		}
		fmt.Fprintf(out, "  %s\n", at)
		all = append(all, at)
	}
	return all, then(p)
}

// scene is a pair with nodes and Services.
type scene struct {
	plan

	pair   *pair.Pair
	herd   *pair.Herd
	client *kubernetes.Clientset // of the consuming cluster
}

func (s *scene) prepare(ctx context.Context) (err error) {
	if s.herd, err = s.pair.NewHerd(); err != nil {
		return err
	}
	if s.client, err = pair.FastClient(s.pair.Consuming); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floorNamespace}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	all, creating := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i := range s.services {
		all.Go(func() error {
			_, err := s.client.CoreV1().Services(pair.Namespace).Create(creating, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{
					Name:   fmt.Sprintf("shop-%03d", i),
					Labels: map[string]string{"slicefeed.dev/class": "default"},
				},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
					Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(pair.NodePort),
				}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return errors.Join(all.Wait(), s.pair.StartHalves(ctx))
}

// grow adds nodes, and waits until each Service has all of them. It polls: nothing is measured yet.
func (s *scene) grow(ctx context.Context, nodes int) error {
	if err := s.herd.Grow(ctx, nodes); err != nil {
		return err
	}
	return waitServed(ctx, s.client, pair.Namespace, s.services, nodes)
}

// waitServed polls until so many Services of a namespace have so many ready endpoints each.
func waitServed(ctx context.Context, client *kubernetes.Clientset, namespace string, services, endpoints int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := map[string]int{}
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready[list.Items[i].Labels[discoveryv1.LabelServiceName]]++
				}
			}
		}
		served := 0
		for _, n := range ready {
			if n == endpoints {
				served++
			}
		}
		if served == services {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d Services have all endpoints: %w", served, services, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// size is what was measured at one.
type size struct {
	nodes             int
	floor, pair       [][]time.Duration // of each change: when each Service's slice showed it, ascending
	inventory, writer []float64         // milliseconds of CPU of a change, in each round
	memory            [2]figures.Usage  // of inventory and writer, after the changes
	idle              figures.Usage     // of the writer, before them
	cost              cost              // of all changes in the rounds
	changes           int               // in the rounds
}

func (s *size) String() string {
	return fmt.Sprintf("p50 %.2f ms, floor %.2f ms; CPU of a change: inventory %.2f ms, writer %.2f ms; resident: %d MB, %d MB",
		medianOf(s.pair), medianOf(s.floor), least(s.inventory), least(s.writer), s.memory[0].Resident>>20, s.memory[1].Resident>>20)
}

// sample toggles nodes of the herd and the floor's own in turn, and then the herd's alone.
func (s *scene) sample(ctx context.Context) (*size, error) {
	found := &size{nodes: len(s.herd.Nodes())}
	name := fmt.Sprintf("floor-%d", found.nodes)
	node := s.herd.NewNode(name, floorAddress)
	if err := node.Join(ctx, floorLabels()); err != nil {
		return nil, err
	}
	reader, err := pair.FastClient(s.pair.Secured)
	if err != nil {
		return nil, err
	}
	var slices []*discoveryv1.EndpointSlice
	for i := range s.services {
		slices = append(slices, newSlice(fmt.Sprintf("%s-%03d", name, i), min(found.nodes, perSlice)))
	}
	// An administrator's requests pass the API server's priority and fairness: the floor is as fast as can be.
	floor, err := newFloor(ctx, s.pair, name, reader, s.client, slices...)
	if err != nil {
		return nil, err
	}
	ours, err := newSight(ctx, s.pair, pair.Namespace)
	if err != nil {
		return nil, err
	}
	defer ours.close()
	usage, err := s.usage()
	if err != nil {
		return nil, err
	}
	found.idle = usage[1]
	measuring, stop := context.WithCancel(ctx)
	loops, measuring := errgroup.WithContext(measuring)
	loops.Go(func() error { return floor.run(measuring) })
	loops.Go(func() error {
		defer stop()
		return s.inTurn(measuring, found, floor, node, ours)
	})
	if err := loops.Wait(); err != nil {
		return nil, err
	}
	return found, s.alone(ctx, found, ours)
}

// toggled is the node that a change is about: each one there and back, all over the herd.
func (s *scene) toggled(change int) (node *pair.Node, ready bool) {
	const stride = 37 // prime to all sizes
	nodes := s.herd.Nodes()
	return nodes[change/2*stride%len(nodes)], change%2 == 1
}

func (s *scene) inTurn(ctx context.Context, found *size, floor *floor, floorNode *pair.Node, ours *sight) error {
	for i := range warmUp + s.samples {
		node, ready := s.toggled(i)
		least, err := floor.sight.toggle(ctx, floorNode, ready, s.services)
		if err != nil {
			return fmt.Errorf("sample %d of the floor: %w", i, err)
		}
		took, err := ours.toggle(ctx, node, ready, s.services)
		if err != nil {
			return fmt.Errorf("sample %d of the pair: %w", i, err)
		}
		if i >= warmUp {
			found.floor, found.pair = append(found.floor, least), append(found.pair, took)
		}
	}
	return nil
}

// alone adds up what rounds of changes cost both components and the API server, one change after the other.
func (s *scene) alone(ctx context.Context, found *size, ours *sight) error {
	counted, err := counts(ctx, s.client)
	if err != nil {
		return err
	}
	for range s.rounds {
		before, err := s.usage()
		if err != nil {
			return err
		}
		for i := range s.changes {
			node, ready := s.toggled(i)
			if _, err := ours.toggle(ctx, node, ready, s.services); err != nil {
				return fmt.Errorf("change %d: %w", i, err)
			}
		}
		if found.memory, err = s.usage(); err != nil {
			return err
		}
		each := func(component int) float64 {
			return figures.Milliseconds((found.memory[component].CPU - before[component].CPU) / time.Duration(s.changes))
		}
		found.inventory, found.writer = append(found.inventory, each(0)), append(found.writer, each(1))
	}
	if err := s.replaceNodes(ctx, ours); err != nil {
		return err
	}
	now, err := counts(ctx, s.client)
	found.cost, found.changes = now.minus(counted), s.rounds*s.changes+2*replaced
	return err
}

// replaced is how many nodes leave and join again at each size.
const replaced = 5

// replaceNodes has nodes leave and join again, for what that writes, and then waits for a write too many.
func (s *scene) replaceNodes(ctx context.Context, ours *sight) error {
	for i := range replaced {
		node, _ := s.toggled(2 * i)
		address := node.Address.String()
		if err := s.pair.SecuredClient().CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		_, err := ours.until(ctx, s.services, func(slice *discoveryv1.EndpointSlice) bool { return isGone(slice, address) })
		if err == nil {
			err = node.Join(ctx)
		}
		if err == nil {
			_, err = ours.until(ctx, s.services, func(slice *discoveryv1.EndpointSlice) bool { return isReady(slice, address) })
		}
		if err != nil {
			return fmt.Errorf("replace %s: %w", node.Name, err)
		}
	}
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// usage is that of the inventory and the writer.
func (s *scene) usage() ([2]figures.Usage, error) {
	return usageOf([2]*pair.Half{s.pair.Inventory, s.pair.Writers[0]})
}

func usageOf(components [2]*pair.Half) (both [2]figures.Usage, err error) {
	for i, component := range components {
		if both[i], err = figures.UsageOf(component.PID()); err != nil {
			return both, err
		}
	}
	return both, nil
}

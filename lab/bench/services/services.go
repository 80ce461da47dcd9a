// Package services measures many Services that follow one source: how long one node's change
// takes until all of their slices are right, against a bare client that writes as many slices of
// the same size. It promises to count what both cost the API server by that one's own metrics.
package services

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

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// plan is how much is measured.
type plan struct {
	services, nodes int
	changes         int // of each kind
}

const (
	warmUp   = 4  // changes of each kind before those that count
	underWay = 64 // requests of the bare client, as many as the writer's
)

func planned(quick bool) plan {
	if quick {
		return plan{services: 100, nodes: 50, changes: 10}
	}
	return plan{services: 500, nodes: 50, changes: 30}
}

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
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
	found, err := measure(ctx, env.Out, p, planned(env.Quick))
	return found, errors.Join(err, p.Stop())
}

// scene is what a run has.
type scene struct {
	plan   plan
	out    io.Writer
	pair   *pair.Pair
	herd   *pair.Herd
	client *kubernetes.Clientset // of the consuming cluster
	ours   *floor.Sight
	floor  *bare
}

func measure(ctx context.Context, out io.Writer, p *pair.Pair, plan plan) ([]*report.Part, error) {
	s := &scene{plan: plan, out: out, pair: p}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	defer s.ours.Close()
	defer s.floor.sight.Close()
	found := &findings{plan: plan}
	var err error
	if found.idle, err = figures.UsageOf(p.Writers[0].PID()); err != nil {
		return nil, err
	}
	for i := range warmUp + plan.changes {
		ready := i%2 == 1
		floor, err := s.counted(ctx, func(ctx context.Context) (*spread, error) { return s.floor.change(ctx, ready) })
		if err != nil {
			return nil, fmt.Errorf("change %d of the bare client: %w", i, err)
		}
		ours, err := s.counted(ctx, func(ctx context.Context) (*spread, error) { return s.change(ctx, i) })
		if err != nil {
			return nil, fmt.Errorf("change %d of the pair: %w", i, err)
		}
		if i < warmUp {
			continue
		}
		found.floor, found.pair = append(found.floor, floor), append(found.pair, ours)
		if n := i - warmUp + 1; n%10 == 0 {
			fmt.Fprintf(out, "%d of %d changes: the last took %s, the bare client %s\n", n, plan.changes,
				ours.all().Round(time.Millisecond), floor.all().Round(time.Millisecond))
		}
	}
	found.after, err = figures.UsageOf(p.Writers[0].PID())
	return []*report.Part{found.part()}, err
}

// prepare has the Services served, and as many slices that nobody looks at.
func (s *scene) prepare(ctx context.Context) (err error) {
	if s.herd, err = s.pair.NewHerd(); err != nil {
		return err
	}
	if s.client, err = pair.FastClient(s.pair.Consuming); err != nil {
		return err
	}
	if err := s.herd.Grow(ctx, s.plan.nodes); err != nil {
		return err
	}
	all, joining := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i := range s.plan.services {
		all.Go(func() error { return s.serve(joining, fmt.Sprintf("shop-%03d", i)) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	began := time.Now()
	if err := s.pair.StartHalves(ctx); err != nil {
		return err
	}
	if err := s.served(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d Services of %d endpoints are served %s after the halves' start\n",
		s.plan.services, s.plan.nodes, time.Since(began).Round(100*time.Millisecond))
	if s.floor, err = newBare(ctx, s.pair, s.client, s.plan); err != nil {
		return err
	}
	s.ours, err = floor.NewSight(ctx, s.pair, pair.Namespace)
	return err
}

// serve makes a Service of the writer's class.
func (s *scene) serve(ctx context.Context, name string) error {
	_, err := s.client.CoreV1().Services(pair.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slicefeed.dev/class": "default"}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(pair.NodePort),
		}}},
	}, metav1.CreateOptions{})
	return err
}

// served waits until each Service has a slice with all nodes. It asks now and then: the writer has
// just begun, and nothing is measured.
func (s *scene) served(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		list, err := s.client.DiscoveryV1().EndpointSlices(pair.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("wait until all Services are served: %w", err)
		}
		full := 0
		for i := range list.Items {
			if len(list.Items[i].Endpoints) == s.plan.nodes {
				full++
			}
		}
		if full == s.plan.services {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until all Services are served: %d of %d are: %w", full, s.plan.services, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// spread is when the slices were right after a change, from its beginning, and what that cost.
type spread struct {
	each []time.Duration // in their order
	cost cost
}

func (s *spread) all() time.Duration { return s.each[len(s.each)-1] }

// change toggles a node, and waits until all slices of the Services say so.
func (s *scene) change(ctx context.Context, i int) (*spread, error) {
	nodes := s.herd.Nodes()
	node, ready := nodes[i/2%len(nodes)], i%2 == 1
	address := node.Address.String()
	began := time.Now()
	if err := node.SetReady(ctx, ready); err != nil {
		return nil, err
	}
	return follow(ctx, s.ours, began, s.plan.services, func(slice *discoveryv1.EndpointSlice) bool { return floor.Says(slice, address, ready) })
}

// follow notes when each of so many slices was first as told.
func follow(ctx context.Context, sight *floor.Sight, began time.Time, slices int, is func(*discoveryv1.EndpointSlice) bool) (*spread, error) {
	found, seen := &spread{}, map[string]struct{}{}
	_, _, err := sight.Until(ctx, slices, func(slice *discoveryv1.EndpointSlice) bool {
		if !is(slice) {
			return false
		}
		if _, again := seen[slice.Name]; !again {
			seen[slice.Name] = struct{}{}
			found.each = append(found.each, time.Since(began))
		}
		return true
	})
	return found, err
}

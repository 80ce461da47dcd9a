package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// sight is what both sides are measured with: a bare watch of one namespace's slices.
type sight struct{ events <-chan watch.Event }

func newSight(ctx context.Context, plane *controlplane.ControlPlane, namespace string) (*sight, error) {
	client, err := newClient(plane)
	if err != nil {
		return nil, err
	}
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := client.DiscoveryV1().EndpointSlices(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	return &sight{w.ResultChan()}, nil
}

// toggler is a Node whose readiness can be patched.
type toggler interface {
	SetReady(ctx context.Context, ready bool) error
}

// measure patches the Node and returns how long after the patch was sent the watch told
// that the address is ready, or is not.
func (s *sight) measure(ctx context.Context, node toggler, address netip.Addr, ready bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select { // not a wait for anything: see pause
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(pause):
	}
	began := time.Now()
	if err := node.SetReady(ctx, ready); err != nil {
		return 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no event says ready=%t of %s: %w", ready, address, ctx.Err())
		case event, ok := <-s.events:
			at := time.Now()
			if !ok {
				return 0, errors.New("the watch of the slices ended")
			}
			if slice, ok := event.Object.(*discoveryv1.EndpointSlice); ok && says(slice, address.String(), ready) {
				return at.Sub(began), nil
			}
		}
	}
}

// says reports whether the slice lists the address with that readiness.
func says(slice *discoveryv1.EndpointSlice, address string, ready bool) bool {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.Addresses[0] == address && e.Conditions.Ready != nil {
			return *e.Conditions.Ready == ready
		}
	}
	return false
}

// newClient is an administrator's client that is as fast as they come.
func newClient(plane *controlplane.ControlPlane) (*kubernetes.Clientset, error) {
	config := rest.CopyConfig(plane.AdminConfig())
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

package propagation

import (
	"context"
	"errors"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// sight is a bare watch of one namespace's slices, the same for the pair and the floor. It is resumed when the API
// server ends it, as it does with a watch that has fallen behind.
type sight struct{ slices watch.Interface }

// newSight begins to watch. What is there already is not seen.
func newSight(ctx context.Context, p *pair.Pair, namespace string) (*sight, error) {
	client, err := pair.FastClient(p.Consuming)
	if err != nil {
		return nil, err
	}
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	again := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return client.DiscoveryV1().EndpointSlices(namespace).Watch(ctx, options)
	}}
	w, err := retry.NewRetryWatcherWithContext(ctx, list.ResourceVersion, again)
	if err != nil {
		return nil, err
	}
	return &sight{w}, nil
}

func (s *sight) close() { s.slices.Stop() }

// seenWithin is for one change on a machine that does everything at once.
const seenWithin = time.Minute

// until reads events until so many slices were as described, and returns when each of them was first.
func (s *sight) until(ctx context.Context, slices int, is func(*discoveryv1.EndpointSlice) bool) (at []time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	done := make(map[string]struct{}, slices)
	for len(done) < slices {
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%d of %d slices are as expected: %w", len(done), slices, ctx.Err())
		case event, ok := <-s.slices.ResultChan():
			now := time.Now()
			if !ok {
				return at, errors.New("the watch of the slices ended")
			}
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok {
				return at, fmt.Errorf("the watch of the slices: %w", apierrors.FromObject(event.Object))
			}
			if _, again := done[slice.Name]; !again && is(slice) {
				done[slice.Name] = struct{}{}
				at = append(at, now)
			}
		}
	}
	return at, nil
}

// pause lies between samples, so that none meets the end of the one before.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// toggle changes the Node's readiness and returns how long after the patch was sent each of the slices showed it.
func (s *sight) toggle(ctx context.Context, node *pair.Node, ready bool, slices int) (took []time.Duration, err error) {
	if err := pause(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := node.SetReady(ctx, ready); err != nil {
		return nil, err
	}
	address := node.Address.String()
	at, err := s.until(ctx, slices, func(slice *discoveryv1.EndpointSlice) bool { return lists(slice, address, ready) })
	if err != nil {
		return nil, fmt.Errorf("wait until the slices list %s with ready=%t: %w", address, ready, err)
	}
	for _, t := range at {
		took = append(took, t.Sub(start))
	}
	return took, nil
}

// lists reports whether the slice lists the address with that readiness.
func lists(slice *discoveryv1.EndpointSlice, address string, ready bool) bool {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.Addresses[0] == address && e.Conditions.Ready != nil {
			return *e.Conditions.Ready == ready
		}
	}
	return false
}

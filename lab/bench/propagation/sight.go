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

// toggle changes the Node's readiness and returns how long after the patch was sent a slice showed it.
func (s *sight) toggle(ctx context.Context, node *pair.Node, ready bool) (time.Duration, error) {
	const within = time.Minute // on a machine that does everything at once
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select { // no change meets the end of the one before
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(10 * time.Millisecond):
	}
	start := time.Now()
	if err := node.SetReady(ctx, ready); err != nil {
		return 0, err
	}
	address := node.Address.String()
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until a slice lists %s with ready=%t: %w", address, ready, ctx.Err())
		case event, ok := <-s.slices.ResultChan():
			if !ok {
				return 0, errors.New("the watch of the slices ended")
			}
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok {
				return 0, fmt.Errorf("the watch of the slices: %w", apierrors.FromObject(event.Object))
			}
			if lists(slice, address, ready) {
				return time.Since(start), nil
			}
		}
	}
}

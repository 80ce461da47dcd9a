package floor

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

// Sight is a bare watch of one namespace's slices. It is taken up again when the API server ends
// it, as it does with one that many changes at once have got behind.
type Sight struct{ slices watch.Interface }

// NewSight begins to watch. What is there already is not told.
func NewSight(ctx context.Context, p *pair.Pair, namespace string) (*Sight, error) {
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
	return &Sight{w}, nil
}

// Close ends the watch.
func (s *Sight) Close() { s.slices.Stop() }

// patience is for one change on a machine that does everything at once.
const patience = time.Minute

// Until reads events until the slices of so many names were once as told, and returns when the
// last of them came, and how many events were read.
func (s *Sight) Until(ctx context.Context, names int, is func(*discoveryv1.EndpointSlice) bool) (at time.Time, events int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(map[string]struct{}, names)
	for len(done) < names {
		select {
		case <-ctx.Done():
			return at, events, fmt.Errorf("%d of %d slices are as they are to be: %w", len(done), names, ctx.Err())
		case event, ok := <-s.slices.ResultChan():
			at = time.Now()
			if !ok {
				return at, events, errors.New("the watch of the slices ended")
			}
			switch slice := event.Object.(type) {
			case *discoveryv1.EndpointSlice:
				events++
				if is(slice) {
					done[slice.Name] = struct{}{}
				}
			default:
				return at, events, fmt.Errorf("the watch of the slices: %w", apierrors.FromObject(event.Object))
			}
		}
	}
	return at, events, nil
}

// Pause lies between samples, so that none meets the end of the one before.
const Pause = 10 * time.Millisecond

// Toggle patches the Node and returns how long after the patch was sent the watch told that
// its address is ready, or is not.
func (s *Sight) Toggle(ctx context.Context, node *pair.Node, ready bool) (time.Duration, error) {
	select { // not a wait for anything: see Pause
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(Pause):
	}
	began := time.Now()
	if err := node.SetReady(ctx, ready); err != nil {
		return 0, err
	}
	text := node.Address.String()
	at, _, err := s.Until(ctx, 1, func(slice *discoveryv1.EndpointSlice) bool { return Says(slice, text, ready) })
	if err != nil {
		return 0, fmt.Errorf("wait until the slices say ready=%t of %s: %w", ready, text, err)
	}
	return at.Sub(began), nil
}

// Says reports whether the slice lists the address with that readiness.
func Says(slice *discoveryv1.EndpointSlice, address string, ready bool) bool {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.Addresses[0] == address && e.Conditions.Ready != nil {
			return *e.Conditions.Ready == ready
		}
	}
	return false
}

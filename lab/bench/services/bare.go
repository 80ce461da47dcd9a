package services

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// bare is a client that has nothing to do but to write: as many slices as there are Services, with
// as many requests under way as the writer has at most.
type bare struct {
	client *kubernetes.Clientset
	sight  *floor.Sight
	slices []*discoveryv1.EndpointSlice
}

func newBare(ctx context.Context, p *pair.Pair, client *kubernetes.Clientset, plan plan) (*bare, error) {
	if err := floor.Open(ctx, client); err != nil {
		return nil, err
	}
	b := &bare{client: client, slices: make([]*discoveryv1.EndpointSlice, plan.services)}
	all, creating := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i := range b.slices {
		all.Go(func() (err error) {
			slice := floor.Slice(fmt.Sprintf("floor-%03d", i), floor.First, plan.nodes)
			b.slices[i], err = client.DiscoveryV1().EndpointSlices(floor.Namespace).Create(creating, slice, metav1.CreateOptions{})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	var err error
	b.sight, err = floor.NewSight(ctx, p, floor.Namespace)
	return b, err
}

// change writes all slices, and waits until they are seen to be right.
func (b *bare) change(ctx context.Context, ready bool) (*spread, error) {
	began := time.Now()
	all, writing := errgroup.WithContext(ctx)
	all.SetLimit(underWay + 1)
	found := &spread{}
	all.Go(func() (err error) {
		address := floor.First.String()
		found, err = follow(writing, b.sight, began, len(b.slices), func(slice *discoveryv1.EndpointSlice) bool {
			return floor.Says(slice, address, ready)
		})
		return err
	})
	for i := range b.slices {
		all.Go(func() (err error) {
			b.slices[i], err = b.client.DiscoveryV1().EndpointSlices(floor.Namespace).Update(writing, floor.Turned(b.slices[i], ready), metav1.UpdateOptions{})
			return err
		})
	}
	return found, all.Wait()
}

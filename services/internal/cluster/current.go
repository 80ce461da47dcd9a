package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// watchFactor is how much longer than client-go requests a watch lasts: 20 to 40 minutes.
const watchFactor = 4

// NewRequests returns the requests of a typed client of client-go, for objects that match the selectors. L is the type
// of the client's lists.
func NewRequests[L runtime.Object](client interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}, labelSelector, fieldSelector string,
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector, options.FieldSelector = labelSelector, fieldSelector
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector, options.FieldSelector = labelSelector, fieldSelector
			return client.Watch(ctx, options)
		},
	}
}

// KeepCurrent returns requests for one reflector, which never go back to an older state. The client is the one behind the
// requests: client-go checks whether it supports WatchList, which a fake client does not.
//
// A reflector first lists with resourceVersion=0, which any cache of any age may answer. And it continues a watch from the
// last resourceVersion. In an etcd that was restored, that is another state or none yet: the reflector keeps objects that
// do not exist, and receives no events until the revision is reached again (kubernetes#107457, kubernetes#118501).
// Therefore each list is a quorum read, and a watch never continues another one: when it ends, all objects are listed
// again. A comparison of revisions would not do, since the restored etcd may have passed the last one.
func KeepCurrent(requests *cache.ListWatch, client any) cache.ListerWatcher {
	listed := false // since the last watch
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.ResourceVersion, options.ResourceVersionMatch, listed = "", "", true
			return requests.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if ptr.Deref(options.SendInitialEvents, false) {
				options.ResourceVersion, listed = "", true
			}
			options.TimeoutSeconds = new(watchFactor * ptr.Deref(options.TimeoutSeconds, 0))
			follows := listed
			listed = false
			stream, err := requests.WatchWithContext(ctx, options)
			if err == nil && !follows { // only now: client-go's pauses before lists do not end with ctx
				stream.Stop()
				return nil, apierrors.NewResourceExpired("a watch does not continue another one")
			}
			return stream, err
		},
	}, client)
}

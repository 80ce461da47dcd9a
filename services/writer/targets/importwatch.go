package targets

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
)

// errImportsNotServed is returned if the API server has no ServiceImports.
var errImportsNotServed = errors.New("the API server does not serve serviceimports." + GroupServiceImport +
	" (v1beta1 or v1alpha1); install the CustomResourceDefinition of sigs.k8s.io/mcs-api, or unset SERVICE_IMPORTS")

// importVersions are the versions in which ServiceImports are read, the preferred one first. The fields that are read
// are the same.
var importVersions = []string{"v1beta1", "v1alpha1"}

// readImports makes a request in the first version that the API server serves.
func readImports[T any](
	client dynamic.Interface,
	namespace string,
	request func(dynamic.ResourceInterface) (T, error),
) (result T, err error) {
	for _, version := range importVersions {
		resource := schema.GroupVersionResource{Group: GroupServiceImport, Version: version, Resource: "serviceimports"}
		if result, err = request(client.Resource(resource).Namespace(namespace)); !apierrors.IsNotFound(err) {
			return result, err
		}
	}
	return result, fmt.Errorf("%w: %w", errImportsNotServed, err)
}

// newImportRequests returns the requests of an informer of ServiceImports. The last answer about whether they are served
// is put into notServed.
func newImportRequests(client dynamic.Interface, namespace string, notServed *atomic.Bool) cache.ListerWatcher {
	record := func(err error) error {
		notServed.Store(errors.Is(err, errImportsNotServed))
		return err
	}
	return cluster.KeepCurrent(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := readImports(client, namespace, func(imports dynamic.ResourceInterface) (*unstructured.UnstructuredList, error) {
				return imports.List(ctx, options)
			})
			return list, record(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := readImports(client, namespace, func(imports dynamic.ResourceInterface) (watch.Interface, error) {
				return imports.Watch(ctx, options)
			})
			return stream, record(err)
		},
	}, client)
}

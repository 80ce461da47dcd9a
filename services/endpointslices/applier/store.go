package applier

import (
	"context"
	"net/http"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Verb is a kind of request.
type Verb string

// The kinds of requests that change slices.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Store is where slices are written: the consuming cluster, or a dry run.
type Store interface {
	Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error)
	// Update only succeeds if nothing was written since slice's resourceVersion.
	Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error)
	// Delete only succeeds if the slice has this UID and resourceVersion.
	Delete(ctx context.Context, slice *discoveryv1.EndpointSlice) error
	Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error)
	// List reads all slices of a namespace with these labels, as they are at version: not from a cache.
	List(ctx context.Context, namespace string, with map[string]string) (all []*discoveryv1.EndpointSlice, version string, err error)
}

// Kubernetes writes to the API server, as this field manager. Its client must not limit its own rate: hundreds of
// Services may change at once, and the API server protects itself.
func Kubernetes(client kubernetes.Interface, fieldManager string) Store {
	return cluster{client, fieldManager}
}

type cluster struct {
	client       kubernetes.Interface
	fieldManager string
}

func (c cluster) Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	answer := &discoveryv1.EndpointSlice{}
	err := sendOnce(c.client.DiscoveryV1().RESTClient().Post(), slice.Namespace).
		VersionedParams(&metav1.CreateOptions{FieldManager: c.fieldManager}, scheme.ParameterCodec).
		Body(slice).Do(ctx).Into(answer)
	return answer, err
}

// Update rather than server-side apply, which costs more than twice as much, and whose
// lists of endpoints and ports are atomic anyway.
func (c cluster) Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	answer := &discoveryv1.EndpointSlice{}
	err := sendOnce(c.client.DiscoveryV1().RESTClient().Put(), slice.Namespace).Name(slice.Name).
		VersionedParams(&metav1.UpdateOptions{FieldManager: c.fieldManager}, scheme.ParameterCodec).
		Body(slice).Do(ctx).Into(answer)
	return answer, err
}

func (c cluster) Delete(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}
	return sendOnce(c.client.DiscoveryV1().RESTClient().Delete(), slice.Namespace).Name(slice.Name).Body(only).Do(ctx).Error()
}

// sendOnce prepares a request for slices that is not repeated. The typed client would repeat it when the API server
// asks it to wait, until the deadline has passed; after a pause there may be something else to write.
func sendOnce(request *rest.Request, namespace string) *rest.Request {
	return request.MaxRetries(0).UseProtobufAsDefault().Namespace(namespace).Resource("endpointslices")
}

func (c cluster) Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	return c.client.DiscoveryV1().EndpointSlices(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c cluster) List(ctx context.Context, namespace string, with map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	list, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set(with).String(), // no resourceVersion: the newest state
	})
	if err != nil {
		return nil, "", err
	}
	all := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, list.ResourceVersion, nil
}

// LeaderOnly wraps a client's transport, for rest.Config.Wrap: leadership is checked before each single attempt to change a
// slice, also before those that client-go repeats.
func LeaderOnly(leading func() bool) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return leaderOnly{next, leading} }
}

type leaderOnly struct {
	next    http.RoundTripper
	leading func() bool
}

func (g leaderOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/"+discoveryv1.GroupName+"/") && !g.leading() {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrNotLeader
	}
	return g.next.RoundTrip(r)
}

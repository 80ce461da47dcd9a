package applier

import (
	"context"
	"net/http"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/services/writer/election"
)

// fieldManager is how the API server books our changes.
const fieldManager = "slicefeed"

type verb string

const (
	create verb = "create"
	update verb = "update"
	remove verb = "delete"
)

// Store is where slices are written: the consuming cluster, or nowhere.
type Store interface {
	Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error)
	// Update only succeeds if nothing was written since slice's resourceVersion.
	Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error)
	// Delete only succeeds if it is this very slice, unchanged.
	Delete(ctx context.Context, slice *discoveryv1.EndpointSlice) error
	Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error)
}

// Kubernetes writes to the API server. Its client must not limit its own rate: a failover
// of hundreds of Services is when it counts, and the API server protects itself.
func Kubernetes(client kubernetes.Interface) Store { return cluster{client} }

type cluster struct{ client kubernetes.Interface }

func (c cluster) Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	answer := &discoveryv1.EndpointSlice{}
	err := once(c.client.DiscoveryV1().RESTClient().Post(), slice.Namespace).
		VersionedParams(&metav1.CreateOptions{FieldManager: fieldManager}, scheme.ParameterCodec).
		Body(slice).Do(ctx).Into(answer)
	return answer, err
}

// Update rather than server-side apply, which costs more than twice as much, and whose
// lists of endpoints and ports are atomic anyway.
func (c cluster) Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	answer := &discoveryv1.EndpointSlice{}
	err := once(c.client.DiscoveryV1().RESTClient().Put(), slice.Namespace).Name(slice.Name).
		VersionedParams(&metav1.UpdateOptions{FieldManager: fieldManager}, scheme.ParameterCodec).
		Body(slice).Do(ctx).Into(answer)
	return answer, err
}

func (c cluster) Delete(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}
	return once(c.client.DiscoveryV1().RESTClient().Delete(), slice.Namespace).Name(slice.Name).Body(only).Do(ctx).Error()
}

// once makes it a request for slices that is sent once. The typed client would repeat it by
// itself when the API server asks it to wait, and spend our deadline on waiting: how long to
// wait is for us to know, and what to write then is to be decided anew.
func once(request *rest.Request, namespace string) *rest.Request {
	return request.MaxRetries(0).UseProtobufAsDefault().Namespace(namespace).Resource("endpointslices")
}

func (c cluster) Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	return c.client.DiscoveryV1().EndpointSlices(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Guard wraps the client's transport so that leadership is checked before every single
// attempt to change a slice, whoever makes it. For rest.Config.Wrap.
func Guard(leading func() bool) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return guard{next, leading} }
}

type guard struct {
	next    http.RoundTripper
	leading func() bool
}

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/endpointslices") && !g.leading() {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, election.ErrNotLeader
	}
	return g.next.RoundTrip(r)
}

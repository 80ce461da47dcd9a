// Package kubeapi is an API client for the few kinds that the inventory reads. It guarantees the
// same requests and responses as client-go's clientset, which a test compares. It does not support
// other kinds: the clientset supports all of them, and their code and tables made the program half
// as large again.
package kubeapi

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// The clients are instances of client-go's generic client.
type (
	// Nodes lists and watches Nodes.
	Nodes = gentype.ClientWithList[*corev1.Node, *corev1.NodeList]
	// Pods lists and watches the Pods of a namespace.
	Pods = gentype.ClientWithList[*corev1.Pod, *corev1.PodList]
	// Services gets the Services of a namespace.
	Services = gentype.ClientWithList[*corev1.Service, *corev1.ServiceList]
	// EndpointSlices lists and watches the EndpointSlices of a namespace.
	EndpointSlices = gentype.ClientWithList[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
	// AccessReviews checks the permissions of its credential.
	AccessReviews = gentype.Client[*authorizationv1.SelfSubjectAccessReview]
)

// Client holds the REST clients of one API server. Its methods are safe for concurrent use.
type Client struct {
	parameters                     runtime.ParameterCodec
	core, discovery, authorization rest.Interface
}

// New returns a client whose API groups share their connections.
func New(cluster *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("HTTP client for %s: %w", cluster.Host, err)
	}
	c, codecs := &Client{parameters: runtime.NewParameterCodec(scheme)}, serializer.NewCodecFactory(scheme).WithoutConversion()
	for _, group := range []struct {
		version schema.GroupVersion
		path    string
		client  *rest.Interface
	}{
		{corev1.SchemeGroupVersion, "/api", &c.core},
		{discoveryv1.SchemeGroupVersion, "/apis", &c.discovery},
		{authorizationv1.SchemeGroupVersion, "/apis", &c.authorization},
	} {
		groupConfig := rest.CopyConfig(cluster)
		groupConfig.GroupVersion, groupConfig.APIPath, groupConfig.NegotiatedSerializer = &group.version, group.path, codecs
		if *group.client, err = rest.RESTClientForConfigAndClient(groupConfig, httpClient); err != nil {
			return nil, fmt.Errorf("client for %s at %s: %w", group.version, cluster.Host, err)
		}
	}
	return c, nil
}

// RESTClient returns a client for requests outside the kinds above, such as /version.
func (c *Client) RESTClient() rest.Interface { return c.core }

// Nodes returns the client of Nodes.
func (c *Client) Nodes() *Nodes {
	return gentype.NewClientWithList("nodes", c.core, c.parameters, "", newObject[corev1.Node], newObject[corev1.NodeList])
}

// Pods returns the client of a namespace's Pods.
func (c *Client) Pods(namespace string) *Pods {
	return gentype.NewClientWithList("pods", c.core, c.parameters, namespace, newObject[corev1.Pod], newObject[corev1.PodList])
}

// Services returns the client of a namespace's Services.
func (c *Client) Services(namespace string) *Services {
	return gentype.NewClientWithList("services", c.core, c.parameters, namespace, newObject[corev1.Service], newObject[corev1.ServiceList])
}

// EndpointSlices returns the client of a namespace's EndpointSlices.
func (c *Client) EndpointSlices(namespace string) *EndpointSlices {
	return gentype.NewClientWithList("endpointslices", c.discovery, c.parameters, namespace,
		newObject[discoveryv1.EndpointSlice], newObject[discoveryv1.EndpointSliceList])
}

// AccessReviews returns the client of SelfSubjectAccessReviews.
func (c *Client) AccessReviews() *AccessReviews {
	return gentype.NewClient("selfsubjectaccessreviews", c.authorization, c.parameters, "", newObject[authorizationv1.SelfSubjectAccessReview])
}

func newObject[T any]() *T { return new(T) }

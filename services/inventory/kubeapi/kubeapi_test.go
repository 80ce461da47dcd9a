package kubeapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type reader[T, L any] interface {
	Get(context.Context, string, metav1.GetOptions) (*T, error)
	List(context.Context, metav1.ListOptions) (*L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// kindClients are the clients that this package and client-go's clientset have in common.
type kindClients struct {
	nodes    reader[corev1.Node, corev1.NodeList]
	pods     reader[corev1.Pod, corev1.PodList]
	services reader[corev1.Service, corev1.ServiceList]
	slices   reader[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList]
	reviews  interface {
		Create(context.Context, *authorizationv1.SelfSubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error)
	}
	rest rest.Interface
}

func kubeapiClients(t *testing.T, cluster *rest.Config) kindClients {
	t.Helper()
	c, err := New(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return kindClients{c.Nodes(), c.Pods("shop"), c.Services("shop"), c.EndpointSlices("shop"), c.AccessReviews(), c.RESTClient()}
}

func clientsetClients(t *testing.T, cluster *rest.Config) kindClients {
	t.Helper()
	c, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		t.Fatal(err)
	}
	core := c.CoreV1()
	return kindClients{
		core.Nodes(), core.Pods("shop"), core.Services("shop"), c.DiscoveryV1().EndpointSlices("shop"),
		c.AuthorizationV1().SelfSubjectAccessReviews(), c.Discovery().RESTClient(),
	}
}

type recordedRequest struct {
	Method, URL, Body string
	Header            http.Header
}

// respond answers a request in protobuf. A watch gets one event and ends.
func respond(t *testing.T, w http.ResponseWriter, r *http.Request, answer runtime.Object) recordedRequest {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	versions := schema.GroupVersions{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion}
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, versions)
	raw, err := runtime.Encode(encoder, answer)
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	failed, isStatus := answer.(*metav1.Status)
	switch {
	case r.URL.Query().Get("watch") != "":
		event := &metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Raw: raw}}
		if isStatus {
			event.Type = string(watch.Error)
		}
		frames := info.StreamSerializer.NewFrameWriter(w)
		err = streaming.NewEncoder(frames, scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, versions)).Encode(event)
	case isStatus:
		w.WriteHeader(int(failed.Code))
		fallthrough
	default:
		_, err = w.Write(raw)
	}
	if err != nil {
		t.Error(err)
	}
	return recordedRequest{r.Method, r.URL.String(), string(body), r.Header}
}

// readSingleEvent returns the only event of a watch, or the error in it.
func readSingleEvent(w watch.Interface, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	event, ok := <-w.ResultChan()
	for range w.ResultChan() {
		ok = false
	}
	switch {
	case !ok:
		return nil, errors.New("want exactly one event")
	case event.Type == watch.Error:
		return event, apierrors.FromObject(event.Object)
	}
	return event, nil
}

func TestMatchesClientset(t *testing.T) {
	seconds := int64(7)
	options := metav1.ListOptions{
		LabelSelector: "a=b", FieldSelector: "spec.nodeName!=", ResourceVersion: "12", Limit: 5, Continue: "next",
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	}
	meta := metav1.ObjectMeta{Name: "it", UID: "1", ResourceVersion: "12", Labels: map[string]string{"a": "b"}}
	list := metav1.ListMeta{ResourceVersion: "12", Continue: "more"}
	node := corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{ProviderID: "ionos://1"}}
	pod := corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "it"}}
	slice := discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"},
	}}
	notFound := &apierrors.NewNotFound(corev1.Resource("services"), "it").ErrStatus
	expired := &apierrors.NewResourceExpired("too old").ErrStatus
	for name, tc := range map[string]struct {
		answer  runtime.Object
		request func(context.Context, kindClients) (any, error)
	}{
		"list nodes": {
			&corev1.NodeList{ListMeta: list, Items: []corev1.Node{node}},
			func(ctx context.Context, k kindClients) (any, error) { return k.nodes.List(ctx, options) },
		},
		"watch nodes": {&node, func(ctx context.Context, k kindClients) (any, error) {
			return readSingleEvent(k.nodes.Watch(ctx, options))
		}},
		"watch an expired resourceVersion": {expired, func(ctx context.Context, k kindClients) (any, error) {
			return readSingleEvent(k.nodes.Watch(ctx, options))
		}},
		"list an expired resourceVersion": {expired, func(ctx context.Context, k kindClients) (any, error) { return k.nodes.List(ctx, options) }},
		"list pods": {
			&corev1.PodList{ListMeta: list, Items: []corev1.Pod{pod}},
			func(ctx context.Context, k kindClients) (any, error) { return k.pods.List(ctx, options) },
		},
		"watch pods": {&pod, func(ctx context.Context, k kindClients) (any, error) {
			return readSingleEvent(k.pods.Watch(ctx, options))
		}},
		"get a service": {
			&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}},
			func(ctx context.Context, k kindClients) (any, error) {
				return k.services.Get(ctx, "it", metav1.GetOptions{})
			},
		},
		"get a service that does not exist": {notFound, func(ctx context.Context, k kindClients) (any, error) {
			return k.services.Get(ctx, "it", metav1.GetOptions{})
		}},
		"list slices": {
			&discoveryv1.EndpointSliceList{ListMeta: list, Items: []discoveryv1.EndpointSlice{slice}},
			func(ctx context.Context, k kindClients) (any, error) { return k.slices.List(ctx, options) },
		},
		"watch slices": {&slice, func(ctx context.Context, k kindClients) (any, error) {
			return readSingleEvent(k.slices.Watch(ctx, options))
		}},
		"review access": {&review, func(ctx context.Context, k kindClients) (any, error) {
			return k.reviews.Create(ctx, &review, metav1.CreateOptions{})
		}},
		"the version": {&review, func(ctx context.Context, k kindClients) (any, error) {
			return k.rest.Get().AbsPath("/version").SetHeader("Accept", "application/json").Do(ctx).Raw()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			type outcome struct {
				Request recordedRequest
				Answer  any
				Error   error
			}
			run := func(of func(*testing.T, *rest.Config) kindClients) outcome {
				var got outcome
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got.Request = respond(t, w, r, tc.answer)
				}))
				defer srv.Close()
				got.Answer, got.Error = tc.request(t.Context(), of(t, &rest.Config{
					Host: srv.URL, UserAgent: "slicefeed-inventory/test", QPS: -1, ContentConfig: rest.ContentConfig{
						ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + ",application/json",
					},
				}))
				return got
			}
			want, got := run(clientsetClients), run(kubeapiClients)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-clientset +kubeapi:\n%s", d)
			}
			if _, fails := tc.answer.(*metav1.Status); (want.Error != nil) != fails {
				t.Errorf("clientset: %v", want.Error)
			}
		})
	}
}

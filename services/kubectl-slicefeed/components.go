package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

// The names of the components: of their programs, and in the label app.kubernetes.io/name of their Pods.
const (
	inventory = "slicefeed-inventory"
	writer    = "slicefeed-writer"
)

const nameLabel = "app.kubernetes.io/name"

// options are the flags of all commands.
type options struct {
	kubeconfig         string
	secured, consuming location
	debugPort          int
}

// location is where a component is looked for.
type location struct{ context, namespace string }

// component is one component in its cluster.
type component struct {
	location

	name      string
	debugPort int
	config    *rest.Config
	client    kubernetes.Interface
}

// components returns those of the named components that the contexts select. It sends no request.
func (o *options) components(names ...string) ([]*component, error) {
	var selected []*component
	for _, name := range names {
		where, other := o.secured, o.consuming
		if name == writer {
			where, other = other, where
		}
		if where.context == "" && other.context != "" {
			continue
		}
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = o.kubeconfig
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: where.context}).
			ClientConfig()
		if err != nil {
			return nil, usageError{fmt.Errorf("context %q: %w", where.context, err)}
		}
		config.QPS = -1 // one person's requests
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, usageError{fmt.Errorf("context %q: %w", where.context, err)}
		}
		selected = append(selected, &component{name: name, location: where, debugPort: o.debugPort, config: config, client: client})
	}
	if len(selected) == 0 {
		return nil, usageError{fmt.Errorf("this command asks %s; set the context of its cluster", names[0])}
	}
	return selected, nil
}

// pods returns the running Pods of the component, ready ones first. There is at least one.
func (c *component) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: nameLabel + "=" + c.name})
	if err != nil {
		return nil, fmt.Errorf("find %s in context %q: %w", c.name, c.context, err)
	}
	running := slices.DeleteFunc(
		list.Items,
		func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil },
	)
	if len(running) == 0 {
		return nil, fmt.Errorf("no running Pod with label %s=%s in %s of context %q; check the context and namespace", nameLabel, c.name,
			cmp.Or(c.namespace, "any namespace"), c.context)
	}
	slices.SortStableFunc(running, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(unreadiness(&a), unreadiness(&b)), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return running, nil
}

// unreadiness is 0 for a ready Pod and 1 for another.
func unreadiness(pod *corev1.Pod) int {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return 0
		}
	}
	return 1
}

// connection leads to the debug listener of one Pod.
type connection struct {
	*grpc.ClientConn

	component *component
	pod       *corev1.Pod
	address   string // on this machine
	leading   bool   // of a writer
}

func (c *connection) String() string {
	text := fmt.Sprintf("%s in context %q, Pod %s/%s", c.component.name, c.component.context, c.pod.Namespace, c.pod.Name)
	if c.component.name == writer && !c.leading {
		text += ", which does not lead"
	}
	return text
}

// connect returns a connection to a Pod that answers, if possible to the leading writer. It lasts until ctx is done.
func (c *component) connect(ctx context.Context) (*connection, error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	var found *connection
	var problems []error
	for i := range pods {
		candidate, err := c.connectPod(ctx, &pods[i])
		switch {
		case err != nil:
			problems = append(
				problems,
				fmt.Errorf("connect to Pod %s/%s of context %q: %w", pods[i].Namespace, pods[i].Name, c.context, err),
			)
		case candidate.leading || c.name != writer:
			return candidate, nil
		case found == nil:
			found = candidate
		}
	}
	if found == nil {
		return nil, errors.Join(problems...)
	}
	return found, nil
}

func (c *component) connectPod(ctx context.Context, pod *corev1.Pod) (*connection, error) {
	address, err := c.forward(ctx, pod)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(
		"passthrough:"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	) // as far as this machine's loopback
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	connected := &connection{ClientConn: conn, component: c, pod: pod, address: address}
	if c.name == writer {
		list, err := writerv1.NewWriterOperatorServiceClient(conn).ListTargetDetails(ctx, &writerv1.ListTargetDetailsRequest{PageSize: 1})
		if err != nil {
			return nil, err
		}
		connected.leading = list.GetStatus().GetLeading()
	}
	return connected, nil
}

// forward listens on this machine for connections to a Pod's debug listener, and returns the address.
func (c *component) forward(ctx context.Context, pod *corev1.Pod) (string, error) {
	target := c.client.CoreV1().
		RESTClient().
		Post().
		Resource("pods").
		Namespace(pod.Namespace).
		Name(pod.Name).
		SubResource("portforward").
		URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return "", err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, c.config)
	if err != nil {
		return "", err
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	dialer := portforward.NewFallbackDialerForStreaming(websocket, overSPDY, needsSPDY)
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(
		ctx,
		dialer,
		[]string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", c.debugPort)},
		ready,
		io.Discard,
		io.Discard,
	)
	if err != nil {
		return "", err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return "", cmp.Or(err, ctx.Err())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), nil
}

// needsSPDY reports whether a WebSocket failed because the API server, or a proxy in front of it, knows only SPDY, as
// those before 1.31 do. kubectl falls back for the same errors.
func needsSPDY(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

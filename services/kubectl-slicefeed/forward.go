package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward listens on this machine for connections to a port of a Pod until ctx is done, and returns the address.
func forward(ctx context.Context, c *cluster, pod *corev1.Pod, port int) (string, error) {
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
		ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ready, io.Discard, io.Discard,
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

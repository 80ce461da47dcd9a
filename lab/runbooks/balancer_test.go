package runbooks

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// startBalancer stands in for the cloud's load balancer in front of the inventory, and for the
// controller that tells a Service its address. It passes bytes on: TLS is none of its business.
func (w *world) startBalancer() {
	w.t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(balancerAddress, 9443).String())
	must(w.t, err)
	services, err := w.secured.client.CoreV1().Services(metav1.NamespaceAll).Watch(w.t.Context(), metav1.ListOptions{})
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.tellAddresses(ctx, services) })
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.balance(ctx, conn) })
		}
	})
	w.t.Cleanup(func() {
		cancel()
		services.Stop()
		w.ended(listener.Close())
		all.Wait()
	})
}

func (w *world) tellAddresses(ctx context.Context, services watch.Interface) {
	for event := range services.ResultChan() {
		s, ok := event.Object.(*corev1.Service)
		if !ok || event.Type == watch.Deleted || s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancerAddress.String()}}
		if _, err := w.secured.client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
			w.t.Log(fmt.Errorf("tell Service %s its address: %w", s.Name, err)) // its next version comes at once
		}
	}
}

// balance joins a connection to a Pod of the inventory that is ready.
func (w *world) balance(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	pods, err := w.secured.client.CoreV1().Pods("slicefeed").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=slicefeed-inventory"})
	if err != nil {
		return
	}
	for _, pod := range pods.Items {
		if !ready(&pod) {
			continue
		}
		far, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "9443"))
		if err != nil {
			continue
		}
		defer far.Close()
		over := context.AfterFunc(ctx, func() { _ = conn.Close(); _ = far.Close() })
		defer over()
		go func() {
			_, _ = io.Copy(far, conn)
			_ = far.Close()
		}()
		_, _ = io.Copy(conn, far)
		return
	}
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

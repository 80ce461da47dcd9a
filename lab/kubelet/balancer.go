package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/lab/netns"
)

// Balancer is a load balancer in front of the Pods of a Service: it relays each connection to one
// that is ready, in turns. It stands for whatever leads to a Service from outside of its cluster,
// which the control plane has neither a controller nor a kube-proxy for.
type Balancer struct {
	kubelet   *Kubelet
	service   *corev1.Service
	listeners []net.Listener
	all       sync.WaitGroup

	mu    sync.Mutex
	turn  int
	conns map[net.Conn]bool
}

// Balance starts one that listens at an address on the ports of the Service. Close it in the end.
func (k *Kubelet) Balance(service *corev1.Service, at netip.Addr) (io.Closer, error) {
	b := &Balancer{kubelet: k, service: service, conns: map[net.Conn]bool{}}
	if err := netns.AddAddr(at); err != nil {
		return nil, err
	}
	for _, p := range service.Spec.Ports {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(at, uint16(p.Port)).String())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for Service %s: %w", service.Name, err), b.Close())
		}
		b.listeners = append(b.listeners, listener)
		b.all.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				b.all.Go(func() { b.relay(conn, p) })
			}
		})
	}
	return b, nil
}

// relay refuses who comes while no Pod is ready.
func (b *Balancer) relay(conn net.Conn, to corev1.ServicePort) {
	if !b.keep(conn) {
		return
	}
	defer b.drop(conn)
	p := b.next()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	onward, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(p.address, p.port(to.TargetPort)).String())
	if err != nil || !b.keep(onward) {
		return
	}
	defer b.drop(onward)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, onward)
		_ = conn.Close() // whoever is cut off by one end is so at the other
	})
	_, _ = io.Copy(onward, conn)
	_ = onward.Close()
	back.Wait()
}

func (b *Balancer) keep(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		_ = conn.Close()
		return false
	}
	b.conns[conn] = true
	return true
}

func (b *Balancer) drop(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
	_ = conn.Close()
}

// next is the Pod whose turn it is.
func (b *Balancer) next() *pod {
	k := b.kubelet
	selector := labels.SelectorFromSet(b.service.Spec.Selector)
	var ready []*pod
	k.mu.Lock()
	for _, p := range k.pods {
		if p.object.Namespace == b.service.Namespace && selector.Matches(labels.Set(p.object.Labels)) && !p.ending() && p.ready() {
			ready = append(ready, p)
		}
	}
	k.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(ready) == 0 {
		return nil
	}
	b.turn++
	return ready[b.turn%len(ready)]
}

// Close ends all connections and listens no more.
func (b *Balancer) Close() error {
	var errs []error
	for _, listener := range b.listeners {
		errs = append(errs, listener.Close())
	}
	b.mu.Lock()
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
	b.mu.Unlock()
	b.all.Wait()
	return errors.Join(errs...)
}

package sim

import (
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// answering are the ports at which something answers on every machine: two of backends, and one that is denied.
var answering = []uint16{30080, 30090, deniedPort}

const (
	deniedPort = 22
	silentPort = 31999 // nothing answers there
)

// portsOf has the ports of a node; 0: it reports none.
func portsOf(port uint16) (of roster.Node) {
	name := "http"
	of.Ports = targets.ListedPorts(&discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &name, Port: new(int32(port))}}})
	return of
}

// other is the other port of backends.
func other(port uint16) uint16 {
	if port == answering[0] {
		return answering[1]
	}
	return answering[0]
}

// movePort has the backend of a node move to the other port. It leaves the old one a little later.
func (c *cluster) movePort(name string) {
	c.edit(name, func(n *node) {
		from := n.serves
		n.serves = other(from)
		n.port = n.serves
		h := c.host(n.address)
		delete(h.left, n.serves)
		c.alive(n.address)
		c.after(5*time.Second, func() {
			h.left[from] = c.nodes.now[name].serves != from
			c.alive(n.address)
		})
	})
}

// strikePorts is what befalls ports.
func (w *world) strikePorts(f Fault) (lift func(), done bool) {
	c, name := w.node(f)
	names := []string{name}
	if f.Kind == AllPortsMoved || f.Kind == AllPortsWrong || f.Kind == PortsFlip {
		names = c.names()
	}
	each := func(change func(*node)) func() {
		return func() {
			for _, name := range names {
				c.edit(name, change)
			}
		}
	}
	right := each(func(n *node) { n.port = n.serves })
	switch f.Kind {
	case PortMoved, AllPortsMoved:
		for _, name := range names {
			c.movePort(name)
		}
	case PortWrong, AllPortsWrong:
		each(func(n *node) { n.port = []uint16{silentPort, deniedPort, 0}[f.N%3] })()
		if f.N%4 > 0 {
			lift = right
		}
	case PortsFlip:
		over := false
		var flip func()
		flip = func() {
			if !over {
				each(func(n *node) {
					n.port = map[uint16]uint16{answering[0]: answering[1]}[n.port]
					n.port = max(n.port, answering[0])
				})()
				w.after(time.Duration(1+f.N%12)*time.Second, flip)
			}
		}
		flip()
		lift = func() { over = true; right() }
	case PortsSet:
		w.consuming.annotate(func(s *corev1.Service) {
			s.Annotations[prefix+"ports"] = "from-source"
			delete(s.Annotations, prefix+"ports."+c.name)
			s.Spec.Ports[0].TargetPort = intstr.FromInt32(int32(answering[f.N/4%2]))
			switch f.N % 4 {
			case 1:
				s.Annotations[prefix+"ports."+c.name] = "http=30090"
			case 2, 3:
				delete(s.Annotations, prefix+"ports")
			}
		})
	case PortsAllowed:
		for _, one := range w.writers {
			one.allowed = answering[:2+f.N%2]
			one.restart()
		}
	default:
		return nil, false
	}
	return lift, true
}

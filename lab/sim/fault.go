package sim

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// befall has a fault happen, and end: at the latest when all are over.
func (w *world) befall(f Fault, over time.Time) {
	w.tellf("FAULT %s", f)
	w.inForce[f.Kind]++
	w.see(oracle.Fault{Kind: string(f.Kind), Begins: true})
	lifted := w.strike(f)
	ends := time.Now().Add(f.For)
	if f.For == 0 {
		ends = ends.Add(20 * time.Second) // for so long what it does is put down to it
	}
	if ends.After(over) {
		ends = over
	}
	w.at(ends, func() {
		if lifted != nil {
			w.tellf("over: %s", f.Kind)
			lifted()
		}
		if w.inForce[f.Kind]--; w.inForce[f.Kind] == 0 {
			delete(w.inForce, f.Kind)
			w.see(oracle.Fault{Kind: string(f.Kind)})
		}
	})
}

// strike does what a fault does, and returns what lifts it; nil: nothing does.
func (w *world) strike(f Fault) (lift func()) {
	for _, strike := range []func(Fault) (func(), bool){w.strikeNodes, w.strikeSecured, w.strikeCloud, w.strikeLink, w.strikeWriter, w.strikeBackend, w.strikeConsuming, w.configure, w.strikePorts} {
		if lift, done := strike(f); done {
			return lift
		}
	}
	return nil
}

// counted has a fault in force be counted, and returns what takes it out again.
func counted(n *int) func() {
	*n++
	return func() { *n-- }
}

func (w *world) cluster(f Fault) *cluster { return w.clusters[f.On%len(w.clusters)] }

// node is the Node that a fault befalls; empty: there is none.
func (w *world) node(f Fault) (*cluster, string) {
	c := w.cluster(f)
	names := c.names()
	if len(names) == 0 {
		return c, ""
	}
	return c, names[f.On/len(w.clusters)%len(names)]
}

func (w *world) strikeNodes(f Fault) (lift func(), done bool) {
	c, name := w.node(f)
	victim := c.nodes.now[name]
	switch f.Kind {
	case NodeAdded:
		c.create(netip.Addr{})
	case NodeDeleted:
		c.remove(name, f.N%2 == 1)
	case NodeReplaced:
		c.replace(name, f.N%2 == 1)
	case NodeNotReady:
		c.edit(name, func(n *node) { n.ready = false })
		undo := func() {}
		if f.N%2 == 1 && name != "" {
			undo = w.silence(victim.address, func(h *host) *int { return &h.silent })
		}
		lift = func() {
			undo()
			c.edit(name, func(n *node) { n.ready = true })
		}
	case NodeDrained:
		c.edit(name, func(n *node) { n.marked = true })
		lift = func() {
			if f.N%2 == 1 {
				c.remove(name, false)
				return
			}
			c.edit(name, func(n *node) { n.marked = false })
		}
	case NodeRelabelled:
		c.edit(name, func(n *node) { n.pool = map[string]string{"a": "b", "b": "a"}[n.pool] })
	case AddressChanged:
		if name != "" {
			c.made++
			c.readdress(name, c.free())
		}
	case AddressesSwap:
		names := slices.DeleteFunc(c.names(), func(other string) bool { return !c.cloud.has(other) })
		if len(names) < 2 || !slices.Contains(names, name) {
			return nil, true
		}
		other := names[(slices.Index(names, name)+1)%len(names)]
		a, b := c.cloud.address(name), c.cloud.address(other)
		c.readdress(name, b)
		c.readdress(other, a)
	default:
		return c.strikeAll(f)
	}
	return lift, true
}

// strikeAll is what befalls all Nodes of a cluster.
func (c *cluster) strikeAll(f Fault) (lift func(), done bool) {
	w := c.world
	switch f.Kind {
	case AllNotReady, AllDrained:
		alter := func(n *node, is bool) { n.ready = !is }
		if f.Kind == AllDrained {
			alter = func(n *node, is bool) { n.marked = is }
		}
		names := c.names()
		for _, name := range names {
			c.edit(name, func(n *node) { alter(n, true) })
		}
		lift = func() {
			for _, name := range names {
				c.edit(name, func(n *node) { alter(n, false) })
			}
		}
	case AllNodesDeleted:
		for _, name := range c.names() {
			c.remove(name, f.N%2 == 1)
		}
		lift = func() {
			for range w.script.Setup.Nodes {
				c.create(netip.Addr{})
			}
		}
	case NodesChurn:
		for n := range 1 + f.N%5 {
			c.after(time.Duration(n)*7*time.Second, func() {
				if names := c.names(); n%2 == 1 && len(names) > 1 && len(w.inForce) > 0 {
					c.remove(names[f.On%len(names)], false)
				} else if len(w.inForce) > 0 {
					c.create(netip.Addr{})
				}
			})
		}
	default:
		return nil, false
	}
	return lift, true
}

// replace has a new machine take an old one's place, and perhaps its address.
func (c *cluster) replace(name string, inherits bool) {
	old, ok := c.nodes.now[name]
	if !ok {
		return
	}
	if !inherits {
		c.create(netip.Addr{})
		c.after(3*time.Second, func() { c.remove(name, false) })
		return
	}
	// The machine goes first, and its Node lingers. What it had can be inherited once: one address, one
	// machine (feed.md#what-never-happens).
	if !c.cloud.has(name) {
		return
	}
	address := c.cloud.address(name)
	c.cloud.delete(old.server, false)
	c.create(address)
	c.after(8*time.Second, func() { c.remove(name, false) })
}

// readdress gives a machine another address; its Node says so at once.
func (c *cluster) readdress(name string, to netip.Addr) {
	c.cloud.move(c.nodes.now[name].server, to)
	c.edit(name, func(n *node) { n.address = to })
}

func (w *world) strikeSecured(f Fault) (lift func(), done bool) {
	c := w.cluster(f)
	cut := func(why string) {
		for _, r := range c.replicas {
			if r.alive && r.watch.connected {
				r.watch.stop(why)
			}
		}
	}
	drain := func() {
		for _, r := range c.replicas {
			if r.alive {
				r.watch.drain()
			}
		}
	}
	switch f.Kind {
	case SecuredDown:
		lift = counted(&c.down)
		cut("watch: connection refused")
	case SecuredHangs:
		undo := counted(&c.hanging)
		lift = func() {
			undo()
			drain()
		}
	case EtcdFrozen:
		undo := counted(&c.frozen)
		lift = func() {
			if undo(); c.frozen == 0 {
				c.thaw()
			}
		}
	case CacheStale:
		by := time.Duration(1+f.N%40) * time.Second
		c.lag += by
		lift = func() { c.lag -= by }
	case WatchCut:
		cut("watch: EOF")
	default:
		return nil, false
	}
	return lift, true
}

func (w *world) strikeCloud(f Fault) (lift func(), done bool) {
	d := w.cluster(f).cloud
	switch f.Kind {
	case CloudErrors:
		lift = counted(&d.failing)
	case CloudThrottles:
		by := time.Duration(1+f.N%40) * time.Second
		d.retryAfter += by
		lift = func() { d.retryAfter -= by }
	case CloudHangs:
		lift = counted(&d.hanging)
	case CloudStale:
		by := time.Duration(5+3*f.N) * time.Second
		d.lag += by
		lift = func() { d.lag -= by }
	case CloudOdd:
		d.victim = f.N
		lift = counted(&d.odd)
	case CloudHidesNIC:
		d.victim = f.N
		lift = counted(&d.hiding)
	case CloudShares:
		d.victim = f.N
		lift = counted(&d.sharing)
	default:
		return nil, false
	}
	return lift, true
}

func (w *world) strikeLink(f Fault) (lift func(), done bool) {
	one := w.writers[f.On%len(w.writers)]
	n := f.On / len(w.writers) % len(w.clusters)
	line := one.wires[n]
	streams := func(do func(*stream)) {
		if !one.alive {
			return
		}
		if s := one.subs[n].current; s != nil && s.replica != nil {
			do(s)
		}
	}
	c := w.cluster(f)
	r := c.replicas[f.On/len(w.clusters)%len(c.replicas)]
	switch f.Kind {
	case LinkCut:
		streams(func(s *stream) { s.brokenByServer("connection reset") })
		lift = counted(&line.cut)
	case LinkHalfOpen:
		lift = counted(&line.half)
	case LinkDelayed:
		by := time.Duration(1+f.N%40) * 500 * time.Millisecond
		line.delay += by
		lift = func() { line.delay -= by }
	case StreamEnded:
		if one.alive {
			one.subs[n].replica = nil
		}
		streams(func(s *stream) { s.brokenByServer("the connection came of age") })
	case InventoryKilled:
		r.kill()
		lift = func() {
			if !r.alive {
				r.start()
			}
		}
	case InventoryLies:
		r.lie(f.N)
		w.see(oracle.Lies{Source: c.name})
		lift = func() {
			r.kill()
			r.start()
		}
	default:
		return nil, false
	}
	return lift, true
}

func (w *world) strikeWriter(f Fault) (lift func(), done bool) {
	one := w.writers[f.On%len(w.writers)]
	switch f.Kind {
	case WriterKilled:
		one.kill()
		lift = func() {
			if !one.alive {
				one.start()
			}
		}
	case WriterStalled:
		one.stopped++
		lift = one.goOn
	case WriterCutOff:
		undo := counted(&one.cutOff)
		lift = func() {
			if undo(); one.alive {
				one.catalog.drain()
			}
		}
	case ProberBlind:
		lift = counted(&one.blind)
	case LeaseLost:
		w.consuming.holder = ""
		w.consuming.turns++
	default:
		return nil, false
	}
	return lift, true
}

// silence has a backend be so, and returns what lifts it.
func (w *world) silence(a netip.Addr, of func(*host) *int) func() {
	undo := counted(of(w.host(a)))
	w.alive(a)
	return func() {
		undo()
		w.alive(a)
	}
}

func (w *world) strikeBackend(f Fault) (lift func(), done bool) {
	c, name := w.node(f)
	address := c.nodes.now[name].address
	switch f.Kind {
	case BackendDead, BackendHangs, BackendFlaps:
		if name == "" {
			return nil, true
		}
	case AllDead:
		var undo []func()
		for _, name := range c.names() {
			undo = append(undo, w.silence(c.nodes.now[name].address, func(h *host) *int { return &h.dead }))
		}
		return func() {
			for _, lift := range undo {
				lift()
			}
		}, true
	default:
		return nil, false
	}
	switch f.Kind {
	case BackendDead:
		return w.silence(address, func(h *host) *int { return &h.dead }), true
	case BackendHangs:
		return w.silence(address, func(h *host) *int { return &h.silent }), true
	}
	h, over := w.host(address), false
	var flap func()
	flap = func() {
		if over {
			return
		}
		h.down = !h.down
		w.alive(address)
		w.after(time.Duration(1+f.N%12)*time.Second, flap)
	}
	flap()
	return func() {
		over, h.down = true, false
		w.alive(address)
	}, true
}

func (w *world) strikeConsuming(f Fault) (lift func(), done bool) {
	c := w.consuming
	names := c.names()
	switch f.Kind {
	case ConsumingDown:
		lift = counted(&c.down)
		for _, one := range w.writers {
			if one.alive && one.catalog.connected {
				one.catalog.stop("watch: connection refused")
			}
		}
	case ConsumingHangs:
		undo := counted(&c.hanging)
		c.late = time.Duration(2+f.N%20) * time.Second
		lift = func() {
			undo()
			for _, one := range w.writers {
				if one.alive {
					one.catalog.drain()
				}
			}
		}
	case ConsumingThrottles:
		by := 1 + f.N%20
		c.retryAfter += by
		lift = func() { c.retryAfter -= by }
	case ConsumingStale:
		by := time.Duration(1+f.N%30) * time.Second
		c.lag += by
		lift = func() { c.lag -= by }
	case AnswersLost:
		lift = counted(&c.losing)
	case Conflicts:
		lift = counted(&c.conflicting)
	case SliceEdited:
		if len(names) > 0 {
			c.tamper(names[f.On%len(names)], f.N)
		}
	case SliceDeleted:
		if len(names) > 0 {
			c.drop(names[f.On%len(names)])
		}
	default:
		return nil, false
	}
	return lift, true
}

// configure is what somebody changes on purpose.
func (w *world) configure(f Fault) (lift func(), done bool) {
	set := func(name, value string) {
		w.consuming.annotate(func(s *corev1.Service) {
			if s.Annotations[prefix+name] = value; value == "" {
				delete(s.Annotations, prefix+name)
			}
		})
	}
	switch f.Kind {
	case SelectorChanged:
		set("node-selector", []string{"", "pool=a", "pool=b"}[f.N%3])
	case FenceChanged:
		for _, one := range w.writers {
			one.fence = func(c *cluster) netip.Prefix {
				switch f.N % 4 {
				case 0, 1:
					return c.cidr(16)
				case 2:
					return c.cidr(17)
				}
				return netip.MustParsePrefix("10.9.0.0/16")
			}
			one.restart()
		}
	case ProbeChanged:
		set("probe", []string{"tcp", "http", ""}[f.N%3])
	case ProbingSwitched:
		set("probe", []string{"off", "tcp"}[f.N%2])
	case ListOutSwitched:
		set("list-unready", []string{"false", "true"}[f.N%2])
	case OptedOut:
		label := func(class string) {
			w.consuming.annotate(func(s *corev1.Service) { s.Labels[targets.LabelClass] = class })
		}
		label("none")
		lift = func() { label("default") }
	case Paused:
		set("paused", "true")
		lift = func() { set("paused", "") }
	default:
		return nil, false
	}
	return lift, true
}

package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
)

// poolLabel tells the nodes of two pools apart; it is told to subscribers.
const poolLabel = "pool"

// node is a Node of a secured cluster, as its API server has it.
type node struct {
	name, uid, server, pool string
	address                 netip.Addr // its InternalIP
	port, serves            uint16     // that is reported, and at which its backend is; 0: none
	ready, deleting, marked bool       // marked: the autoscaler is about to delete it
	rv                      uint64
}

// object is the Node as a client sees it.
func (n node) object() *corev1.Node {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(n.uid), Labels: map[string]string{poolLabel: n.pool}},
		Spec:       corev1.NodeSpec{ProviderID: "ionos://" + n.server},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.address.String()}}},
	}
	if n.ready {
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	if n.deleting {
		o.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	}
	if n.marked {
		o.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	}
	return o
}

func (n node) state() oracle.State {
	switch {
	case n.deleting, n.marked:
		return oracle.Draining
	case n.ready:
		return oracle.Ready
	}
	return oracle.NotReady
}

// cluster is a secured cluster and the cloud that it runs in.
type cluster struct {
	*world

	name     string
	index    int
	rand     *rand.Rand
	nodes    *journal[node]
	cloud    *cloud
	replicas []*replica
	made     int // nodes

	down, hanging, frozen int // faults in force
	lag                   time.Duration
	late                  []func() // what the frozen store could not take in yet
}

func newCluster(w *world, index int) *cluster {
	c := &cluster{world: w, index: index, name: []string{"blue", "red"}[index], nodes: newJournal[node]()}
	c.rand = w.chance("secured " + c.name)
	c.cloud = newCloud(c)
	for range w.script.Setup.Nodes {
		c.create(netip.Addr{})
	}
	for n := range w.script.Setup.Replicas {
		c.replicas = append(c.replicas, newReplica(c, n))
	}
	return c
}

// cidr is where the cluster's machines are.
func (c *cluster) cidr(bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(c.index + 1), 0, 0}), bits)
}

// free is an address that no machine has had. One of two is in the upper half of the CIDR.
func (c *cluster) free() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(c.index + 1), byte(c.made % 2 * 128), byte(9 + c.made)})
}

// create makes a machine and its Node. Without an address it gets a new one.
func (c *cluster) create(address netip.Addr) {
	c.made++
	if !address.IsValid() {
		address = c.free()
	}
	n := node{
		name: fmt.Sprintf("%s-%d", c.name, c.made), ready: true, pool: []string{"a", "b"}[c.made/2%2], address: address,
		server: fmt.Sprintf("%08x-0000-4000-8000-%012x", c.index+1, c.made),
	}
	if c.script.Setup.Ports {
		n.port = answering[c.made%2]
		n.serves = n.port
	}
	n.uid = "uid-" + n.name
	c.cloud.boot(n)
	c.put(n)
}

// put has the API server say this of a Node.
func (c *cluster) put(n node) {
	c.record(func() {
		c.store(n)
	})
}

func (c *cluster) store(n node) {
	n.rv = c.nodes.rv + 1
	c.tellf("%s: Node %s %s %s at %s:%d", c.name, n.name, [...]string{"unknown", "READY", "DRAINING", "NOT_READY"}[n.state()], n.pool,
		n.address, n.port)
	c.spread(c.nodes.put(n.name, n))
}

// edit changes a Node, if it is still there.
func (c *cluster) edit(name string, change func(*node)) {
	c.record(func() {
		n, ok := c.nodes.now[name]
		if !ok {
			return
		}
		change(&n)
		c.store(n)
	})
}

// remove deletes a Node; its machine may answer on.
func (c *cluster) remove(name string, answers bool) {
	n, ok := c.nodes.now[name]
	if !ok {
		return
	}
	c.cloud.delete(n.server, answers)
	c.record(func() {
		if _, ok := c.nodes.now[name]; ok {
			c.tellf("%s: Node %s is deleted", c.name, name)
			c.spread(c.nodes.remove(name))
		}
	})
}

// record takes a change in, unless the store is frozen: then when it is no more.
func (c *cluster) record(change func()) {
	if c.frozen > 0 {
		c.late = append(c.late, change)
		return
	}
	change()
	c.truth()
}

func (c *cluster) thaw() {
	late := c.late
	c.late = nil
	for _, change := range late {
		change()
	}
	c.truth()
}

func (c *cluster) spread(e entry[node]) {
	for _, r := range c.replicas {
		if r.alive {
			r.watch.changed(e)
		}
	}
}

// truth tells the oracle what an inventory without a fault would tell.
func (c *cluster) truth() {
	t := oracle.Truth{Source: c.name}
	for _, name := range c.names() {
		n := c.nodes.now[name]
		address := n.address
		if c.script.Setup.ByCloud {
			m, known := c.cloud.machines.now[n.server]
			if !known || !m.address.IsValid() {
				continue
			}
			address = m.address
		}
		t.Members = append(t.Members, oracle.Member{
			Name: n.name, Addresses: []netip.Addr{address}, State: n.state(), Labels: map[string]string{poolLabel: n.pool}, Port: n.port,
		})
	}
	c.see(t)
}

// names of the Nodes, in order.
func (c *cluster) names() []string {
	all := make([]string, 0, len(c.nodes.now))
	for name := range c.nodes.now {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// fails is what a request to the API server meets with.
func (c *cluster) fails() string {
	if c.down > 0 {
		return "503 Service Unavailable"
	}
	return ""
}

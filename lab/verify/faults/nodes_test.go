package faults

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// cluster is where nodes are. Its text is the name of the source.
type cluster string

const (
	first  cluster = "default" // the secured cluster
	second cluster = "second"  // records in a file
)

// nodeCounts are those of an undisturbed environment.
var nodeCounts = map[cluster]int{first: 4, second: 2}

// node is a worker node, and its true state.
type node struct {
	*pair.Worker

	cluster              cluster
	dead, draining, gone bool
}

// condition is what the slices should show.
func (n *node) condition() pair.Condition {
	switch {
	case n.gone:
		return pair.Absent
	case n.dead:
		return pair.Out
	case n.draining:
		return pair.Draining
	default:
		return pair.Ready
	}
}

// nodesOf returns the nodes that have not left.
func (e *env) nodesOf(c cluster) []*node {
	var all []*node
	for _, n := range e.nodes {
		if n.cluster == c && !n.gone {
			all = append(all, n)
		}
	}
	return all
}

func (e *env) allNodes() []*node { return append(e.nodesOf(first), e.nodesOf(second)...) }

// waitCorrect waits until the slices show the true condition of every node and list nothing else. It returns how long
// after start they first did.
func (e *env) waitCorrect(ctx context.Context, start time.Time) (time.Duration, error) {
	want := map[netip.Addr]pair.Condition{}
	var lines []string
	for _, n := range e.nodes {
		if c := n.condition(); c != pair.Absent {
			want[n.Address] = c
			lines = append(lines, n.Address.String()+" "+string(c))
		}
	}
	took, err := e.WaitSlicesSince(ctx, start, func(all []*discoveryv1.EndpointSlice) bool {
		found := pair.Conditions(all)
		if len(found) != len(want) {
			return false
		}
		for address, condition := range want {
			if found[address] != condition {
				return false
			}
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("want %s: %w", strings.Join(lines, ", "), err)
	}
	return took, nil
}

// anyAlive reports whether the backend of a node answered then.
func (e *env) anyAlive(then time.Time) bool {
	return slices.ContainsFunc(e.nodes, func(n *node) bool {
		dead := slices.ContainsFunc(e.Truth(n.Address).Deaths, func(d client.Death) bool {
			return d.From.Before(then) && (d.To.IsZero() || d.To.After(then))
		})
		return !n.gone && !dead
	})
}

// addMachine makes a machine that answers. It is no node before join.
func (e *env) addMachine(c cluster) (*node, error) {
	e.lastAddress[c]++
	third := map[cluster]byte{first: 0, second: 1}[c]
	address := netip.AddrFrom4([4]byte{10, third, 1, byte(10 + e.lastAddress[c])})
	worker, err := e.AddWorker(pair.WorkerOptions{Name: fmt.Sprintf("%s-%d", c, e.lastAddress[c]), Address: address})
	if err != nil {
		return nil, err
	}
	e.toBackend[address], err = newFaultProxy("probes of "+worker.Name, netip.AddrPortFrom(address, probedPort),
		netip.AddrPortFrom(address, pair.NodePort))
	if err != nil {
		return nil, errors.Join(err, worker.Destroy())
	}
	return &node{Worker: worker, cluster: c}, nil
}

// addNode makes a machine that joins.
func (e *env) addNode(ctx context.Context, c cluster) error {
	n, err := e.addMachine(c)
	if err != nil {
		return err
	}
	e.nodes = append(e.nodes, n)
	if c == second {
		return e.writeRecords()
	}
	return n.Join(ctx)
}

// deleteNode deletes the Node. The machine still answers.
func (e *env) deleteNode(ctx context.Context, n *node) error {
	n.gone = true
	if n.cluster == second {
		return e.writeRecords()
	}
	return n.Leave(ctx)
}

// killNode kills the backend, and then the Node is not ready.
func (e *env) killNode(ctx context.Context, n *node) error {
	if err := n.killBackend(); err != nil {
		return err
	}
	if n.cluster == second {
		return e.writeRecords()
	}
	return n.SetReady(ctx, false)
}

// killBackend is a death that only the probes can see.
func (n *node) killBackend() error {
	n.dead = true
	return n.Set(backend.Refuse)
}

func (n *node) drain(ctx context.Context, on bool) error {
	n.draining = on
	return n.Drain(ctx, on)
}

// writeRecords writes the file of the second inventory.
func (e *env) writeRecords() error {
	records := []pair.Record{}
	for _, n := range e.nodesOf(second) {
		records = append(records, pair.Record{Name: n.Name, Address: n.Address, Ready: !n.dead, Worker: true})
	}
	return e.second.TellRecords(records...)
}

// removeMachine takes the machine of a deleted Node away, whether the slices still list it or not.
func (e *env) removeMachine(n *node) error {
	if err := n.Set(backend.Refuse); err != nil { // if it is listed, the probes have to notice
		return err
	}
	e.toBackend[n.Address].remove()
	delete(e.toBackend, n.Address)
	return n.Destroy()
}

// resetNodes makes the nodes those of an undisturbed environment.
func (e *env) resetNodes(ctx context.Context) error {
	for _, n := range e.allNodes() {
		if err := e.recoverNode(ctx, n); err != nil {
			return err
		}
	}
	for c, want := range nodeCounts {
		for n := len(e.nodesOf(c)); n < want; n++ {
			if err := e.addNode(ctx, c); err != nil {
				return err
			}
		}
		for all := e.nodesOf(c); len(all) > want; all = all[:len(all)-1] { // the newest first: the old ones are known to serve
			if err := e.deleteNode(ctx, all[len(all)-1]); err != nil {
				return err
			}
		}
	}
	for _, n := range e.nodes {
		if !n.gone || e.toBackend[n.Address] == nil {
			continue
		}
		if _, err := e.WaitSlices(ctx, pair.Are(pair.Absent, n.Address)); err != nil {
			return err
		}
		if err := e.removeMachine(n); err != nil {
			return err
		}
	}
	e.nodes = slices.DeleteFunc(e.nodes, func(n *node) bool { return n.gone })
	return nil
}

// recoverNode undoes what the last row did to a node.
func (e *env) recoverNode(ctx context.Context, n *node) error {
	if n.Backend().Mode() != backend.Serve {
		if err := n.Set(backend.Serve); err != nil {
			return err
		}
	}
	wasDead := n.dead
	n.dead = false
	if n.cluster == second {
		return e.writeRecords()
	}
	if wasDead {
		if err := n.SetReady(ctx, true); err != nil {
			return err
		}
	}
	if n.draining {
		return n.drain(ctx, false)
	}
	return nil
}

// change is what happens in a cluster while a fault lasts.
type change struct {
	name string
	// writes is how many writes of slices it needs at most: what the planner needs, and one more where the source and
	// the probes report it at different times.
	writes    int
	apply     func(context.Context, *env) error
	takesTime bool // times are measured from its end
}

// replacedWrites are those of two replaced nodes: one joins, the other one drains, dies and is deleted.
const replacedWrites = 2 * 4

// The changes.
var (
	joins = change{name: "a node joins", writes: 1, apply: func(ctx context.Context, e *env) error { return e.addNode(ctx, first) }}
	dies  = change{
		name:   "a node dies",
		writes: 2,
		apply:  func(ctx context.Context, e *env) error { return e.killNode(ctx, e.nodesOf(first)[0]) },
	}
	// drains: a draining endpoint still serves.
	drains = change{
		name:   "a node drains",
		writes: 1,
		apply:  func(ctx context.Context, e *env) error { return e.nodesOf(first)[1].drain(ctx, true) },
	}
	deleted = change{
		name:   "a Node is deleted",
		writes: 1,
		apply:  func(ctx context.Context, e *env) error { return e.deleteNode(ctx, e.nodesOf(first)[2]) },
	}
	replaced = change{
		name:      "two nodes are replaced",
		writes:    replacedWrites,
		takesTime: true,
		apply: func(ctx context.Context, e *env) error {
			for _, n := range e.nodesOf(first)[:2] {
				if err := e.replaceNode(ctx, n); err != nil {
					return err
				}
			}
			return nil
		},
	}

	secondJoins = change{
		name:   "a node joins the second cluster",
		writes: 1,
		apply:  func(ctx context.Context, e *env) error { return e.addNode(ctx, second) },
	}

	// The source does not report these two: only the probes can see them.
	backendDies = change{
		name:   "a backend dies",
		writes: 2,
		apply:  func(_ context.Context, e *env) error { return e.nodesOf(first)[0].killBackend() },
	}
	secondBackendDies = change{
		name:   "a backend of the second cluster dies",
		writes: 2,
		apply:  func(_ context.Context, e *env) error { return e.nodesOf(second)[0].killBackend() },
	}
)

// replaceNode does it as the cloud does: a new node joins and has a while to be listed; the old one drains, its Node is
// deleted, and a moment later its machine is gone, whether the slices show it or not.
func (e *env) replaceNode(ctx context.Context, old *node) error {
	if err := e.addNode(ctx, first); err != nil {
		return err
	}
	e.waitCorrectOr(ctx, 1500*time.Millisecond)
	if err := old.drain(ctx, true); err != nil {
		return err
	}
	e.waitCorrectOr(ctx, 500*time.Millisecond)
	if err := e.deleteNode(ctx, old); err != nil {
		return err
	}
	e.waitCorrectOr(ctx, 500*time.Millisecond)
	return e.removeMachine(old)
}

// waitCorrectOr waits until the slices are correct, but no longer than that: who replaces nodes does not look at slices.
func (e *env) waitCorrectOr(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _ = e.waitCorrect(ctx, time.Now())
}

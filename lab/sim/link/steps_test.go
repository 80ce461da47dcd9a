package link

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// steps are what can befall a world, each as often as it is likely.
var steps = []struct {
	name  string
	often int
	take  func(*world)
}{
	{"nodes come", 4, func(w *world) { w.grow(1 + w.rand.IntN(5)); w.spread() }},
	{"nodes leave", 4, func(w *world) { w.shrink(1 + w.rand.IntN(5)); w.spread() }},
	{"nodes change", 6, func(w *world) { w.change(); w.spread() }},
	{"an address is used again", 2, (*world).reuse},
	{"a set of many chunks", 1, func(w *world) { w.grow(300 + w.rand.IntN(900)); w.spread() }},
	{"nobody is left", 1, func(w *world) { w.shrink(len(w.truth)); w.spread() }},
	{"only the status changes", 3, (*world).doubtful},
	{"a storm of status", 1, func(w *world) {
		for range 50 {
			w.status.Observation++
			w.spread()
		}
	}},
	{"the wire is cut", 3, func(w *world) { w.fault(fault{cut: true}) }},
	{"the wire is cut and mended", 3, func(w *world) { w.fault(fault{cut: true}); w.heal() }},
	{"nothing comes from the inventory", 3, func(w *world) { w.fault(fault{swallows: "from"}) }},
	{"nothing gets to the inventory", 3, func(w *world) { w.fault(fault{swallows: "to"}) }},
	{"the wire is slow to deliver", 2, func(w *world) { w.fault(fault{delay: time.Duration(w.rand.Int64N(int64(3 * time.Second)))}) }},
	{"the subscriber reads slowly", 2, func(w *world) { w.fault(fault{slow: 100 + w.rand.IntN(2000)}) }},
	{"the wire is whole again", 8, (*world).heal},
	{"the name leads to the other replica", 3, (*world).switchOver},
	{"a replica no longer learns", 2, func(w *world) { w.replicas[w.rand.IntN(2)].lags = true }},
	{"all replicas learn again", 3, func(w *world) { w.replicas[0].lags, w.replicas[1].lags = false, false; w.spread() }},
	{"a replica crashes and starts anew", 2, func(w *world) { w.restart(true) }},
	{"a replica stops in order and starts anew", 2, func(w *world) { w.restart(false) }},
	{"a replica starts anew and knows nothing yet", 1, (*world).blind},
	{"a breach of the contract", 6, (*world).breach},
}

// step takes one of them.
func (w *world) step() {
	sum := 0
	for _, one := range steps {
		sum += one.often
	}
	at := w.rand.IntN(sum)
	for _, one := range steps {
		if at -= one.often; at < 0 {
			w.steps[one.name]++
			w.dof("%s", one.name)
			one.take(w)
			return
		}
	}
}

// grow adds nodes of new names and addresses, in either pool.
func (w *world) grow(n int) {
	for range n {
		w.named++
		name := fmt.Sprintf("node-%05d", w.named)
		one := &roster.Node{
			Name:      name,
			UID:       "uid-" + name,
			State:     roster.Ready,
			Since:     time.Now(),
			Zone:      []string{"", "a", "b"}[w.rand.IntN(3)],
			Hostname:  []string{"", "db-0", "db-1"}[w.named%3],
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(w.named >> 16), byte(w.named >> 8), byte(w.named)})},
			Labels:    map[string]string{"pool": []string{"blue", "blue", "red"}[w.rand.IntN(3)], "rack": fmt.Sprint(w.rand.IntN(4))},
		}
		if w.rand.IntN(3) == 0 {
			v6 := netip.AddrFrom16([16]byte{0xfd, 14: byte(w.named >> 8), 15: byte(w.named)})
			one.Addresses = append(one.Addresses, v6)
		}
		w.truth[name] = one
	}
}

// shrink takes nodes away.
func (w *world) shrink(n int) {
	for range n {
		names := w.names()
		if len(names) == 0 {
			return
		}
		at := w.rand.IntN(len(names))
		if n == len(names) { // all of them, in one go
			clear(w.truth)
			return
		}
		delete(w.truth, names[at])
	}
}

// change alters some nodes: their states, pools and UIDs.
func (w *world) change() {
	for _, name := range w.names() {
		if w.rand.IntN(4) > 0 {
			continue
		}
		one := *w.truth[name]
		switch w.rand.IntN(3) {
		case 0:
			one.State, one.Since = roster.NodeState(1+w.rand.IntN(3)), time.Now()
		case 1:
			one.Labels = map[string]string{"pool": []string{"blue", "red"}[w.rand.IntN(2)], "rack": fmt.Sprint(w.rand.IntN(4))}
		case 2:
			one.UID = fmt.Sprintf("uid-%s-%d", name, w.rand.IntN(1000))
		}
		w.truth[name] = &one
	}
}

// reuse has a node of a new name come with the address of one that leaves.
func (w *world) reuse() {
	names := w.names()
	if len(names) == 0 {
		return
	}
	old := w.truth[names[w.rand.IntN(len(names))]]
	w.named++
	one := *old
	one.Name = fmt.Sprintf("node-%05d", w.named)
	one.UID = "uid-" + one.Name
	delete(w.truth, old.Name)
	w.truth[one.Name] = &one
	w.spread()
}

// doubtful changes what the roster is worth, or tells of an observation.
func (w *world) doubtful() {
	now := time.Now()
	part := func() roster.PartStatus {
		if w.rand.IntN(2) == 0 {
			return roster.PartStatus{Sync: roster.Synced, Since: now}
		}
		return roster.PartStatus{Sync: roster.Degraded, Since: now, Reason: fmt.Sprintf("the API answers %d", 500+w.rand.IntN(5))}
	}
	w.status.Membership, w.status.Addresses = part(), part()
	w.status.Observation += uint64(w.rand.IntN(2))
	w.status.ObservedAt = now
	w.spread()
}

func (w *world) switchOver() {
	w.active = 1 - w.active
	w.wire.lead(w.replicas[w.active])
	w.wire.reset()
	w.disturbed = time.Now()
}

func (w *world) fault(f fault) {
	dead := f.cut || f.swallows == "from"
	switch {
	case !dead:
		w.broke = time.Time{}
	case w.broke.IsZero():
		w.broke = time.Now()
	}
	w.disturbed = time.Now()
	w.wire.set(f)
}

// restart ends the life of a replica, and begins another one with what is true by then.
func (w *world) restart(crash bool) int {
	i := w.rand.IntN(2)
	w.disturbed = time.Now()
	if err := w.replicas[i].end(crash); err != nil {
		w.wrongf("%v", err)
	}
	w.begin(i)
	return i
}

// blind is a start that takes its time: no set is told before the first word.
func (w *world) blind() {
	was := w.status
	w.status = roster.Status{
		Membership: roster.PartStatus{Sync: roster.Unsynced, Since: time.Now(), Reason: "starting"},
		Addresses:  roster.PartStatus{Sync: roster.Unsynced, Since: time.Now()},
	}
	i := w.restart(true)
	w.status = was
	w.replicas[i].lags = true // until all learn again
}

func (w *world) breach() {
	way, times := w.rand.IntN(len(tampering)), 1+w.rand.IntN(3)
	w.dof("  %d × %s", times, tampering[way].name)
	w.disturbed = time.Now()
	w.tamper.begin(way, times)
}

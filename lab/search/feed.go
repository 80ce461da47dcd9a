package search

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// start is when each world begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// window is how many changes back the replicas of this model can resume.
const window = 2

// feedWorld is the feed: two replicas of an inventory, each with a life and a set of its own, and one
// client that follows one of them or none. A replica's answers come from feed.Store and are cut into
// messages by nodeserver, and once more into single entries, as a server of small messages may. The
// client is subscriber.Mirror. Each message is delivered, lost on its way (a proxy's mistake, or a
// bug's: the digest is there for it), or cut off with all that follow it.
type feedWorld struct {
	nodes    int
	replicas [2]replicaOf
	view     *subscriber.Mirror
	viewed   []byte // its portrait
	link     link
}

// set is what a replica knows of each node: nothing, or one of the values of node.
type set [3]uint8

// The values of a node in a set.
const (
	absent  uint8 = iota
	atHome        // READY, at its own address
	sick          // NOT_READY, at its own address
	swapped       // READY, at the address of the next node
)

type replicaOf struct {
	store *feed.Store
	asked *sync.Mutex // a store remembers what it answered last, and worlds share it
	was   []byte      // its portrait
	lives int
	told  bool
	set   set
}

// link is the client's stream.
type link struct {
	to      int // the replica; nobody: there is no stream
	at      *feed.Position
	word    source.Status
	queue   [][]byte // messages under way
	promise set      // what the last of them makes the client's set
	lost    bool     // one of this stream was lost
}

const nobody = -1

// Feed returns the model of the feed with up to three nodes. At first the client is in step with the
// first replica, and the second has the same set.
func Feed(nodes int) World {
	w := &feedWorld{nodes: nodes, view: subscriber.NewMirror(), link: link{to: nobody}}
	for r := range w.replicas {
		w.replicas[r].start(r)
		for n := range nodes {
			w.replicas[r].alter(n, atHome)
		}
		w.replicas[r].tell()
	}
	if err := w.settle(0); err != nil {
		panic(err) // the other steps would find it too
	}
	return w
}

func (r *replicaOf) epoch(number int) string { return fmt.Sprintf("%c%d", 'a'+number, r.lives) }

// start begins another life, which knows what the last one knew, and is not to tell it yet.
func (r *replicaOf) start(number int) {
	r.lives++
	r.store, r.asked, r.told = feed.NewStoreWithWindow(r.epoch(number), feed.View{}, window), new(sync.Mutex), false
	for n, value := range r.set {
		if value != absent {
			r.store.Apply([]roster.Change{{Name: name(n), Node: nodeOf(n, value)}})
		}
	}
	r.store.SetStatus(status(false))
	r.draw()
}

// tell gives the first word.
func (r *replicaOf) tell() {
	r.own()
	r.told = true
	r.store.SetStatus(status(true))
	r.draw()
}

// alter gives a node another value.
func (r *replicaOf) alter(n int, value uint8) {
	r.own()
	c := roster.Change{Name: name(n)}
	if value != absent {
		c.Node = nodeOf(n, value)
	}
	r.store.Apply([]roster.Change{c})
	r.set[n] = value
	r.draw()
}

// swap has the first two nodes exchange their addresses, as the roster does: in one go.
func (r *replicaOf) swap() {
	r.own()
	value := swapped
	if r.set[0] == swapped {
		value = atHome
	}
	r.set[0], r.set[1] = value, value
	r.store.Apply([]roster.Change{{Name: name(0), Node: nodeOf(0, value)}, {Name: name(1), Node: nodeOf(1, value)}})
	r.draw()
}

// own makes the store one that no other world has.
func (r *replicaOf) own() {
	r.asked.Lock()
	defer r.asked.Unlock()
	r.store, r.asked = replica(r.store, reflect.TypeFor[*feed.Entry]()), new(sync.Mutex)
}

// draw takes the store's portrait. It asks for the whole set first: then no later question alters
// more of the store than its last answer, and worlds may share it.
func (r *replicaOf) draw() {
	r.store.Snapshot()
	r.was = paint(start, 0, r.store)
}

func status(told bool) source.Status {
	synced := source.PartStatus{Sync: source.Synced, Since: start}
	s := source.Status{Membership: synced, Addresses: synced, Observation: 1, ObservedAt: start, Publishable: told}
	if !told {
		s.Observation, s.ObservedAt = 0, time.Time{}
		s.Membership.Sync, s.Addresses.Sync = source.Unsynced, source.Unsynced
	}
	return s
}

func name(n int) string { return fmt.Sprint("node-", n) }

// address is that of a node.
func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func nodeOf(n int, value uint8) *roster.Node {
	node := &roster.Node{Name: name(n), UID: "uid-" + name(n), State: source.Ready, Since: start, Addresses: []netip.Addr{address(n)}}
	switch value {
	case sick:
		node.State = source.NotReady
	case swapped:
		node.Addresses[0] = address(1 - n)
	}
	return node
}

// feedStep is one thing that can happen.
type feedStep struct {
	does    func(w *feedWorld, s feedStep) error
	replica int
	node    int
	value   uint8
	says    string
}

func (w *feedWorld) steps() (all []feedStep) {
	for r := range w.replicas {
		of := &w.replicas[r]
		away := of.set[0] == swapped
		for n := range w.nodes {
			for _, value := range []uint8{absent, atHome, sick} {
				if value != of.set[n] && (!away || n > 1) {
					all = append(all, feedStep{does: (*feedWorld).change, replica: r, node: n, value: value, says: "changes"})
				}
			}
		}
		if away || w.nodes > 1 && of.set[0] == atHome && of.set[1] == atHome {
			all = append(all, feedStep{does: (*feedWorld).exchange, replica: r, says: "sees its first nodes exchange their addresses"})
		}
		if !of.told {
			all = append(all, feedStep{does: (*feedWorld).firstWord, replica: r, says: "gives its first word"})
		}
		all = append(all, feedStep{does: (*feedWorld).restart, replica: r, says: "starts again"})
		if w.link.to == nobody {
			all = append(all, feedStep{does: (*feedWorld).connect, replica: r, says: "is connected to"})
		}
	}
	if w.link.to == nobody {
		return all
	}
	if _, news := w.news(); news || len(w.link.queue) > 0 {
		all = append(all, feedStep{does: (*feedWorld).deliver, says: "a message arrives"}, feedStep{does: (*feedWorld).lose, says: "a message is lost"})
	}
	return append(all, feedStep{does: (*feedWorld).cut, says: "the stream is cut"})
}

// Steps and the others are those of a World.
func (w *feedWorld) Steps() int { return len(w.steps()) }

// Name says what a step is.
func (w *feedWorld) Name(step int) string {
	s := w.steps()[step]
	switch {
	case s.says == "changes":
		return fmt.Sprintf("replica %c sees %s become %s", 'a'+s.replica, name(s.node), [...]string{"absent", "READY", "NOT_READY"}[s.value])
	case strings.HasPrefix(s.says, "a message"), s.says == "the stream is cut":
		return s.says
	default:
		return fmt.Sprintf("replica %c %s", 'a'+s.replica, s.says)
	}
}

// Take lets it happen.
func (w *feedWorld) Take(step int) (World, error) {
	s := w.steps()[step]
	to := *w
	return &to, s.does(&to, s)
}

func (w *feedWorld) change(s feedStep) error {
	w.replicas[s.replica].alter(s.node, s.value)
	return nil
}

func (w *feedWorld) exchange(s feedStep) error {
	w.replicas[s.replica].swap()
	return nil
}

func (w *feedWorld) firstWord(s feedStep) error {
	w.replicas[s.replica].tell()
	return nil
}

func (w *feedWorld) restart(s feedStep) error {
	if w.link.to == s.replica {
		w.link = link{to: nobody}
	}
	w.replicas[s.replica].start(s.replica)
	return nil
}

func (w *feedWorld) cut(feedStep) error {
	w.link = link{to: nobody}
	return nil
}

// connect opens a stream with the cursor and digest that the client holds.
func (w *feedWorld) connect(s feedStep) error {
	w.touch()
	w.view.BeginStream()
	w.link = link{to: s.replica}
	if cursor, digest, ok := w.view.ResumePoint(); ok {
		w.link.at = &feed.Position{Epoch: cursor.Epoch, Revision: cursor.Revision, Digest: digest}
	}
	w.viewed = paint(start, 0, w.view)
	return nil
}

func (w *feedWorld) touch() { w.view = replica(w.view, reflect.TypeFor[*subscriber.Member]()) }

// news is what the replica would tell now; false: a heartbeat.
func (w *feedWorld) news() (u feed.Update, news bool) {
	of := &w.replicas[w.link.to]
	of.asked.Lock()
	defer of.asked.Unlock()
	u = of.store.Since(w.link.at)
	return u, !u.Empty() || !feed.SameStatus(u.Status, w.link.word)
}

// cutUp makes messages of one entry each, as rule R3 allows.
func cutUp(m *inventoryv1.WatchNodesResponse) (all []*inventoryv1.WatchNodesResponse) {
	blank := func() *inventoryv1.WatchNodesResponse { return &inventoryv1.WatchNodesResponse{Status: m.GetStatus()} }
	for _, removed := range m.GetRemoved() {
		one := blank()
		one.Removed = []string{removed}
		all = append(all, one)
	}
	for _, upsert := range m.GetUpserts() {
		one := blank()
		one.Upserts = []*inventoryv1.Node{upsert}
		all = append(all, one)
	}
	if len(all) == 0 {
		return []*inventoryv1.WatchNodesResponse{m}
	}
	all[0].Reset_ = m.GetReset_()
	last := all[len(all)-1]
	last.Synced, last.Cursor, last.Digest, last.Count = m.GetSynced(), m.GetCursor(), m.GetDigest(), m.GetCount()
	return all
}

// serve has the replica tell what is new, if nothing is under way. When exactly it looks makes no
// difference to anybody until the first of its messages arrives, or is lost.
func (w *feedWorld) serve() error {
	if len(w.link.queue) > 0 {
		return nil
	}
	of := &w.replicas[w.link.to]
	u, _ := w.news()
	if _, digest, ok := w.view.ResumePoint(); ok && !w.link.lost && u.Synced && digest == u.At.Digest && len(u.Upserts)+len(u.Removed) > 0 {
		return fmt.Errorf("resume is dear: the client holds what there is, and is told %d changes", len(u.Upserts)+len(u.Removed))
	}
	w.link.queue, w.link.promise, w.link.word = nil, of.set, u.Status
	for m := range nodeserver.Messages(u, func() time.Time { return start }) {
		for _, one := range cutUp(m) {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(one)
			if err != nil {
				panic(err) // of a message just made
			}
			w.link.queue = append(w.link.queue, b)
		}
	}
	if u.Synced {
		w.link.at = &u.At
	}
	return nil
}

func (w *feedWorld) lose(feedStep) error {
	if err := w.serve(); err != nil {
		return err
	}
	w.link.queue, w.link.lost = w.link.queue[1:], true
	return nil
}

// deliver hands the client its next message.
func (w *feedWorld) deliver(feedStep) error {
	if err := w.serve(); err != nil {
		return err
	}
	w.touch()
	defer func() { w.viewed = paint(start, 0, w.view) }()
	m := &inventoryv1.WatchNodesResponse{}
	if err := proto.Unmarshal(w.link.queue[0], m); err != nil {
		panic(err) // of a message just marshalled
	}
	w.link.queue = w.link.queue[1:]
	before := w.view.Snapshot().Generation
	synced, err := w.view.Apply(start, m)
	switch {
	case err != nil && !w.link.lost:
		return fmt.Errorf("an honest replica is accused of a breach: %w", err)
	case err != nil:
		w.view.ClearCursor()
		w.link = link{to: nobody}
	case synced:
		if got := w.held(); got != w.link.promise {
			return fmt.Errorf("lost delete, or worse: the client is synced and holds %s, the replica had %s", got.String(), w.link.promise.String())
		}
		return nil
	}
	if w.view.Snapshot().Generation != before {
		return errors.New("the client's set changed without a synced message")
	}
	return nil
}

// held is the client's set, in our own words.
func (w *feedWorld) held() (all set) {
	for _, m := range w.view.Snapshot().Members {
		for n := range w.nodes {
			if m.Name != name(n) {
				continue
			}
			switch {
			case m.State == subscriber.NotReady && m.Addresses[0] == address(n):
				all[n] = sick
			case m.State == subscriber.Ready && m.Addresses[0] == address(n):
				all[n] = atHome
			case m.State == subscriber.Ready && n < 2 && m.Addresses[0] == address(1-n):
				all[n] = swapped
			}
		}
	}
	return all
}

// rounds is how many steps of its own a client and a replica at rest may take until nothing is new.
const rounds = 24

// Check lets all faults stop, and asks that the client ends with the set of the replica that it follows,
// whichever that is, and that there is nothing more to tell then.
func (w *feedWorld) Check() error {
	for r := range w.replicas {
		if !w.replicas[r].told || w.link.to != nobody && w.link.to != r {
			continue
		}
		rest := *w
		if err := rest.settle(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *feedWorld) settle(r int) error {
	streams, beaten := 0, false // whether a heartbeat said all that there is
	for range rounds {
		switch {
		case w.link.to == nobody:
			if streams++; streams > 2 {
				return fmt.Errorf("livelock: at rest, and a third stream to replica %c is needed", 'a'+r)
			}
			beaten = false
			if err := w.connect(feedStep{replica: r}); err != nil {
				return err
			}
		case len(w.link.queue) > 0:
			if err := w.deliver(feedStep{}); err != nil {
				return fmt.Errorf("at rest: %w", err)
			}
		case beaten:
			if got, want := w.held(), w.replicas[r].set; got != want {
				return fmt.Errorf("divergence: at rest the client holds %s, replica %c has %s", got.String(), 'a'+r, want.String())
			}
			return nil
		default:
			_, news := w.news()
			beaten = !news
			if err := w.serve(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("livelock: at rest, and after %d steps there is still something to tell", rounds)
}

// Key encodes the world.
func (w *feedWorld) Key() []byte {
	k := &portrait{out: append([]byte(nil), w.viewed...)}
	for r := range w.replicas {
		of := &w.replicas[r]
		k.out = append(k.out, of.was...)
		k.out = append(k.out, of.set[:]...)
	}
	k.number(uint64(w.link.to + 1))
	if w.link.at != nil {
		k.out = append(k.out, w.link.at.Epoch...)
		k.number(w.link.at.Revision)
		k.out = append(k.out, w.link.at.Digest[:]...)
	}
	k.number(w.link.word.Observation)
	k.number(uint64(len(w.link.queue)))
	for _, m := range w.link.queue {
		k.number(uint64(len(m)))
		k.out = append(k.out, m...)
	}
	k.out = append(k.out, w.link.promise[:]...)
	if w.link.lost {
		k.number(1)
	}
	return k.out
}

func (s set) String() string {
	var words []string
	for n, value := range s {
		if value != absent {
			words = append(words, fmt.Sprintf("%d:%s", n, [...]string{"", "ready", "sick", "swapped"}[value]))
		}
	}
	return "{" + strings.Join(words, " ") + "}"
}

// String pictures the world.
func (w *feedWorld) String() string {
	following := "nobody"
	if w.link.to != nobody {
		following = fmt.Sprintf("replica %c, %d messages under way", 'a'+w.link.to, len(w.link.queue))
	}
	cursor, _, _ := w.view.ResumePoint()
	a, b := &w.replicas[0], &w.replicas[1]
	return fmt.Sprintf("%s has %s, %s has %s; the client holds %s at %s/%d and follows %s",
		a.epoch(0), a.set, b.epoch(1), b.set, w.held(), cursor.Epoch, cursor.Revision, following)
}

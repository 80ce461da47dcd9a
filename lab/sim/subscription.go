package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// silentFor is how long the product's subscriber waits for a message.
const silentFor = 15 * time.Second

// subscription follows one inventory for a writer, by the product's view and schedule. The
// conversation around them is that of the product's shell, whose goroutines cannot be stepped.
type subscription struct {
	*writer

	cluster     *cluster
	wire        *wire
	replica     *replica // that there is a connection to
	replicaLife int

	view     *subscriber.Mirror
	schedule subscriber.Schedule
	snapshot subscriber.Snapshot
	alive    bool

	current *stream
	synced  time.Time
	silence *event

	told    oracle.Told       // to the oracle
	members []*verdict.Member // what it was told
}

func newSubscription(w *writer, c *cluster, line *wire) *subscription {
	s := &subscription{writer: w, cluster: c, wire: line, view: subscriber.NewMirror()}
	s.publish(time.Time{})
	return s
}

func (s *subscription) String() string { return s.name + " of " + s.cluster.name }

// Use is what the inventory says, as far as the writer knows. It and the rest do nothing: the writer always subscribes,
// and is poked.
func (s *subscription) Use(string, string) subscriber.Snapshot { return s.snapshot }
func (s *subscription) Leave(string)                           {}
func (s *subscription) Changed() <-chan struct{}               { return nil }
func (s *subscription) TakeChanged() map[string]struct{}       { return nil }

func (s *subscription) converse() {
	s.view.BeginStream()
	s.synced = time.Time{}
	s.current = s.open()
	s.listen()
}

// open calls WatchNodes with what the view holds now.
func (s *subscription) open() *stream {
	req := &inventoryv1.WatchNodesRequest{}
	if cursor, digest, ok := s.view.ResumePoint(); ok {
		req.Cursor = &inventoryv1.Cursor{Epoch: cursor.Epoch, Revision: cursor.Revision}
		req.Digest = digest[:]
	}
	st := &stream{sub: s}
	st.dial(req)
	return st
}

// listen starts the watch for silence anew.
func (s *subscription) listen() {
	s.silence.cancel()
	s.silence = s.at(time.Now().Add(silentFor), func() { s.end(errors.New("silence")) })
}

// receive takes a message of a stream.
func (s *subscription) receive(st *stream, m *inventoryv1.WatchNodesResponse) {
	if !st.closed {
		s.take(m)
	}
}

func (s *subscription) take(m *inventoryv1.WatchNodesResponse) {
	now := time.Now()
	synced, err := s.view.Apply(now, m)
	if err != nil {
		s.end(err)
		return
	}
	if synced && s.synced.IsZero() {
		s.synced = now
	}
	s.alive = true
	s.publish(now)
	s.listen()
}

// broken takes in that a stream has ended.
func (s *subscription) broken(st *stream, err error) {
	if !st.closed {
		s.end(err)
	}
}

// end is the end of a conversation, and how the product goes on after it.
func (s *subscription) end(err error) {
	s.silence.cancel()
	s.current.close()
	s.current, s.alive = nil, false
	s.view.BeginStream()
	s.publish(time.Now())
	var lasted time.Duration
	if !s.synced.IsZero() {
		lasted = time.Since(s.synced)
	}
	var breach *subscriber.Violation
	if errors.As(err, &breach) {
		s.view.ClearCursor()
	}
	wait := s.schedule.Next(lasted, breach != nil, s.wire.rand.Float64())
	s.tellf("%s: the stream ended, again in %s: %v", s, wait.Truncate(time.Millisecond), err)
	s.at(time.Now().Add(wait), s.converse)
}

// publish makes known what came at this time.
func (s *subscription) publish(now time.Time) {
	snap := s.view.Snapshot()
	snap.Source, snap.Connected, snap.ChangedAt = s.cluster.name, s.alive, now
	old := s.snapshot
	news := old.Differs(snap)
	if !news {
		snap.ChangedAt = old.ChangedAt
	}
	s.snapshot = snap
	s.confide()
	if !news {
		return
	}
	if s.trace != nil {
		s.tellf("%s hears: %s", s, summary(snap))
	}
	s.poke()
}

// confide tells the oracle what the writer holds.
func (s *subscription) confide() {
	snap := s.snapshot
	t := oracle.Told{
		Writer: s.name, Source: s.cluster.name, Ever: snap.EverSynced, Synced: snap.SyncedInStream, Alive: snap.Connected,
		Membership: snap.Membership.State == subscriber.Synced, Word: snap.MembershipSyncedAt,
		Epoch: snap.ObservationEpoch, Observation: snap.Observation, Received: snap.ObservationReceivedAt,
		Members: s.told.Members,
	}
	if !subscriber.SameSet(s.members, snap.Members) {
		s.members, t.Members = snap.Members, nil
		states := map[verdict.State]oracle.State{
			verdict.Ready:    oracle.Ready,
			verdict.Draining: oracle.Draining,
			verdict.NotReady: oracle.NotReady,
		}
		at := map[string]int{} // in t.Members, by name
		for _, m := range snap.Members {
			if n, again := at[m.Name]; again {
				t.Members[n].Addresses = append(t.Members[n].Addresses, m.Address)
				continue
			}
			at[m.Name] = len(t.Members)
			is := oracle.Member{Name: m.Name, Addresses: []netip.Addr{m.Address}, State: states[m.State], Labels: m.Labels}
			for _, p := range m.Serves {
				is.Port = p.Number
			}
			t.Members = append(t.Members, is)
		}
		slices.SortFunc(t.Members, func(a, b oracle.Member) int { return strings.Compare(a.Name, b.Name) })
		s.see(oracle.Holds{Holder: s.name, Peer: s.cluster.name, Nodes: snap.Nodes})
	}
	s.told = t
	s.see(t)
}

func summary(snap subscriber.Snapshot) string {
	counts := map[verdict.State]int{}
	for _, m := range snap.Members {
		counts[m.State]++
	}
	text := fmt.Sprintf("%d ready, %d draining, %d not ready, observation %d; membership %s, addresses %s", counts[verdict.Ready],
		counts[verdict.Draining], counts[verdict.NotReady], snap.Observation, snap.Membership.StateName(), snap.Addresses.StateName())
	if !snap.Connected {
		text += "; not alive"
	}
	return text
}

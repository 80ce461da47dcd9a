// Package watchfeed is a subscriber of the feed that does nothing but remember: it takes the
// contract in inventory.proto at its word and keeps every message with the set that was in
// force after it. It promises to resume as rule R5 and R6 have it, and to end with an error at
// the first breach that it can see; it refuses to share code with the writer's subscriber,
// whose mistakes it would repeat.
package watchfeed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// Word is a message, and what was in force after it. It is immutable.
type Word struct {
	At     time.Time
	Synced bool // the message made a set current, or confirmed it

	Set    map[string]*inventoryv1.Node // in force, by name; nil: there has been none yet
	Digest string                       // of that set, as bytes

	Membership, Addresses Part
	Observation           uint64
}

// Part is what a part of the source is worth.
type Part struct {
	State  inventoryv1.SyncState
	Reason string
}

// Names are those of the set in force, sorted.
func (w Word) Names() []string { return slices.Sorted(maps.Keys(w.Set)) }

// Recorder remembers all that the feed says while Run runs.
type Recorder struct {
	client inventoryv1.InventoryServiceClient

	mu      sync.Mutex
	words   []Word
	changed chan struct{} // closed and replaced at each word
}

// New returns a recorder that has heard nothing yet.
func New(conn grpc.ClientConnInterface) *Recorder {
	return &Recorder{client: inventoryv1.NewInventoryServiceClient(conn), changed: make(chan struct{})}
}

// again is the pause before a stream is begun anew. Rule R14 wants more of a real subscriber.
const again = 100 * time.Millisecond

// Run listens until ctx ends; its error is then nil. A stream that ends with UNAVAILABLE is
// resumed.
func (r *Recorder) Run(ctx context.Context) error {
	var held state
	for ctx.Err() == nil {
		err := r.stream(ctx, &held)
		if status.Code(err) != codes.Unavailable && ctx.Err() == nil {
			return fmt.Errorf("record the feed: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	return nil
}

// state is what a client holds (the life of a stream, in the contract).
type state struct {
	set    map[string]*inventoryv1.Node // nil: none
	cursor *inventoryv1.Cursor
	digest []byte
}

func (r *Recorder) stream(ctx context.Context, held *state) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &inventoryv1.WatchNodesRequest{Cursor: held.cursor, Digest: held.digest}
	stream, err := r.client.WatchNodes(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	var staged map[string]*inventoryv1.Node // nil: nothing is staged
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if staged, err = held.take(staged, m); err != nil {
			return err
		}
		r.record(held, m)
	}
}

// take applies a message, and returns what is staged after it.
func (s *state) take(staged map[string]*inventoryv1.Node, m *inventoryv1.WatchNodesResponse) (map[string]*inventoryv1.Node, error) {
	switch {
	case m.GetStatus() == nil:
		return nil, errors.New("breach: a message without status")
	case m.GetReset_():
		staged = map[string]*inventoryv1.Node{}
	case staged == nil:
		staged = maps.Clone(s.set)
		if staged == nil {
			staged = map[string]*inventoryv1.Node{}
		}
	}
	for _, name := range m.GetRemoved() {
		if staged[name] == nil {
			return nil, fmt.Errorf("breach: the removal of %q, which the set does not have", name)
		}
		delete(staged, name)
	}
	for _, node := range m.GetUpserts() {
		if len(node.GetFingerprint()) != 16 || len(node.GetAddresses()) == 0 {
			return nil, fmt.Errorf("breach: the node %v", node)
		}
		staged[node.GetName()] = node
	}
	if !m.GetSynced() {
		return staged, nil
	}
	digest := make([]byte, 16)
	owner := map[string]string{}
	for name, node := range staged {
		for i, b := range node.GetFingerprint() {
			digest[i] ^= b
		}
		for _, address := range node.GetAddresses() {
			if other := owner[address]; other != "" {
				return nil, fmt.Errorf("breach: %s and %s both have %s", name, other, address)
			}
			owner[address] = name
		}
	}
	if !bytes.Equal(digest, m.GetDigest()) || int(m.GetCount()) != len(staged) {
		return nil, fmt.Errorf("breach: %d nodes with the digest %x are told as %d with %x", len(staged), digest, m.GetCount(),
			m.GetDigest())
	}
	s.set, s.cursor, s.digest = staged, m.GetCursor(), m.GetDigest()
	return nil, nil
}

func (r *Recorder) record(held *state, m *inventoryv1.WatchNodesResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := m.GetStatus()
	r.words = append(r.words, Word{
		At: time.Now(), Synced: m.GetSynced(), Set: held.set, Digest: string(held.digest),
		Membership:  Part{is.GetMembership().GetState(), is.GetMembership().GetReason()},
		Addresses:   Part{is.GetAddresses().GetState(), is.GetAddresses().GetReason()},
		Observation: is.GetObservation(),
	})
	close(r.changed)
	r.changed = make(chan struct{})
}

// Count is how many words there have been: a mark for Since and Wait.
func (r *Recorder) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.words)
}

// Since are the words from the mark on, oldest first, led by the one before the mark: that
// one is in force then.
func (r *Recorder) Since(mark int) []Word {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.words[max(mark-1, 0):])
}

// Wait returns the first word from the mark on that is as told.
func (r *Recorder) Wait(ctx context.Context, mark int, is func(Word) bool) (Word, error) {
	for {
		r.mu.Lock()
		words, changed := r.words, r.changed
		r.mu.Unlock()
		for ; mark < len(words); mark++ {
			if is(words[mark]) {
				return words[mark], nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			last := "nothing"
			if len(words) > 0 {
				w := words[len(words)-1]
				last = fmt.Sprintf("synced %t, %d nodes %q, membership %v, addresses %v, observation %d", w.Synced, len(w.Set), w.Names(),
					w.Membership, w.Addresses, w.Observation)
			}
			return Word{}, fmt.Errorf("the feed does not say so; its last word is: %s: %w", last, context.Cause(ctx))
		}
	}
}

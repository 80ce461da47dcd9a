package link

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

type message = inventoryv1.WatchNodesResponse

// otherEpoch is one that no inventory has.
const otherEpoch = "other"

// tampering alters what an inventory sends, so that it breaks the contract. Each way reports
// whether it had anything to alter; a message that is nil afterwards is not sent.
var tampering = []struct {
	name  string
	alter func(**message) bool
}{
	{"a wrong digest", func(m **message) bool {
		return (*m).GetSynced() && alter(func() { (*m).Digest[3] ^= 1 })
	}},
	{"a wrong count", func(m **message) bool {
		return (*m).GetSynced() && alter(func() { (*m).Count++ })
	}},
	{"a removal that is lost", func(m **message) bool {
		return len((*m).GetRemoved()) > 0 && alter(func() { (*m).Removed = (*m).GetRemoved()[1:] })
	}},
	{"an upsert that is lost", func(m **message) bool {
		return len((*m).GetUpserts()) > 0 && alter(func() { (*m).Upserts = (*m).GetUpserts()[1:] })
	}},
	{"an upsert twice", func(m **message) bool {
		return len((*m).GetUpserts()) > 0 && alter(func() { (*m).Upserts = append((*m).Upserts, (*m).GetUpserts()[0]) })
	}},
	{"an upsert without a name", func(m **message) bool {
		return len((*m).GetUpserts()) > 0 && alter(func() { (*m).Upserts[0].Name = "" })
	}},
	{"an address of two nodes", func(m **message) bool {
		return len((*m).GetUpserts()) > 1 && alter(func() { (*m).Upserts[0].Addresses = (*m).GetUpserts()[1].GetAddresses() })
	}},
	{"a removal of nobody", func(m **message) bool {
		return (*m).GetSynced() && alter(func() { (*m).Removed = append((*m).Removed, "nobody") })
	}},
	{"another epoch without a reset", func(m **message) bool {
		return (*m).GetSynced() && !(*m).GetReset_() && alter(func() { (*m).Cursor.Epoch = otherEpoch })
	}},
	{"a state without a status", func(m **message) bool {
		return (*m).GetSynced() && alter(func() { (*m).Status = nil })
	}},
	{"a chunk that is lost", func(m **message) bool {
		return !(*m).GetSynced() && len((*m).GetUpserts()) > 0 && alter(func() { *m = nil })
	}},
}

func alter(how func()) bool {
	how()
	return true
}

// tamper has the next messages altered that can be.
type tamper struct {
	mu    sync.Mutex
	way   int
	times int
	done  int
}

func (t *tamper) begin(way, times int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.way, t.times = way, times
}

func (t *tamper) sent(m *message) *message {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == 0 {
		return m
	}
	m = proto.CloneOf(m)
	if tampering[t.way].alter(&m) {
		t.times--
		t.done++
	}
	return m
}

// intercept alters at the client's end of the wire: at the other a message is encoded once for all readers.
func (t *tamper) intercept(
	ctx context.Context,
	desc *grpc.StreamDesc,
	cc *grpc.ClientConn,
	method string,
	streamer grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	cs, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &tampered{cs, t}, nil
}

type tampered struct {
	grpc.ClientStream

	by *tamper
}

func (s *tampered) RecvMsg(to any) error {
	for {
		var m message
		if err := s.ClientStream.RecvMsg(&m); err != nil {
			return err
		}
		if altered := s.by.sent(&m); altered != nil {
			proto.Merge(to.(*message), altered)
			return nil
		}
	}
}

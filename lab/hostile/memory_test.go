package hostile

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// glutton sends what it was given, as fast as it is read, and then nothing more.
type glutton struct {
	inventoryv1.UnimplementedInventoryServiceServer

	messages func(yield func([]byte) bool)
	over     chan struct{}
}

// WatchNodes has one stream; later ones are silent.
func (g *glutton) WatchNodes(_ *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[message]) error {
	select {
	case <-g.over:
	default:
		defer close(g.over)
		for b := range g.messages {
			if err := to.SendMsg(b); err != nil {
				return err
			}
		}
	}
	<-to.Context().Done()
	return to.Context().Err()
}

// crammed is a node with as much as the contract allows.
func crammed(i int) *node {
	n := aNode(fmt.Sprintf("node-%06d-%s", i, strings.Repeat("n", 200)),
		netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
	n.Uid, n.Labels = "", map[string]string{}
	for k := range 256 {
		n.Labels[fmt.Sprintf("%03d%s", k, strings.Repeat("k", 300))] = strings.Repeat("v", 63)
	}
	return n
}

// small is a node with as little as the contract allows.
func small(i int) *node {
	return aNode(fmt.Sprint(i), netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
}

// chunked are nodes, n a message, as a reset that is not synced.
func chunked(total, n int, of func(int) *node) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for from := 0; from < total; from += n {
			m := &message{Reset_: from == 0, Status: fresh(1)}
			for i := from; i < min(from+n, total); i++ {
				m.Upserts = append(m.Upserts, of(i))
			}
			b, err := proto.Marshal(m)
			if err != nil {
				panic(err)
			}
			if !yield(b) {
				return
			}
		}
	}
}

func TestWhatAHostileInventoryCanHaveTheWriterHoldIsBounded(t *testing.T) {
	empty := func(number protowire.Number) []byte {
		one := protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), nil)
		return []byte(strings.Repeat(string(one), 4<<20/len(one)))
	}
	for _, one := range []struct {
		name     string
		most     uint64 // MB of live memory while the stream lasts
		breaches int    // of kind limit
		messages func(func([]byte) bool)
	}{
		{"100,000 nodes, never synced", 100, 0, chunked(100_000, 500, small)},
		{"nodes with all that they may have, without an end", 150, 1, chunked(2_000, 40, crammed)},
		{"names that come and go, without an end", 40, 0, func(yield func([]byte) bool) {
			for round := range 150 {
				m := &message{Reset_: round == 0, Status: fresh(1)}
				for i := range 500 {
					if round > 0 {
						m.Removed = append(m.Removed, fmt.Sprintf("%d-%d-%s", round-1, i, strings.Repeat("n", 200)))
					}
					n := aNode(fmt.Sprintf("%d-%d-%s", round, i, strings.Repeat("n", 200)), fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
					n.Uid = ""
					m.Upserts = append(m.Upserts, n)
				}
				b, err := proto.Marshal(m)
				if err != nil {
					panic(err)
				}
				if !yield(b) {
					return
				}
			}
		}},
		{"two million empty nodes in a message", 40, 1, func(yield func([]byte) bool) { yield(empty(3)) }},
		{"two million empty names in a message", 40, 1, func(yield func([]byte) bool) { yield(empty(4)) }},
		{"two million empty ports in a message", 40, 1, func(yield func([]byte) bool) {
			yield(protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), empty(11)[:4<<20-100]))
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			live, allocated, breaches := feed(t, one.messages)
			if breaches != one.breaches {
				t.Errorf("%d breaches were counted, want %d", breaches, one.breaches)
			}
			t.Logf("%d MB held at most, %d MB allocated on the way", live>>20, allocated>>20)
			if live > one.most<<20 {
				t.Errorf("it has the writer hold %d MB, and at most %d MB are its bound", live>>20, one.most)
			}
		})
	}
}

// feed has a subscriber read messages, and returns the most that was live above what was before,
// all that was allocated, the sender's part included, and how many breaches of a limit were counted.
func feed(t *testing.T, messages func(func([]byte) bool)) (most, allocated uint64, breaches int) {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}))
	g := &glutton{messages: messages, over: make(chan struct{})}
	inventoryv1.RegisterInventoryServiceServer(server, g)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	w := &writer{registry: prometheus.NewRegistry()}
	s := subscriber.New(subscriber.Config{
		Source: "default", Dial: dial(listener), Log: slog.New(slog.DiscardHandler), Metrics: subscriber.NewMetrics(w.registry),
	})
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, stop := context.WithCancel(t.Context())
	s.Use("web/shop", "")
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	look := func() {
		runtime.GC()
		runtime.ReadMemStats(&now)
		if now.HeapAlloc > before.HeapAlloc {
			most = max(most, now.HeapAlloc-before.HeapAlloc)
		}
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-g.over:
			over = true
		case <-tick.C:
		}
		look()
	}
	allocated = now.TotalAlloc - before.TotalAlloc
	stop()
	<-ran
	server.Stop()
	<-served
	return most, allocated, w.breaches(t)["limit"]
}

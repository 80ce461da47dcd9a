package load

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// propagate makes changes one by one, and returns how long each took from the file's
// replacement until the last subscriber had it.
func (s *scene) propagate(n int) (took []time.Duration) {
	s.t.Helper()
	for i := range n {
		a := s.crowd.ExpectChange()
		at := s.flip(i / 2) // each one there and back
		took = append(took, must(s.crowd.Wait(s.t.Context(), a, at, time.Minute))(s.t).Last())
	}
	return took
}

// atMost prints what was measured, and fails above the bound.
func (s *scene) atMost(what string, got, bound float64) {
	s.t.Helper()
	fmt.Fprintf(os.Stdout, "    %s: %.3g, at most %.3g\n", what, got, bound)
	if got > bound {
		s.t.Errorf("%s is %.3g, want at most %.3g", what, got, bound)
	}
}

// A thousand resets at once are the worst that the honest can do: each costs a few messages
// that are under way, and garbage, whatever the size of the set.
func everybodyComes(s *scene) {
	before := s.memory()
	took := s.come()
	after := s.memory()
	fmt.Fprintf(os.Stdout, "    all have the whole set after %s, half of them after %s\n", took.Last().Round(time.Millisecond),
		took.Half().Round(time.Millisecond))
	s.atMost("live memory per subscriber, in KB", (after.Live-before.Live)*1024/subscribers, 200)
	s.atMost(
		"peak memory per subscriber while all get the whole set, in KB",
		(after.Peak-before.Resident)*1024/subscribers,
		1024,
	) // 3,000 with messages of 36 KB
}

// sleep begins a stream and never reads of it.
func (s *scene) sleep(ctx context.Context, conn *grpc.ClientConn) grpc.ServerStreamingClient[inventoryv1.WatchNodesResponse] {
	s.t.Helper()
	stream, err := inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, &inventoryv1.WatchNodesRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.count("the sleeper is a subscriber", subscribers+1)
	return stream
}

func (s *scene) count(what string, want float64) {
	s.t.Helper()
	s.until(what, time.Minute, func() bool {
		return s.metrics().Sum("slicefeed_inventory_subscribers") == want
	})
}

// With and without the sleeper is measured by turns, since the machine is not always as fast.
func oneNeverReads(s *scene) {
	conn, err := grpc.NewClient("passthrough:"+s.address(), grpc.WithStaticStreamWindowSize(64<<10),
		grpc.WithTransportCredentials(credentials.NewTLS(s.as(sleeper))))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	var without, with []time.Duration
	for range changes / few {
		without = append(without, s.propagate(few)...)
		ctx, cancel := context.WithCancel(s.t.Context())
		s.sleep(ctx, conn)
		with = append(with, s.propagate(few)...)
		cancel()
		s.count("the sleeper has gone", subscribers)
	}
	before := s.memory()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	stream := s.sleep(ctx, conn)
	s.propagate(changes)
	s.atMost("median with one who never reads over the median without", median(with).Seconds()/median(without).Seconds(), 2)
	s.atMost("memory grown by one who never reads, in MB", s.memory().Objects-before.Objects, 16)

	s.until("the sleeper was ended as stalled", 2*time.Minute, func() bool {
		return s.metrics().Sum("slicefeed_inventory_streams_ended_total", `reason="stalled"`) == 1
	})
	for err == nil { // what was sent before comes first
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		s.t.Errorf("the sleeper's stream ended with %v, want RESOURCE_EXHAUSTED", err)
	}
}

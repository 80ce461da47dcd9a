package load

import (
	"context"
	"slices"
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
		before := s.crowd.present()
		a := s.crowd.expect(func(s *subscriber) bool { return s.digest != before })
		at := s.fleet.flip(s.t, i/2) // each one there and back
		took = append(took, s.crowd.wait(s.t, a, at, time.Minute).last)
	}
	return took
}

func (s *scene) atMost(what string, got, bound float64) {
	s.t.Helper()
	if got > bound {
		s.t.Errorf("%s is %.3g, want at most %.3g", what, got, bound)
	}
}

func (s *scene) resets() float64 {
	return s.inventory.metrics(s.t).sum("slicefeed_inventory_stream_messages_total", `kind="reset"`)
}

// A thousand resets at once are the worst that the honest can do: each costs a few messages
// that are under way, and garbage, whatever the size of the set.
func everybodyComes(s *scene) {
	before, cpu := s.inventory.memory(s.t), s.inventory.cpu(s.t)
	took := s.crowd.come(s.t)
	s.report.AllSyncedCPU = s.inventory.cpu(s.t) - cpu
	after := s.inventory.memory(s.t)
	r := &s.report.Memory
	bytes := s.crowd.bytes()
	s.report.ResetKB = float64(bytes[len(bytes)/2]) / 1024
	s.report.HalfSynced, s.report.AllSynced = took.half.Seconds(), took.last.Seconds()
	r.EmptyMB, r.CrowdMB, r.CrowdResidentMB, r.PeakMB = before.live, after.live, after.resident, after.peak
	r.PerSubscriberKB = (after.live - before.live) * 1024 / subscribers
	r.PeakPerSubscriberKB = (after.peak - before.resident) * 1024 / subscribers
	s.atMost("live memory per subscriber, in KB,", r.PerSubscriberKB, 200)
	s.atMost("peak memory per subscriber while all get the whole set, in KB,", r.PeakPerSubscriberKB, 1024) // 3,000 with messages of 36 KB
}

func aChange(s *scene) {
	cpu := s.inventory.cpu(s.t)
	s.report.Change = times(s.propagate(changes))
	s.report.ChangeCPU = (s.inventory.cpu(s.t) - cpu) * 1000 / changes
	s.atMost("ms until the last subscriber has a change, p99,", s.report.Change.P99, 5000)
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
	s.inventory.until(s.t, what, time.Minute, func() bool {
		return s.inventory.metrics(s.t).sum("slicefeed_inventory_subscribers") == want
	})
}

// With and without the sleeper is measured by turns, since the machine is not always as fast.
func oneNeverReads(s *scene) {
	r := &s.report.Sleeper
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithStaticStreamWindowSize(64<<10),
		grpc.WithTransportCredentials(credentials.NewTLS(s.inventory.as(s.t, sleeper))))
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
	before := s.inventory.memory(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	stream := s.sleep(ctx, conn)
	began := time.Now()
	s.propagate(changes)
	r.Change, r.Ratio = times(with), times(with).P50/times(without).P50
	r.GrownMB = s.inventory.memory(s.t).objects - before.objects
	s.atMost("median with one who never reads over the median without", r.Ratio, 2)
	s.atMost("memory grown by one who never reads, in MB,", r.GrownMB, 16)

	s.inventory.until(s.t, "the sleeper was ended as stalled", 2*time.Minute, func() bool {
		return s.inventory.metrics(s.t).sum("slicefeed_inventory_streams_ended_total", `reason="stalled"`) == 1
	})
	r.EndedAfter = time.Since(began).Round(time.Second).Seconds()
	for err == nil { // what was sent before comes first
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		s.t.Errorf("the sleeper's stream ended with %v, want RESOURCE_EXHAUSTED", err)
	}
}

func everybodyComesBack(s *scene) {
	r := &s.report.Storm
	resets := s.resets()
	s.crowd.leave(s.t)
	r.UnchangedSeconds = s.crowd.come(s.t).last.Seconds()
	unchanged := s.crowd.bytes()
	r.UnchangedBytes = unchanged[len(unchanged)/2]

	s.crowd.leave(s.t)
	const altered = 5
	was := s.inventory.metrics(s.t).sum("slicefeed_inventory_feed_changes_total")
	var some []int
	for i := range altered {
		some = append(some, 100*i)
	}
	s.fleet.flip(s.t, some...)
	s.inventory.until(s.t, "the changes are in the feed", time.Minute, func() bool {
		return s.inventory.metrics(s.t).sum("slicefeed_inventory_feed_changes_total") >= was+altered
	})
	r.ChangedSeconds = s.crowd.come(s.t).last.Seconds()
	changed := s.crowd.bytes()
	r.ChangedBytes = changed[len(changed)/2]

	reset := s.report.ResetKB * 1024
	s.atMost("most bytes of one who comes back while nothing changed", float64(slices.Max(unchanged)), reset/100)
	s.atMost("most bytes of one who comes back after 5 changes", float64(slices.Max(changed)), float64(slices.Max(unchanged))+2*altered*reset/nodes)
	if got := s.resets(); got != resets {
		s.t.Errorf("%v messages of resets were sent to those who resumed", got-resets)
	}
}

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
		a := s.crowd.ExpectChange()
		at := s.flip(i / 2) // each one there and back
		took = append(took, must(s.crowd.Wait(s.t.Context(), a, at, time.Minute))(s.t).Last())
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
	return s.metrics().Sum("slicefeed_inventory_stream_messages_total", `kind="reset"`)
}

// A thousand resets at once are the worst that the honest can do: each costs a few messages
// that are under way, and garbage, whatever the size of the set.
func everybodyComes(s *scene) {
	before, cpu := s.memory(), s.metrics().CPU()
	took := s.come()
	s.report.AllSyncedCPU = s.metrics().CPU() - cpu
	after := s.memory()
	r := &s.report.Memory
	bytes := s.crowd.Bytes()
	s.report.ResetKB = float64(bytes[len(bytes)/2]) / 1024
	s.report.HalfSynced, s.report.AllSynced = took.Half().Seconds(), took.Last().Seconds()
	r.EmptyMB, r.CrowdMB, r.CrowdResidentMB, r.PeakMB = before.Live, after.Live, after.Resident, after.Peak
	r.PerSubscriberKB = (after.Live - before.Live) * 1024 / subscribers
	r.PeakPerSubscriberKB = (after.Peak - before.Resident) * 1024 / subscribers
	s.atMost("live memory per subscriber, in KB,", r.PerSubscriberKB, 200)
	s.atMost("peak memory per subscriber while all get the whole set, in KB,", r.PeakPerSubscriberKB, 1024) // 3,000 with messages of 36 KB
}

func aChange(s *scene) {
	cpu := s.metrics().CPU()
	s.report.Change = times(s.propagate(changes))
	s.report.ChangeCPU = (s.metrics().CPU() - cpu) * 1000 / changes
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
	s.until(what, time.Minute, func() bool {
		return s.metrics().Sum("slicefeed_inventory_subscribers") == want
	})
}

// With and without the sleeper is measured by turns, since the machine is not always as fast.
func oneNeverReads(s *scene) {
	r := &s.report.Sleeper
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
	began := time.Now()
	s.propagate(changes)
	r.Change, r.Ratio = times(with), times(with).P50/times(without).P50
	r.GrownMB = s.memory().Objects - before.Objects
	s.atMost("median with one who never reads over the median without", r.Ratio, 2)
	s.atMost("memory grown by one who never reads, in MB,", r.GrownMB, 16)

	s.until("the sleeper was ended as stalled", 2*time.Minute, func() bool {
		return s.metrics().Sum("slicefeed_inventory_streams_ended_total", `reason="stalled"`) == 1
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
	s.leave()
	r.UnchangedSeconds = s.come().Last().Seconds()
	unchanged := s.crowd.Bytes()
	r.UnchangedBytes = unchanged[len(unchanged)/2]

	s.leave()
	const altered = 5
	was := s.metrics().Sum("slicefeed_inventory_feed_changes_total")
	var some []int
	for i := range altered {
		some = append(some, 100*i)
	}
	s.flip(some...)
	s.until("the changes are in the feed", time.Minute, func() bool {
		return s.metrics().Sum("slicefeed_inventory_feed_changes_total") >= was+altered
	})
	r.ChangedSeconds = s.come().Last().Seconds()
	changed := s.crowd.Bytes()
	r.ChangedBytes = changed[len(changed)/2]

	reset := s.report.ResetKB * 1024
	s.atMost("most bytes of one who comes back while nothing changed", float64(slices.Max(unchanged)), reset/100)
	s.atMost(
		"most bytes of one who comes back after 5 changes",
		float64(slices.Max(changed)),
		float64(slices.Max(unchanged))+2*altered*reset/nodes,
	)
	if got := s.resets(); got != resets {
		s.t.Errorf("%v messages of resets were sent to those who resumed", got-resets)
	}
}

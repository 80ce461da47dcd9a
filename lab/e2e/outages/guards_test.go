package outages

import (
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestNoMoreThanHalfLeavesAtOnceAndNotTheLast(t *testing.T) {
	const window = 5 * time.Second
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"SHRINK_WINDOW": window.String()}})
	s.StartAll()
	// The guard waits for observations, which an inventory without a READY node makes every few seconds. What passes its
	// probe serves all the same.
	join := func(s *e2e.Setup, n int) []*pair.Worker {
		joined := s.Join(n)
		for _, w := range joined {
			s.Must(w.SetReady(s.Ctx(), false))
		}
		return joined
	}
	workers := join(s, 4)
	writer := s.Writers[0]

	s.Step("of three that leave at once, none does in a new leader's first window, then two, then one", func(s *e2e.Setup) {
		s.Must(writer.Terminate(20 * time.Second))
		for _, w := range workers[1:] {
			s.Must(w.Leave(s.Ctx()))
		}
		begun, before := time.Now(), s.WriteCount()
		s.Must(writer.Start(s.Ctx()))
		for _, left := range []int{2, 1} {
			_, err := s.WaitSlicesSince(s.Ctx(), begun,
				func(all []*discoveryv1.EndpointSlice) bool { return len(pair.Conditions(all)) == left })
			s.Must(err)
		}
		s.Await("the one that stays is ready", pair.AreJust(pair.Ready, workers[0].Address))
		if note := s.AwaitEvent("ShrinkLimited").Note; !strings.Contains(note, "SHRINK_WINDOW") {
			s.T.Errorf("it says %q", note)
		}
		departures := s.WritesSince(before)
		if len(departures) != 2 {
			s.T.Fatalf("the writes were %+v, want two", departures)
		}
		for i, since := range []time.Time{begun, departures[0].At} {
			const rounded = 100 * time.Millisecond // the log has the time of the answer
			if after := departures[i].At.Sub(since); after < window-rounded {
				s.T.Errorf("departure %d came after %s, within the window", i+1, after)
			}
		}
	})

	both := []*pair.Worker{workers[0], join(s, 1)[0]}
	s.Step("when all drain at once, nothing changes", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(s.Inventory.Kill()) // so that it tells both in one message
			for _, w := range both {
				s.Must(w.Drain(s.Ctx(), true))
			}
			s.Must(s.Inventory.Start(s.Ctx()))
			s.AwaitEvent("LastEndpointsKept")
			s.AwaitMetric(writer, `slicefeed_writer_guard_held_endpoints{guard="floor",namespace="web",service="shop"}`, e2e.Equals(2))
		})
		s.Await("both are ready", pair.AreJust(pair.Ready, e2e.Addresses(both)...))
	})
	s.Step("when another one serves, they drain, one after the other", func(s *e2e.Setup) {
		third := join(s, 1)[0]
		s.Await("both drain", pair.Are(pair.Draining, e2e.Addresses(both)...))
		s.Expect(pair.Ready, third)
	})
}

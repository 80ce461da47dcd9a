package attack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// A stolen token can list addresses within the allowlist. To a new leader they look like endpoints that left their source
// all at once, and the guard shrink holds them.
func TestWhatAnAttackerWroteIsTakenOutDuringAPause(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "10m"}})
	s.StartAll()
	workers := s.Join(2)
	s.Await("the workers are ready", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	original := s.Slice().Endpoints
	all := e2e.Addresses(workers)

	s.Step("a new leader keeps what was written with a stolen token", func(s *e2e.Setup) {
		s.Must(s.Writers[0].Terminate(20 * time.Second))
		slice := s.Slice().DeepCopy()
		for n := range 40 {
			endpoint := *original[0].DeepCopy()
			foreign := netip.AddrFrom4([4]byte{10, 0, 1, byte(150 + n)})
			endpoint.Addresses = []string{foreign.String()}
			slice.Endpoints, all = append(slice.Endpoints, endpoint), append(all, foreign)
		}
		s.UpdateSlice(slice)
		s.Must(s.Writers[0].Start(s.Ctx()))
		s.AwaitEvent("ShrinkLimited")
		s.Await("they are still listed", pair.AreJust(pair.Ready, all...))
	})
	s.Step("a person takes them out during a pause, and they do not come back with the next write", func(s *e2e.Setup) {
		s.Annotate(s.Service, "paused", "true")
		s.AwaitEvent("Paused")
		slice := s.Slice().DeepCopy()
		slice.Endpoints = original
		s.UpdateSlice(slice)
		s.Await("they are out", pair.AreJust(pair.Ready, e2e.Addresses(workers)...)) // the watch may tell of it later
		since := time.Now()
		s.Annotate(s.Service, "paused", "")
		s.Await("the next write", pair.AreJust(pair.Ready, e2e.Addresses(append(workers, s.Join(1)...))...))
		s.ExpectAlways(since, "without them", pair.Are(pair.Absent, all[len(workers):]...))
	})
}

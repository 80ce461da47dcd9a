package leader

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// late is a setup with two writers, of which the first reaches its API server through a proxy
// that can keep a write of it back while the other takes over.
func late(t *testing.T, sc e2e.Options) (*e2e.Setup, *apifault.Proxy) {
	t.Helper()
	sc.Writers = 2
	s := e2e.New(t, sc)
	s.IsolateWriters()
	proxy := s.Behind(s.Writers[0])
	s.StartAll()
	s.AwaitMetric(s.Writers[1], e2e.SourceSynced, e2e.Equals(1))
	return s, proxy
}

// arrives waits until the write is under way.
func arrives(s *e2e.Setup, held *apifault.HeldWrite) {
	s.T.Helper()
	select {
	case <-held.Arrived():
	case <-s.Ctx().Done():
		s.T.Fatal("it sends no write")
	}
}

// lands lets the write go on, and wants this answer to it.
func lands(s *e2e.Setup, held *apifault.HeldWrite, want int) {
	s.T.Helper()
	got, err := held.Release(s.Ctx())
	s.Must(err)
	if got != want {
		s.T.Errorf("the late %s was answered %d, want %d", held.Method, got, want)
	}
}

// refused wants a late write to be answered 409 and to change nothing, so that nothing
// has to be repaired.
func refused(s *e2e.Setup, held *apifault.HeldWrite) {
	s.T.Helper()
	old, next := s.Writers[0].Address.String(), s.Writers[1].Address.String()
	slice, before := s.Slice(), s.WriteCount()
	if held.Method != http.MethodDelete && (held.Slice == nil || held.Slice.ResourceVersion == slice.ResourceVersion) {
		s.T.Errorf("the slice is at version %s, and the late write is not older: %v", slice.ResourceVersion, held.Slice)
	}
	lands(s, held, http.StatusConflict)
	s.CatchUp() // takes a write; what had to be repaired would take one more
	all := s.WritesSince(before)
	if len(all) != 2 || all[0].From != old || all[0].Code != http.StatusConflict || all[1].From != next || all[1].Code != http.StatusOK {
		s.T.Errorf("want the late write, answered 409, and that of the new leader for a worker that joins: %v", all)
	}
}

func TestLateWriteNeverOverwritesTheNewLeaders(t *testing.T) {
	t.Run("an update of a frozen leader arrives late, and the next one has written", func(t *testing.T) {
		s, proxy := late(t, e2e.Options{})
		workers := s.Join(3)
		old, next := s.Writers[0], s.Writers[1]
		s.AwaitStandby(next)
		version, held := s.Slice().ResourceVersion, proxy.HoldNextWrite()
		s.Must(workers[0].Set(backend.Refuse))
		arrives(s, held)
		s.Must(old.Signal(syscall.SIGSTOP))
		s.Must(workers[0].Set(backend.Serve))
		s.Must(workers[1].Set(backend.Refuse))
		before := s.WriteCount()
		s.Await("the new leader writes what is true by now", func(all []*discoveryv1.EndpointSlice) bool {
			return pair.Are(pair.Ready, workers[0].Address, workers[2].Address)(all) && pair.Are(pair.Out, workers[1].Address)(all)
		})
		s.ExpectWritesOnlyBy(next, 1, before)
		if held.Slice == nil || held.Slice.ResourceVersion != version ||
			!pair.Are(pair.Out, workers[0].Address)([]*discoveryv1.EndpointSlice{held.Slice}) {
			t.Errorf("the one that was kept back is %v", held.Slice)
		}
		refused(s, held)
		before = s.WriteCount()
		s.Must(old.Signal(syscall.SIGCONT))
		s.AwaitMetric(old, e2e.Leads, e2e.Equals(0))
		s.AwaitMetric(old, e2e.SourceMembers, e2e.Equals(4))
		s.AwaitStandby(old)
		s.ExpectNoWritesBy(old, before)
		s.Expect(pair.Ready, workers[0])
		s.Expect(pair.Out, workers[1])
	})
	t.Run("a create of a terminated leader arrives late, and the next one has created", func(t *testing.T) {
		s, proxy := late(t, e2e.Options{})
		held := proxy.HoldNextWrite()
		w := s.Machine(pair.WorkerOptions{})
		s.Must(w.Join(s.Ctx()))
		arrives(s, held)
		s.Must(s.Writers[0].Terminate(20 * time.Second))
		s.Await("the new leader creates the slice", pair.AreJust(pair.Ready, w.Address))
		refused(s, held)
	})
	t.Run("a delete of a terminated leader arrives late, and the next one has written", func(t *testing.T) {
		s, proxy := late(t, byLabel)
		workers := s.Join(2)
		held := deletes(s, proxy)
		s.Must(workers[0].Set(backend.Refuse))
		s.Must(s.Writers[0].Terminate(20 * time.Second))
		s.Await("the new leader writes", pair.Are(pair.Out, workers[0].Address))
		refused(s, held)
	})
}

// byLabel has the Service managed by its label, so that it can be opted out.
var byLabel = e2e.Options{
	Writer:  map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": "", "WATCH_NAMESPACES": pair.Namespace},
	Service: e2e.InClass,
}

// deletes opts the Service out until the leader has sent the deletion of its slice, which is kept
// back, and then in again, as both writers see.
func deletes(s *e2e.Setup, proxy *apifault.Proxy) *apifault.HeldWrite {
	s.T.Helper()
	s.AwaitStandby(s.Writers[1])
	held := proxy.HoldNextWrite()
	s.SetClass(s.Service, "none")
	arrives(s, held)
	if held.Method != http.MethodDelete {
		s.T.Fatalf("it sends a %s of %v", held.Method, held.Slice)
	}
	s.Until("the standby has seen it", func() bool { _, err := s.Writers[1].Metric(s.Ctx(), e2e.ReadyEndpoints); return err != nil })
	s.SetClass(s.Service, "default")
	s.AwaitStandby(s.Writers[1])
	return held
}

func TestLateDeleteOfUntouchedSliceIsRepairedWithOneWrite(t *testing.T) {
	s, proxy := late(t, byLabel)
	workers := s.Join(2)
	s.Step("a delete of a terminated leader arrives late, and no one has written", func(s *e2e.Setup) {
		next := s.Writers[1]
		held := deletes(s, proxy)
		uid := s.Slice().UID
		s.ExpectNoWrites(func() {
			s.Must(s.Writers[0].Terminate(20 * time.Second))
			s.AwaitMetric(next, e2e.Leads, e2e.Equals(1))
		})
		before := s.WriteCount()
		lands(s, held, http.StatusOK)
		s.Await("it is made again", func(all []*discoveryv1.EndpointSlice) bool {
			return pair.AreJust(pair.Ready, e2e.Addresses(workers)...)(all) && all[0].UID != uid
		})
		repaired(s, before)
	})
}

// repaired wants the late write since, and one of the new leader.
func repaired(s *e2e.Setup, since int) {
	s.T.Helper()
	all := s.WritesSince(since)
	if len(all) != 2 || all[0].From != s.Writers[0].Address.String() || all[1].From != s.Writers[1].Address.String() || all[1].Code >= 300 {
		s.T.Errorf("want the late write, and one by the new leader: %v", all)
	}
	s.ExpectNoWrites(func() { s.AwaitStandby(s.Writers[1]) })
}

func TestLateWriteToUntouchedSliceIsRepairedWithOneWrite(t *testing.T) {
	e2e.Long(t)
	s, proxy := late(t, e2e.Options{})
	workers := s.Join(2)
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	for _, one := range []struct {
		name string
		end  func() error
		slow bool // the Lease has to expire
	}{
		{"an update of a terminated leader arrives late, and no one has written", func() error { return s.Writers[0].Terminate(20 * time.Second) }, false},
		{"an update of a killed leader arrives late, and no one has written", s.Writers[0].Kill, true},
	} {
		s.Step(one.name, func(s *e2e.Setup) {
			if one.slow {
				e2e.Long(s.T)
			}
			next := s.Writers[1]
			s.AwaitStandby(next)
			version, held := s.Slice().ResourceVersion, proxy.HoldNextWrite()
			s.Must(workers[0].Set(backend.Refuse))
			arrives(s, held)
			s.AwaitMetric(next, e2e.ReadyEndpoints, e2e.Equals(1)) // it has found out too
			s.Must(workers[0].Set(backend.Serve))
			s.AwaitStandby(next)
			s.ExpectNoWrites(func() {
				s.Must(one.end())
				s.AwaitMetric(next, e2e.Leads, e2e.Equals(1))
			})
			if s.Slice().ResourceVersion != version {
				s.T.Fatal("the slice was touched")
			}
			before := s.WriteCount()
			lands(s, held, http.StatusOK)
			s.Await("it is repaired",
				func(all []*discoveryv1.EndpointSlice) bool { return serve(all) && all[0].ResourceVersion != version })
			repaired(s, before)

			s.Must(s.Writers[0].Start(s.Ctx())) // it leads again
			s.Must(next.Terminate(20 * time.Second))
			s.AwaitMetric(s.Writers[0], e2e.Leads, e2e.Equals(1))
			s.Must(next.Start(s.Ctx()))
		})
	}
}

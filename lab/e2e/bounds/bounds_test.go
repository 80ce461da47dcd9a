// Package bounds measures how long the components take at most. It is the only package whose tests can fail because of time,
// so it runs alone.
package bounds

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// within compares what was measured with what is promised, and with slack for a machine that runs everything at the same time.
func within(t *testing.T, what string, took, promised, slack time.Duration) {
	t.Helper()
	t.Logf("%s after %s", what, took.Round(time.Millisecond))
	if took > promised+slack {
		t.Errorf("%s after %s, want %s at most", what, took, promised)
	}
}

func TestChangesAreWrittenInTime(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	workers := s.Join(3)
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	for _, death := range []struct {
		name     string
		mode     backend.Mode
		promised time.Duration
	}{
		{"a backend that refuses connections is not ready", backend.Refuse, pair.RefusalBound},
		{"a backend that is silent is not ready", backend.Silent, pair.SilenceBound},
	} {
		begun := time.Now()
		s.Must(workers[0].Set(death.mode))
		took, err := s.WaitSlicesSince(s.Ctx(), begun, pair.Are(pair.Out, workers[0].Address))
		s.Must(err)
		within(t, death.name, took, death.promised, 2*time.Second)
		s.Must(workers[0].Set(backend.Serve))
		s.Await("it serves again", serve)
	}

	s.Must(s.Inventory.Kill())
	s.AwaitMetric(s.Writers[0], e2e.SourceConnected, e2e.Equals(0))
	s.Must(s.Inventory.Start(s.Ctx()))
	begun := time.Now()
	s.AwaitMetric(s.Writers[0], e2e.SourceSynced, e2e.Equals(1))
	within(t, "the writer is synced with an inventory that returned", time.Since(begun), 5*time.Second, 3*time.Second)

	s.StopAPIServer(s.Consuming)
	s.Must(workers[0].Leave(s.Ctx()))
	s.AwaitMetric(s.Writers[0], e2e.SourceMembers, e2e.Equals(2))
	s.Must(s.Consuming.StartAPIServer(s.Ctx()))
	begun = time.Now()
	s.Await("the change is written", pair.Are(pair.Absent, workers[0].Address))
	within(t, "what changed while the API server was away is written", time.Since(begun), 17*time.Second, 3*time.Second)
}

func TestATakeoverKeepsItsBound(t *testing.T) {
	deaths := 1
	if e2e.IsLong() {
		deaths = 10
	}
	s := e2e.New(t, e2e.Options{Writers: 2})
	s.StartAll()
	workers := s.Join(2)
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	for i := range deaths {
		leader, next := s.Writers[i%2], s.Writers[(i+1)%2]
		s.AwaitStandby(next)
		begun := time.Now()
		s.Must(leader.Kill())
		s.Must(workers[0].Set(backend.Refuse))
		took, err := s.WaitSlicesSince(s.Ctx(), begun, pair.Are(pair.Out, workers[0].Address))
		s.Must(err)
		within(t, "the next leader writes", took, 17*time.Second, 3*time.Second)
		s.Must(workers[0].Set(backend.Serve))
		s.Await("it serves again", serve)
		s.Must(leader.Start(s.Ctx()))
	}
	leader, next := s.Writers[deaths%2], s.Writers[(deaths+1)%2]
	s.AwaitStandby(next)
	begun := time.Now()
	s.Must(leader.Terminate(20 * time.Second))
	s.AwaitMetric(next, e2e.Leads, e2e.Equals(1))
	within(t, "the next one leads when the leader is terminated", time.Since(begun), 2*time.Second, 3*time.Second)
}

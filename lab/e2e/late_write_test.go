package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// late is a stage with two writers, of which the first reaches its API server through a proxy
// that can keep a write of it back while the other takes over.
func late(t *testing.T, sc script) (*stage, *apifault.Proxy) {
	t.Helper()
	sc.writers = 2
	s := enter(t, sc)
	s.settle()
	proxy, kubeconfig, err := s.FrontConsuming(s.writers[0])
	s.must(err)
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s.with(s.writers[0], map[string]string{"TARGET_KUBECONFIG": kubeconfig})
	s.start()
	s.metric(s.writers[1], sourceSynced, equals(1))
	return s, proxy
}

// arrives waits until the write is under way.
func (s *stage) arrives(held *apifault.HeldWrite) {
	s.t.Helper()
	select {
	case <-held.Arrived():
	case <-s.ctx().Done():
		s.t.Fatal("it sends no write")
	}
}

// lands lets the write go on, and wants this answer to it.
func (s *stage) lands(held *apifault.HeldWrite, want int) {
	s.t.Helper()
	got, err := held.Release(s.ctx())
	s.must(err)
	if got != want {
		s.t.Errorf("the late %s was answered %d, want %d", held.Method, got, want)
	}
}

// refused wants a late write to be answered 409 and to change nothing, so that nobody has
// anything to mend.
func (s *stage) refused(held *apifault.HeldWrite) {
	s.t.Helper()
	old, next := s.writers[0].Address.String(), s.writers[1].Address.String()
	slice, before := s.slice(), s.writes()
	if held.Method != http.MethodDelete && (held.Slice == nil || held.Slice.ResourceVersion == slice.ResourceVersion) {
		s.t.Errorf("the slice is at version %s, and the late write is not older: %v", slice.ResourceVersion, held.Slice)
	}
	s.lands(held, http.StatusConflict)
	s.told() // takes a write; what had to be mended would take one more
	all := s.written(before)
	if len(all) != 2 || all[0].From != old || all[0].Code != http.StatusConflict || all[1].From != next || all[1].Code != http.StatusOK {
		s.t.Errorf("want the late write, answered 409, and that of the new leader for a worker that joins: %v", all)
	}
}

func TestLateWriteNeverOverwritesTheNewLeaders(t *testing.T) {
	t.Run("an update of a frozen leader arrives late, and the next one has written", func(t *testing.T) {
		s, proxy := late(t, script{})
		workers := s.join(3)
		old, next := s.writers[0], s.writers[1]
		s.warm(next)
		version, held := s.slice().ResourceVersion, proxy.HoldNextWrite()
		s.must(workers[0].Set(backend.Refuse))
		s.arrives(held)
		s.must(old.Signal(syscall.SIGSTOP))
		s.must(workers[0].Set(backend.Serve))
		s.must(workers[1].Set(backend.Refuse))
		before := s.writes()
		s.slices("the new leader writes what is true by now", func(all sliceList) bool {
			return pair.Are(pair.Ready, workers[0].Address, workers[2].Address)(all) && pair.Are(pair.Out, workers[1].Address)(all)
		})
		s.alone(next, 1, before)
		if held.Slice == nil || held.Slice.ResourceVersion != version || !pair.Are(pair.Out, workers[0].Address)(sliceList{held.Slice}) {
			t.Errorf("the one that was kept back is %v", held.Slice)
		}
		s.refused(held)
		before = s.writes()
		s.must(old.Signal(syscall.SIGCONT))
		s.metric(old, leads, equals(0))
		s.metric(old, sourceMembers, equals(4))
		s.warm(old)
		s.nothing(old, before)
		s.is(pair.Ready, workers[0])
		s.is(pair.Out, workers[1])
	})
	t.Run("a create of a terminated leader arrives late, and the next one has created", func(t *testing.T) {
		s, proxy := late(t, script{})
		held := proxy.HoldNextWrite()
		w := s.machine(pair.WorkerOptions{})
		s.must(w.Join(s.ctx()))
		s.arrives(held)
		s.must(s.writers[0].Terminate(20 * time.Second))
		s.slices("the new leader creates the slice", pair.AreJust(pair.Ready, w.Address))
		s.refused(held)
	})
	t.Run("a delete of a terminated leader arrives late, and the next one has written", func(t *testing.T) {
		s, proxy := late(t, byLabel)
		workers := s.join(2)
		held := s.deletes(proxy)
		s.must(workers[0].Set(backend.Refuse))
		s.must(s.writers[0].Terminate(20 * time.Second))
		s.slices("the new leader writes", pair.Are(pair.Out, workers[0].Address))
		s.refused(held)
	})
}

// byLabel has the Service managed by its label, so that it can be opted out.
var byLabel = script{
	writer:  map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": "", "WATCH_NAMESPACES": pair.Namespace},
	service: func(service *corev1.Service) { service.Labels = map[string]string{"slicefeed.dev/class": "default"} },
}

// deletes opts the Service out until the leader has sent the deletion of its slice, which is kept
// back, and then in again, as both writers are told.
func (s *stage) deletes(proxy *apifault.Proxy) *apifault.HeldWrite {
	s.t.Helper()
	s.warm(s.writers[1])
	held := proxy.HoldNextWrite()
	label := func(value string) {
		patch := `{"metadata":{"labels":{"slicefeed.dev/class":` + value + `}}}`
		_, err := s.ConsumingClient().
			CoreV1().
			Services(pair.Namespace).
			Patch(s.ctx(), pair.Service, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		s.must(err)
	}
	label(`"none"`)
	s.arrives(held)
	if held.Method != http.MethodDelete {
		s.t.Fatalf("it sends a %s of %v", held.Method, held.Slice)
	}
	s.until("the standby has seen it", func() bool { _, err := s.writers[1].Metric(s.ctx(), readyEndpoints); return err != nil })
	label(`"default"`)
	s.warm(s.writers[1])
	return held
}

func TestLateDeleteOfUntouchedSliceIsRepairedWithOneWrite(t *testing.T) {
	s, proxy := late(t, byLabel)
	workers := s.join(2)
	s.step("a delete of a terminated leader arrives late, and no one has written", func(s *stage) {
		next := s.writers[1]
		held := s.deletes(proxy)
		uid := s.slice().UID
		s.quiet(func() {
			s.must(s.writers[0].Terminate(20 * time.Second))
			s.metric(next, leads, equals(1))
		})
		before := s.writes()
		s.lands(held, http.StatusOK)
		s.slices("it is made again", func(all sliceList) bool {
			return pair.AreJust(pair.Ready, addresses(workers)...)(all) && all[0].UID != uid
		})
		s.mended(before)
	})
}

// mended wants the late write since, and one of the new leader.
func (s *stage) mended(since int) {
	s.t.Helper()
	all := s.written(since)
	if len(all) != 2 || all[0].From != s.writers[0].Address.String() || all[1].From != s.writers[1].Address.String() || all[1].Code >= 300 {
		s.t.Errorf("want the late write, and one by the new leader: %v", all)
	}
	s.quiet(func() { s.warm(s.writers[1]) })
}

func TestLateWriteToUntouchedSliceIsRepairedWithOneWrite(t *testing.T) {
	s, proxy := late(t, script{})
	workers := s.join(2)
	serve := pair.AreJust(pair.Ready, addresses(workers)...)
	for _, one := range []struct {
		name string
		end  func() error
		slow bool // the Lease has to expire
	}{
		{"an update of a terminated leader arrives late, and no one has written", func() error { return s.writers[0].Terminate(20 * time.Second) }, false},
		{"an update of a killed leader arrives late, and no one has written", s.writers[0].Kill, true},
	} {
		s.step(one.name, func(s *stage) {
			if one.slow {
				long(s.t)
			}
			next := s.writers[1]
			s.warm(next)
			version, held := s.slice().ResourceVersion, proxy.HoldNextWrite()
			s.must(workers[0].Set(backend.Refuse))
			s.arrives(held)
			s.metric(next, readyEndpoints, equals(1)) // it has found out too
			s.must(workers[0].Set(backend.Serve))
			s.warm(next)
			s.quiet(func() {
				s.must(one.end())
				s.metric(next, leads, equals(1))
			})
			if s.slice().ResourceVersion != version {
				s.t.Fatal("the slice was touched")
			}
			before := s.writes()
			s.lands(held, http.StatusOK)
			s.slices("it is mended", func(all sliceList) bool { return serve(all) && all[0].ResourceVersion != version })
			s.mended(before)

			s.must(s.writers[0].Start(s.ctx())) // it leads again
			s.must(next.Terminate(20 * time.Second))
			s.metric(s.writers[0], leads, equals(1))
			s.must(next.Start(s.ctx()))
		})
	}
}

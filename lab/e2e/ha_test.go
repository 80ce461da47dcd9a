package e2e

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

// takeover is how long a standby may take until it leads, when the leader gave no word.
const takeover = 17 * time.Second

// hurried is what a machine that does everything at once may need besides.
const hurried = 3 * time.Second

// settle has each writer that takes part run on a machine of its own, in the order of the
// writers, so that one alone can be cut off and the audit log tells them apart.
func (s *stage) settle() map[*pair.Half]*netns.Host {
	s.t.Helper()
	all := map[*pair.Half]*netns.Host{}
	for _, writer := range s.writers {
		host, leave, err := writer.Settle()
		s.must(err)
		s.t.Cleanup(func() { s.must(leave()) })
		all[writer] = host
	}
	return all
}

func at(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

const readyEndpoints = `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`

var backendsLAN = netip.MustParsePrefix(pair.Subnet)

// written are the writes since a moment, by everybody.
func (s *stage) written(since int) []audit.Write {
	s.t.Helper()
	all, err := s.Writes(s.ctx())
	s.must(err)
	return all[since:]
}

// alone wants this writer to have written so often since, and nobody else: what came late of
// another must have been refused.
func (s *stage) alone(writer *pair.Half, times, since int) {
	s.t.Helper()
	for _, w := range s.written(since) {
		switch {
		case w.Code >= 300:
			s.t.Logf("%s of %s by %s was refused: %d", w.Verb, w.Name, w.From, w.Code)
		case w.From == writer.Address.String():
			times--
		default:
			s.t.Errorf("%s of %s by %s", w.Verb, w.Name, w.From)
		}
	}
	if times != 0 {
		s.t.Errorf("%s wrote %d times less than it should", writer.Name, times)
	}
}

// nothing wants a writer to have written nothing since, refused attempts included.
func (s *stage) nothing(by *pair.Half, since int) {
	s.t.Helper()
	for _, w := range s.written(since) {
		if w.From == by.Address.String() {
			s.t.Errorf("%s sent %s of %s, which was answered %d", by.Name, w.Verb, w.Name, w.Code)
		}
	}
}

// warm waits until a standby knows as much as a leader would.
func (s *stage) warm(writer *pair.Half) {
	s.t.Helper()
	s.metric(writer, sourceSynced, equals(1))
	ready := 0
	for _, is := range pair.Conditions(s.Now()) {
		if is == pair.Ready {
			ready++
		}
	}
	s.metric(writer, readyEndpoints, equals(float64(ready)))
}

// succeeds waits until the next one leads, as it must in time.
func (s *stage) succeeds(next *pair.Half, since time.Time) {
	s.t.Helper()
	s.metric(next, leads, equals(1))
	s.inTime("leads", time.Since(since))
}

func (s *stage) inTime(what string, took time.Duration) {
	s.t.Helper()
	s.t.Logf("the next one %s after %s", what, took)
	if took > takeover+hurried {
		s.t.Errorf("that should be within %s", takeover)
	}
}

func (s *stage) leading(writer *pair.Half) bool {
	s.t.Helper()
	is, err := writer.Metric(s.ctx(), leads)
	s.must(err)
	return is == 1
}

const leaseName = "slicefeed-default"

// holder is who holds the Lease, as the API server says now.
func (s *stage) holder() string {
	s.t.Helper()
	lease, err := s.ConsumingClient().CoordinationV1().Leases(pair.Namespace).Get(s.ctx(), leaseName, metav1.GetOptions{})
	s.must(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func TestTheLeaderIsLost(t *testing.T) {
	s := enter(t, script{writers: 2})
	host := s.settle()
	s.start()
	workers := s.join(3)
	first, second := s.writers[0], s.writers[1]
	serve := pair.AreJust(pair.Ready, addresses(workers)...)

	s.step("the leader is killed, and a backend dies with it", func(s *stage) {
		s.warm(second)
		before, begun := s.writes(), time.Now()
		s.must(first.Kill())
		s.must(workers[0].Set(backend.Refuse))
		took, err := s.WaitSlicesSince(s.ctx(), begun, pair.Are(pair.Out, workers[0].Address))
		s.must(err)
		s.inTime("writes", took)
		s.alone(second, 1, before)
		s.must(workers[0].Set(backend.Serve))
		s.slices("it serves again", serve)
		s.must(first.Start(s.ctx()))
	})
	s.step("the leader is frozen, and resumed when another one leads", func(s *stage) {
		s.warm(first)
		before, begun := s.writes(), time.Now()
		s.quiet(func() {
			s.must(second.Signal(syscall.SIGSTOP))
			s.succeeds(first, begun)
		})
		// What the frozen one would have to write, by all that it knows.
		s.must(workers[0].Set(backend.Refuse))
		s.must(workers[1].Leave(s.ctx()))
		s.slices("the new leader writes", func(all sliceList) bool {
			return pair.Are(pair.Out, workers[0].Address)(all) && pair.Are(pair.Absent, workers[1].Address)(all)
		})
		s.must(workers[0].Set(backend.Serve))
		s.slices("it serves again", pair.AreJust(pair.Ready, workers[0].Address, workers[2].Address))
		s.must(second.Signal(syscall.SIGCONT))
		s.metric(second, leads, equals(0))
		s.metric(second, sourceMembers, equals(2))
		s.must(workers[1].Join(s.ctx()))
		s.slices("all serve", serve)
		s.metric(second, sourceMembers, equals(3))
		s.warm(second)
		s.nothing(second, before)
	})
	s.step("the leader is cut off from the API server, and reaches it again", func(s *stage) {
		before, begun := s.writes(), time.Now()
		s.must(host[first].Cut(at(pair.ConsumingAddress)))
		s.must(workers[0].Set(backend.Refuse))
		s.succeeds(second, begun)
		if s.leading(first) {
			s.t.Error("both lead")
		}
		s.slices("the new leader writes", pair.Are(pair.Out, workers[0].Address))
		s.alone(second, 1, before)

		before = s.writes()
		s.must(workers[0].Set(backend.Serve))
		s.slices("it serves again", serve)
		s.must(host[first].Mend(at(pair.ConsumingAddress)))
		s.warm(first)
		s.must(workers[2].Leave(s.ctx()))
		s.slices("it is gone", pair.Are(pair.Absent, workers[2].Address))
		s.must(workers[2].Join(s.ctx()))
		s.slices("it serves again", serve)
		s.metric(first, sourceMembers, equals(3))
		s.warm(first)
		// What it had sent before it was cut off may arrive now, or in the next seconds. It fails: the
		// slice is another one, or the server sees that nobody waits for the answer.
		s.alone(second, 3, before)
		if !s.leading(second) {
			s.t.Error("the new leader has lost the Lease to it")
		}
	})
	s.step("the leader is cut off from the inventory", func(s *stage) {
		before := s.writes()
		s.must(host[second].Cut(at(pair.InventoryAddress)))
		s.metric(second, sourceConnected, equals(0))
		s.alone(second, 0, before)
		s.must(workers[1].Leave(s.ctx()))
		s.metric(first, sourceMembers, equals(2))
		s.must(workers[0].Set(backend.Refuse))
		s.slices("a dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.must(workers[0].Set(backend.Serve))
		s.slices("what the standby alone was told is not written", pair.AreJust(pair.Ready, addresses(workers)...))
		s.alone(second, 2, before)
		s.must(host[second].Mend(at(pair.InventoryAddress)))
		s.slices("the feed is acted upon again", pair.AreJust(pair.Ready, workers[0].Address, workers[2].Address))
		s.alone(second, 3, before)
	})
	s.step("the leader is terminated", func(s *stage) {
		s.warm(first)
		s.quiet(func() {
			begun := time.Now()
			s.must(second.Terminate(20 * time.Second))
			s.succeeds(first, begun)
			s.must(second.Start(s.ctx()))
		})
	})
	s.step("the Lease is deleted by hand", func(s *stage) {
		s.warm(second)
		s.quiet(func() {
			s.must(s.ConsumingClient().CoordinationV1().Leases(pair.Namespace).Delete(s.ctx(), leaseName, metav1.DeleteOptions{}))
			s.until("one leads, and not the other", func() bool { return s.leading(first) != s.leading(second) && s.Leader() != "" })
		})
		before := s.writes()
		s.must(workers[0].Set(backend.Refuse))
		s.slices("it writes", pair.Are(pair.Out, workers[0].Address))
		if n := s.writes() - before; n != 1 {
			s.t.Errorf("one change took %d writes", n)
		}
	})
}

func TestInitialSyncGuardOutlivesATakeover(t *testing.T) {
	s := enter(t, script{writers: 2})
	s.settle()
	first, second := s.writers[0], s.writers[1]
	s.must(s.Inventory.Start(s.ctx()))
	s.must(first.Start(s.ctx()))
	workers := s.join(3)
	dead, deleted := workers[0], workers[1]
	serve := pair.AreJust(pair.Ready, addresses(workers)...)

	s.step("a standby takes over that was never synced, while the inventory is away", func(s *stage) {
		s.quiet(func() {
			s.must(s.Inventory.Kill())
			s.must(second.Start(s.ctx()))
			s.must(deleted.Leave(s.ctx())) // nobody is told
			begun := time.Now()
			s.must(first.Terminate(20 * time.Second))
			s.metric(second, leads, equals(1))
			s.t.Logf("it leads %s after the other was told to end", time.Since(begun))
			s.event("SourceNotSynced")
		})
		s.slices("all are as they were", serve)
		before := s.writes()
		s.must(dead.Set(backend.Refuse))
		s.slices("a backend that dies is out, by its probe alone", pair.Are(pair.Out, dead.Address))
		s.must(dead.Set(backend.Serve))
		s.slices("and in again", serve)
		s.alone(second, 2, before)
	})
	s.step("the inventory comes back", func(s *stage) {
		before := s.writes()
		s.must(s.Inventory.Start(s.ctx()))
		s.slices("the deleted Node is gone", pair.AreJust(pair.Ready, dead.Address, workers[2].Address))
		s.alone(second, 1, before)
	})
}

// How long nobody writes when the leader dies, over some deaths.
func TestATakeoverKeepsItsBound(t *testing.T) {
	long(t)
	const deaths = 10
	s := enter(t, script{writers: 2})
	s.patience = 5 * time.Minute
	s.start()
	workers := s.join(2)
	serve := pair.AreJust(pair.Ready, addresses(workers)...)
	var wrote []time.Duration
	for i := range deaths {
		leader, next := s.writers[i%2], s.writers[(i+1)%2]
		s.warm(next)
		begun := time.Now()
		s.must(leader.Kill())
		s.must(workers[0].Set(backend.Refuse))
		took, err := s.WaitSlicesSince(s.ctx(), begun, pair.Are(pair.Out, workers[0].Address))
		s.must(err)
		wrote = append(wrote, took)
		s.must(workers[0].Set(backend.Serve))
		s.slices("it serves again", serve)
		s.must(leader.Start(s.ctx()))
	}
	t.Logf(
		"first write of the next leader after the death, %d deaths: p50 %s, longest %s",
		deaths,
		figures.Percentile(wrote, 50),
		slices.Max(wrote),
	)
	s.inTime("writes, at the latest,", slices.Max(wrote))
}

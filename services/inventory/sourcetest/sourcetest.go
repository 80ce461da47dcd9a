// Package sourcetest is the suite that every source of the inventory has to pass: Run. It promises
// to try nothing but what docs/sources/README.md asks of a source, through the four methods that
// the inventory uses, and to know nothing of what is behind them.
package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Source is what is tested, as the inventory uses it.
type Source interface {
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Take() roster.News
	Verify(ctx context.Context, look roster.Look) (mark uint64, err error)
}

// Member is a node of a world.
type Member struct {
	Name    string // a DNS label
	Address netip.Addr
	Ready   bool
}

// Fixture is a source, not yet running, and the world that it looks at. All fields but Source
// may be nil: then the suite leaves out what needs them.
type Fixture struct {
	Source Source
	Set    func(t *testing.T, members ...Member) // the world now has just these
	Break  func(t *testing.T)                    // from now on the world cannot be read
	Repair func(t *testing.T)                    // it can be read again
}

// timeout is how long a source may take to tell anything.
const timeout = 20 * time.Second

// Run tries a kind of source. Each call of start makes a world with these members, and a
// source that has not looked at it yet.
func Run(t *testing.T, start func(t *testing.T, members ...Member) Fixture) {
	t.Helper()
	two := []Member{newMember(1, true), newMember(2, false)}

	t.Run("a full look makes it tell all there is", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.verify(roster.Full)
		w.expectMembers(two...)
		if w.lastContact.IsZero() {
			t.Error("it was never heard")
		}
	})
	t.Run("it tells nothing twice", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.verify(roster.Full)
		w.expectMembers(two...)
		w.verify(roster.Full)
		if again := w.source.Take(); len(again.Changed)+len(again.Removed) > 0 {
			t.Errorf("told again: %+v", again)
		}
	})
	t.Run("it catches up with a light look", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.verify(roster.Full)
		first, second := w.verify(roster.Light), w.verify(roster.Light)
		if second <= first {
			t.Errorf("marks %d and then %d", first, second)
		}
		w.awaitUpdate(fmt.Sprintf("it has caught up with mark %d", second), func() bool { return w.verified >= second })
	})
	t.Run("what takes nothing is not held up", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		for range 5 {
			w.verify(roster.Full) // signals, and nobody receives
		}
		w.expectMembers(two...)
	})
	t.Run("a look ends with its context and does no harm", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, look := range []roster.Look{roster.Light, roster.Full} {
				_, _ = w.source.Verify(ctx, look) // it may have been quicker than its context
			}
		}()
		select {
		case <-ended:
		case <-time.After(timeout):
			t.Fatal("it goes on")
		}
		w.verify(roster.Full)
		w.expectMembers(two...)
	})
	t.Run("it tells what comes, changes and leaves", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.require("Set", w.setMembers != nil)
		w.verify(roster.Full)
		now := []Member{newMember(2, true), newMember(3, true)}
		w.setMembers(t, now...)
		w.verify(roster.Full)
		w.expectMembers(now...)
	})
	t.Run("an empty world is told as empty", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.require("Set", w.setMembers != nil)
		w.verify(roster.Full)
		w.setMembers(t)
		w.verify(roster.Full)
		w.expectMembers()
	})
	t.Run("while the world cannot be read a look fails and nothing is told as gone", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.require("Break", w.breakSource != nil)
		w.verify(roster.Full)
		w.expectMembers(two...)
		w.breakSource(t)
		for _, look := range []roster.Look{roster.Light, roster.Full, roster.Full} {
			if _, err := w.source.Verify(t.Context(), look); err == nil {
				t.Errorf("a %s look succeeded", look)
			}
			w.expectMembers(two...)
		}
	})
	t.Run("it goes on once the world can be read again", func(t *testing.T) {
		w := startHarness(t, start(t, two...))
		w.require("Break, Mend and Set", w.breakSource != nil && w.repairSource != nil && w.setMembers != nil)
		w.verify(roster.Full)
		w.breakSource(t)
		if _, err := w.source.Verify(t.Context(), roster.Full); err == nil {
			t.Error("a look succeeded")
		}
		w.repairSource(t)
		w.setMembers(t, newMember(3, true))
		w.verify(roster.Full)
		w.expectMembers(newMember(3, true))
	})
}

func newMember(n byte, ready bool) Member {
	return Member{Name: fmt.Sprintf("node-%d", n), Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Ready: ready}
}

// harness runs a source and keeps what it tells, as the roster would.
type harness struct {
	t                         *testing.T
	source                    Source
	setMembers                func(*testing.T, ...Member)
	breakSource, repairSource func(*testing.T)

	nodes       map[string]roster.Candidate
	lastContact time.Time
	verified    uint64
}

func startHarness(t *testing.T, s Fixture) *harness {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run ended with %v", err)
			}
		case <-time.After(timeout):
			t.Error("Run does not end when it is told to")
		}
	})
	return &harness{t: t, source: s.Source, setMembers: s.Set, breakSource: s.Break, repairSource: s.Repair, nodes: map[string]roster.Candidate{}}
}

// require skips what a world cannot do.
func (w *harness) require(what string, can bool) {
	w.t.Helper()
	if !can {
		w.t.Skipf("the world of this kind of source has no %s", what)
	}
}

// verify looks until it succeeds: a source that has just been started may have told nothing yet.
func (w *harness) verify(verify roster.Look) (mark uint64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), timeout)
	defer cancel()
	for {
		mark, err := w.source.Verify(ctx, verify)
		if err == nil {
			w.takeUpdate()
			return mark
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.t.Fatalf("a %s look fails: %v", verify, err)
		}
	}
}

// takeUpdate takes the news as the roster does, and wants them to be in order.
func (w *harness) takeUpdate() {
	w.t.Helper()
	news := w.source.Take()
	var names []string
	for _, c := range news.Changed {
		w.nodes[c.Name] = c
		names = append(names, c.Name)
	}
	for _, name := range news.Removed {
		if slices.Contains(names, name) {
			w.t.Errorf("%q is told as changed and as gone at once", name)
		}
		delete(w.nodes, name)
	}
	if !slices.IsSorted(names) || !slices.IsSorted(news.Removed) {
		w.t.Errorf("not sorted: %v, %v", names, news.Removed)
	}
	if news.Mark < w.verified {
		w.t.Errorf("it had caught up with mark %d, and now with %d", w.verified, news.Mark)
	}
	w.verified = news.Mark
	if !news.HeardAt.IsZero() {
		w.lastContact = news.HeardAt
	}
}

// awaitUpdate takes news until the answer is yes.
func (w *harness) awaitUpdate(what string, yes func() bool) {
	w.t.Helper()
	deadline := time.After(timeout)
	for w.takeUpdate(); !yes(); w.takeUpdate() {
		select {
		case <-w.source.Changed():
		case <-deadline:
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// expectMembers wants just these members to have been told, after a look that succeeded.
func (w *harness) expectMembers(members ...Member) {
	w.t.Helper()
	w.takeUpdate()
	want, got := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, m := range members {
		want[m.Address] = m.Ready
	}
	for name, c := range w.nodes {
		if len(c.InternalIPs) != 1 || c.Bad != "" || c.Excluded != 0 {
			w.t.Errorf("%q is told as %+v", name, c)
			continue
		}
		got[c.InternalIPs[0]] = c.State == roster.Ready
	}
	if !maps.Equal(want, got) {
		w.t.Errorf("it tells %v, want %v (address: ready)", got, want)
	}
}

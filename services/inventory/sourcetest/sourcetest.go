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
	Look(ctx context.Context, look roster.Look) (mark uint64, err error)
}

// Member is a node of a world.
type Member struct {
	Name    string // a DNS label
	Address netip.Addr
	Ready   bool
}

// Subject is a source, not yet running, and the world that it looks at. All fields but Source
// may be nil: then the suite leaves out what needs them.
type Subject struct {
	Source Source
	Set    func(t *testing.T, members ...Member) // the world now has just these
	Break  func(t *testing.T)                    // from now on the world cannot be read
	Mend   func(t *testing.T)                    // it can be read again
}

// patience is how long a source may take to tell anything.
const patience = 20 * time.Second

// Run tries a kind of source. Each call of start makes a world with these members, and a
// source that has not looked at it yet.
func Run(t *testing.T, start func(t *testing.T, members ...Member) Subject) {
	t.Helper()
	two := []Member{member(1, true), member(2, false)}

	t.Run("a full look makes it tell all there is", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.look(roster.Full)
		w.tells(two...)
		if w.heardAt.IsZero() {
			t.Error("it was never heard")
		}
	})
	t.Run("it tells nothing twice", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.look(roster.Full)
		w.tells(two...)
		w.look(roster.Full)
		if again := w.source.Take(); len(again.Changed)+len(again.Removed) > 0 {
			t.Errorf("told again: %+v", again)
		}
	})
	t.Run("it catches up with a light look", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.look(roster.Full)
		first, second := w.look(roster.Light), w.look(roster.Light)
		if second <= first {
			t.Errorf("marks %d and then %d", first, second)
		}
		w.until(fmt.Sprintf("it has caught up with mark %d", second), func() bool { return w.mark >= second })
	})
	t.Run("what takes nothing is not held up", func(t *testing.T) {
		w := begin(t, start(t, two...))
		for range 5 {
			w.look(roster.Full) // signals, and nobody receives
		}
		w.tells(two...)
	})
	t.Run("a look ends with its context and does no harm", func(t *testing.T) {
		w := begin(t, start(t, two...))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, look := range []roster.Look{roster.Light, roster.Full} {
				_, _ = w.source.Look(ctx, look) // it may have been quicker than its context
			}
		}()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("it goes on")
		}
		w.look(roster.Full)
		w.tells(two...)
	})
	t.Run("it tells what comes, changes and leaves", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.needs("Set", w.set != nil)
		w.look(roster.Full)
		now := []Member{member(2, true), member(3, true)}
		w.set(t, now...)
		w.look(roster.Full)
		w.tells(now...)
	})
	t.Run("an empty world is told as empty", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.needs("Set", w.set != nil)
		w.look(roster.Full)
		w.set(t)
		w.look(roster.Full)
		w.tells()
	})
	t.Run("while the world cannot be read a look fails and nothing is told as gone", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.needs("Break", w.breaks != nil)
		w.look(roster.Full)
		w.tells(two...)
		w.breaks(t)
		for _, look := range []roster.Look{roster.Light, roster.Full, roster.Full} {
			if _, err := w.source.Look(t.Context(), look); err == nil {
				t.Errorf("a %s look succeeded", look)
			}
			w.tells(two...)
		}
	})
	t.Run("it goes on once the world can be read again", func(t *testing.T) {
		w := begin(t, start(t, two...))
		w.needs("Break, Mend and Set", w.breaks != nil && w.mend != nil && w.set != nil)
		w.look(roster.Full)
		w.breaks(t)
		if _, err := w.source.Look(t.Context(), roster.Full); err == nil {
			t.Error("a look succeeded")
		}
		w.mend(t)
		w.set(t, member(3, true))
		w.look(roster.Full)
		w.tells(member(3, true))
	})
}

func member(n byte, ready bool) Member {
	return Member{Name: fmt.Sprintf("node-%d", n), Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Ready: ready}
}

// watcher runs a source and keeps what it tells, as the roster would.
type watcher struct {
	t            *testing.T
	source       Source
	set          func(*testing.T, ...Member)
	breaks, mend func(*testing.T)

	nodes   map[string]roster.Candidate
	heardAt time.Time
	mark    uint64
}

func begin(t *testing.T, s Subject) *watcher {
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
		case <-time.After(patience):
			t.Error("Run does not end when it is told to")
		}
	})
	return &watcher{t: t, source: s.Source, set: s.Set, breaks: s.Break, mend: s.Mend, nodes: map[string]roster.Candidate{}}
}

// needs skips what a world cannot do.
func (w *watcher) needs(what string, can bool) {
	w.t.Helper()
	if !can {
		w.t.Skipf("the world of this kind of source has no %s", what)
	}
}

// look looks until it succeeds: a source that has just been started may have told nothing yet.
func (w *watcher) look(look roster.Look) (mark uint64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		mark, err := w.source.Look(ctx, look)
		if err == nil {
			w.take()
			return mark
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.t.Fatalf("a %s look fails: %v", look, err)
		}
	}
}

// take takes the news as the roster does, and wants them to be in order.
func (w *watcher) take() {
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
	if news.Mark < w.mark {
		w.t.Errorf("it had caught up with mark %d, and now with %d", w.mark, news.Mark)
	}
	w.mark = news.Mark
	if !news.HeardAt.IsZero() {
		w.heardAt = news.HeardAt
	}
}

// until takes news until the answer is yes.
func (w *watcher) until(what string, yes func() bool) {
	w.t.Helper()
	deadline := time.After(patience)
	for w.take(); !yes(); w.take() {
		select {
		case <-w.source.Changed():
		case <-deadline:
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// tells wants just these members to have been told, after a look that succeeded.
func (w *watcher) tells(members ...Member) {
	w.t.Helper()
	w.take()
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

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// previousRelease is the directory with the components of the previous release, which tools/previous builds.
func previousRelease(t *testing.T) string {
	t.Helper()
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".bin", "previous")
	if _, err := os.Stat(filepath.Join(dir, "commit")); err != nil {
		t.Skipf(
			"not run: upgrade and downgrade: tools/previous builds the previous release from the history, which this clone may lack (%v)",
			err,
		)
	}
	return dir
}

func TestUpgradeAndDowngradeOfEachComponentLosesNothing(t *testing.T) {
	previous := previousRelease(t)
	s := enter(t, script{writers: 2})
	for _, component := range s.halves() {
		component.Use(previous)
		t.Cleanup(func() { component.Use(bin) })
	}
	s.start()
	s.runs(previous, s.halves()...)
	s.join(3)
	s.follow()

	client := s.NewClient(10 * time.Millisecond)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		s.must(<-ended)
		tally := client.Tally()
		t.Logf("%d requests, %d answered", tally.Requests, tally.OK)
		if tally.OK != tally.Requests || tally.Requests < 100 {
			t.Errorf("want many requests, all of them answered: %+v", tally)
		}
	})

	// One component after the other, so that each version meets each version.
	s.step("the writers are upgraded", func(s *stage) { s.replaceWriters(bin) })
	s.step("the inventory is upgraded", func(s *stage) { s.replaceInventory(bin) })
	s.step("the writers are downgraded", func(s *stage) { s.replaceWriters(previous) })
	s.step("the inventory is downgraded", func(s *stage) { s.replaceInventory(previous) })
}

// replaceWriters does it as a rolling update does: the standby first, so that it can take over.
func (s *stage) replaceWriters(dir string) {
	s.t.Helper()
	leader, standby := s.writers[0], s.writers[1]
	if s.leading(standby) {
		leader, standby = standby, leader
	}
	s.quiet(func() {
		s.replace(standby, dir)
		s.warm(standby)
		s.must(leader.Terminate(20 * time.Second))
		s.metric(standby, leads, equals(1))
		s.replace(leader, dir)
		s.warm(leader)
	})
	s.follow()
}

func (s *stage) replaceInventory(dir string) {
	s.t.Helper()
	s.quiet(func() {
		s.replace(s.Inventory, dir)
		for _, writer := range s.writers {
			s.metric(writer, sourceConnected, equals(1))
			s.metric(writer, sourceSynced, equals(1))
		}
	})
	s.follow()
}

func (s *stage) replace(component *pair.Half, dir string) {
	s.t.Helper()
	s.must(component.Terminate(20 * time.Second))
	component.Use(dir)
	s.must(component.Start(s.ctx()))
	s.runs(dir, component)
}

// follow has a node join and leave, which takes a write each. A write that nothing required would be counted too.
func (s *stage) follow() {
	s.t.Helper()
	before := s.writes()
	w := s.join(1)[0]
	s.must(w.Leave(s.ctx()))
	s.slices("it is gone", pair.Are(pair.Absent, w.Address))
	if n := s.writes() - before; n != 2 {
		s.t.Errorf("%d writes of slices for a node that joined and left, want 2", n)
	}
}

// runs checks which release the components run.
func (s *stage) runs(dir string, components ...*pair.Half) {
	s.t.Helper()
	for _, component := range components {
		metrics, err := component.Get(s.ctx(), "/metrics")
		s.must(err)
		if got, want := strings.Contains(metrics, `version="previous"`), dir != bin; got != want {
			s.t.Errorf("%s runs the previous release: %v, want %v", component.Name, got, want)
		}
	}
}

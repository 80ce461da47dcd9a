package outages

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/e2e"
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
	s := e2e.New(t, e2e.Options{Writers: 2})
	for _, component := range s.Components() {
		component.Use(previous)
		t.Cleanup(func() { component.Use(e2e.Bin) })
	}
	s.StartAll()
	runs(s, previous, s.Components()...)
	s.Join(3)
	follow(s)

	client := s.NewClient(10 * time.Millisecond)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		s.Must(<-ended)
		tally := client.Tally()
		t.Logf("%d requests, %d answered", tally.Requests, tally.OK)
		if tally.OK != tally.Requests || tally.Requests < 100 {
			t.Errorf("want many requests, all of them answered: %+v", tally)
		}
	})

	// One component after the other, so that each version meets each version.
	s.Step("the writers are upgraded", func(s *e2e.Setup) { replaceWriters(s, e2e.Bin) })
	s.Step("the inventory is upgraded", func(s *e2e.Setup) { replaceInventory(s, e2e.Bin) })
	s.Step("the writers are downgraded", func(s *e2e.Setup) { replaceWriters(s, previous) })
	s.Step("the inventory is downgraded", func(s *e2e.Setup) { replaceInventory(s, previous) })
}

// replaceWriters does it as a rolling update does: the standby first, so that it can take over.
func replaceWriters(s *e2e.Setup, dir string) {
	s.T.Helper()
	leader, standby := s.Writers[0], s.Writers[1]
	if s.IsLeading(standby) {
		leader, standby = standby, leader
	}
	s.ExpectNoWrites(func() {
		replace(s, standby, dir)
		s.AwaitStandby(standby)
		s.Must(leader.Terminate(20 * time.Second))
		s.AwaitMetric(standby, e2e.Leads, e2e.Equals(1))
		replace(s, leader, dir)
		s.AwaitStandby(leader)
	})
	follow(s)
}

func replaceInventory(s *e2e.Setup, dir string) {
	s.T.Helper()
	s.ExpectNoWrites(func() {
		replace(s, s.Inventory, dir)
		for _, writer := range s.Replicas() {
			s.AwaitMetric(writer, e2e.SourceConnected, e2e.Equals(1))
			s.AwaitMetric(writer, e2e.SourceSynced, e2e.Equals(1))
		}
	})
	follow(s)
}

func replace(s *e2e.Setup, component *pair.Component, dir string) {
	s.T.Helper()
	s.Must(component.Terminate(20 * time.Second))
	component.Use(dir)
	s.Must(component.Start(s.Ctx()))
	runs(s, dir, component)
}

// follow has a node join and leave, which takes a write each. A write that nothing required would be counted too.
func follow(s *e2e.Setup) {
	s.T.Helper()
	before := s.WriteCount()
	w := s.Join(1)[0]
	s.Must(w.Leave(s.Ctx()))
	s.Await("it is gone", pair.Are(pair.Absent, w.Address))
	if n := s.WriteCount() - before; n != 2 {
		s.T.Errorf("%d writes of slices for a node that joined and left, want 2", n)
	}
}

// runs checks which release the components run.
func runs(s *e2e.Setup, dir string, components ...*pair.Component) {
	s.T.Helper()
	for _, component := range components {
		metrics, err := component.Get(s.Ctx(), "/metrics")
		s.Must(err)
		if got, want := strings.Contains(metrics, `version="previous"`), dir != e2e.Bin; got != want {
			s.T.Errorf("%s runs the previous release: %v, want %v", component.Name, got, want)
		}
	}
}

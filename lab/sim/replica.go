package sim

import (
	"fmt"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// heartbeat is how often an inventory speaks at least.
const heartbeat = 5 * time.Second

// replica is a process of an inventory: the roster, the feed and the readers, stepped.
type replica struct {
	*cluster

	name  string
	alive bool
	lives int

	// What follows is gone with the process.
	roster  *roster.Roster
	set     *feed.Set
	watch   *watched
	readers []*stream
	wake    *event
	poked   bool

	lying int // which lie
	tick  int // of it
}

func newReplica(c *cluster, n int) *replica {
	return &replica{cluster: c, name: fmt.Sprintf("inventory %s/%d", c.name, n)}
}

// at has something happen in the process, as long as it lives.
func (r *replica) at(t time.Time, do func()) *event {
	life := r.lives
	return r.cluster.at(t, func() {
		if r.alive && r.lives == life {
			do()
		}
	})
}

func (r *replica) start() {
	r.lives++
	r.alive = true
	epoch := fmt.Sprintf("%s-%d-%d", r.cluster.name, slices.Index(r.replicas, r), r.lives)
	r.tellf("%s starts, epoch %s", r.name, epoch)
	cfg := roster.Config{Method: roster.ByNodeAddress, CIDRs: prefixes(r.cidr(16)), ExportLabels: []string{poolLabel}}
	if r.script.Setup.ByCloud {
		cfg.Method = roster.ByCloud
	}
	r.roster, r.set = roster.New(cfg), feed.NewSet("", epoch)
	r.watch, r.readers, r.poked, r.lying = newWatched(r), nil, false, 0
	r.watch.begin()
	r.poke()
}

// kill ends the process: whoever is connected learns it.
func (r *replica) kill() {
	if !r.alive {
		return
	}
	r.tellf("%s is killed", r.name)
	r.alive = false
	r.wake.cancel()
	for _, s := range slices.Clone(r.readers) {
		s.brokenByServer("connection reset")
	}
	r.readers = nil
}

// poke has the inventory take in what there is.
func (r *replica) poke() {
	if r.poked || !r.alive {
		return
	}
	r.poked = true
	r.at(time.Now(), func() {
		r.poked = false
		r.step(roster.Input{})
	})
}

// step is what the collector does, and what the server does then.
func (r *replica) step(update roster.Input) {
	now := time.Now()
	update.Source = r.watch.take()
	changes := r.roster.Apply(now, update)
	if r.lying > 0 {
		return // its words are made up elsewhere
	}
	for _, c := range changes {
		r.tellf("%s: %s", r.name, describe(c))
	}
	r.set.Publish(r.roster.Status(now), changes)
	next := r.roster.NextActions(now)
	if next.Verify != roster.NoVerification {
		r.watch.look(next.Verify, func(number uint64, err error) {
			r.step(roster.Input{Verification: &roster.VerificationResult{StartedAt: now, Mode: next.Verify, Number: number, Err: err}})
		})
	}
	if next.List {
		r.cloud.list(r.at, func(l roster.Listing, err error, after time.Duration) {
			r.step(roster.Input{Listing: &roster.ListingResult{StartedAt: now, Listing: l, Err: err, RetryAfter: after}})
		})
	}
	r.wake.cancel()
	r.wake = r.at(next.Wake, func() { r.step(roster.Input{}) })
	r.pump()
}

// pump tells each reader what it lacks.
func (r *replica) pump() {
	for _, s := range slices.Clone(r.readers) {
		s.pump(false)
	}
}

// admit is what the server does with a request.
func (r *replica) admit(s *stream, req *inventoryv1.WatchNodesRequest) {
	from, err := feed.ResumePosition(req)
	if err != nil {
		s.brokenByServer(err.Error())
		return
	}
	s.replica = r
	s.reader = r.set.NewReader(from, nil, heartbeat)
	r.readers = append(r.readers, s)
	s.pump(false)
}

// leave lets a reader go.
func (r *replica) leave(s *stream) {
	if n := slices.Index(r.readers, s); n >= 0 {
		r.readers = slices.Delete(r.readers, n, n+1)
	}
}

func describe(c roster.Change) string {
	if c.Node == nil {
		return c.Name + " is gone"
	}
	return fmt.Sprintf("%s is %s at %s", c.Name, c.Node.State, c.Node.Addresses[0])
}

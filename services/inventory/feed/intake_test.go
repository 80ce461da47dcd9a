package feed

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// fakeSource answers every request of the roster immediately.
type fakeSource struct {
	*Intake

	now time.Time
}

func newFakeSource(views ...string) *fakeSource {
	i := &Intake{
		Roster: roster.New(roster.Config{Resolver: roster.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}),
		Stores: NewStores("epoch"),
	}
	for _, pool := range views {
		i.Stores.Acquire(View{Selector: labels.SelectorFromSet(labels.Set{"pool": pool})})
	}
	return &fakeSource{i, start}
}

// runUntilIdle applies an update, and returns the number of full verifications until the roster is idle.
func (s *fakeSource) runUntilIdle(update source.Update) (full int) {
	update.LastContact = s.now
	var result func(*roster.Roster)
	for {
		_, actions := s.Publish(s.now, s.Ingest(s.now, update, result))
		if actions.Look == source.FullVerification {
			full++
		}
		if actions.Look == source.NoVerification && actions.Wake.Sub(s.now) > 5*time.Second {
			return full
		}
		s.now, update, result = s.now.Add(5*time.Second), source.Update{LastContact: s.now, Verified: 1}, nil
		if startedAt := s.now; actions.Look != source.NoVerification {
			result = func(r *roster.Roster) { r.Looked(startedAt, startedAt, actions.Look, 1, nil) }
		}
	}
}

func newCandidate(name, pool string, n byte) source.Candidate {
	return source.Candidate{
		Name: name, UID: name, State: source.Ready, Labels: map[string]string{"pool": pool},
		InternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})},
	}
}

func TestAnomalyOfViewRequestsFullVerifications(t *testing.T) {
	all := source.Update{Changed: []source.Candidate{newCandidate("a", "blue", 1), newCandidate("b", "red", 2), newCandidate("c", "red", 3)}}
	for _, tc := range []struct {
		name          string
		views         []string
		confirmations int
		first, later  int // full verifications at the start, and after node a moved to another pool
	}{
		{"no anomaly in a view", []string{"red"}, 3, 1, 0},
		{"no subscriber requires confirmations", []string{"red", "blue"}, 0, 1, 1},
		{"as many as subscribers require", []string{"red", "blue"}, 3, 1, 3},
		{"a view is empty from the start", []string{"red", "none"}, 0, 2, 0},
		{"a view is empty from the start, as many as subscribers require", []string{"red", "none"}, 3, 4, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFakeSource(tc.views...)
			if tc.confirmations > 0 {
				s.SetConfirmations(tc.confirmations)
			}
			checkEqual(t, "full verifications at the start", s.runUntilIdle(all), tc.first)
			checkEqual(t, "full verifications after the move", s.runUntilIdle(source.Update{Changed: []source.Candidate{newCandidate("a", "red", 1)}}), tc.later)
		})
	}
}

func TestRosterAnomalyRequestsConfirmations(t *testing.T) {
	for confirmations, later := range map[int]int{1: 1, 4: 4} {
		s := newFakeSource()
		s.SetConfirmations(confirmations)
		s.runUntilIdle(source.Update{Changed: []source.Candidate{newCandidate("a", "blue", 1)}})
		checkEqual(t, "full verifications when all nodes are removed", s.runUntilIdle(source.Update{Removed: []string{"a"}}), later)
	}
}

// The anomaly "none ready" lasts for as long as the view is drained. It requested its observation when
// it started: a view that keeps shrinking must not cause a LIST of all Nodes and a listing of the cloud
// all the time.
func TestDrainedViewRequestsObservationOnce(t *testing.T) {
	s := newFakeSource("blue")
	all := source.Update{Changed: []source.Candidate{newCandidate("ready", "red", 200)}}
	for n := range byte(40) {
		c := newCandidate(fmt.Sprintf("n%02d", n), "blue", n+1)
		c.State = source.Draining
		all.Changed = append(all.Changed, c)
	}
	checkEqual(t, "full verifications at the start, including one for the anomaly", s.runUntilIdle(all), 2)
	full := 0
	for n := range 20 {
		s.now = s.now.Add(10 * time.Second)
		full += s.runUntilIdle(source.Update{Removed: []string{fmt.Sprintf("n%02d", n)}})
	}
	checkEqual(t, "full verifications while it shrinks to half", full, 0)
	full = 0
	for n := range 20 {
		s.now = s.now.Add(10 * time.Second)
		full += s.runUntilIdle(source.Update{Removed: []string{fmt.Sprintf("n%02d", 20+n)}})
	}
	checkEqual(t, "few full verifications when most are lost", full >= 1 && full <= 5, true)
}

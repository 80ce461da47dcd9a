package collector

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func checkEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// instantSource answers every request of the roster immediately.
type instantSource struct {
	*Publisher

	now time.Time
}

func newInstantSource(views ...string) *instantSource {
	p := &Publisher{
		Roster: roster.New(roster.Config{Method: resolve.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}),
		Stores: feed.NewStores("epoch"),
	}
	for _, pool := range views {
		p.Stores.Acquire(feed.View{Selector: labels.SelectorFromSet(labels.Set{"pool": pool})})
	}
	return &instantSource{p, start}
}

// runUntilIdle applies an update, and returns the number of full verifications until the roster is idle.
func (s *instantSource) runUntilIdle(update source.Update) (full int) {
	update.LastContact = s.now
	all := roster.Update{Source: update}
	for {
		_, actions := s.Publish(s.now, s.Roster.Apply(s.now, all))
		if actions.Verify == source.FullVerification {
			full++
		}
		if actions.Verify == source.NoVerification && actions.Wake.Sub(s.now) > 5*time.Second {
			return full
		}
		s.now, all = s.now.Add(5*time.Second), roster.Update{Source: source.Update{LastContact: s.now, Verified: 1}}
		if actions.Verify != source.NoVerification {
			all.Verification = &observe.VerificationResult{StartedAt: s.now, Mode: actions.Verify, Number: 1}
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
	all := source.Update{
		Changed: []source.Candidate{newCandidate("a", "blue", 1), newCandidate("b", "red", 2), newCandidate("c", "red", 3)},
	}
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
			s := newInstantSource(tc.views...)
			if tc.confirmations > 0 {
				s.Roster.SetConfirmations(tc.confirmations)
			}
			checkEqual(t, "full verifications at the start", s.runUntilIdle(all), tc.first)
			checkEqual(
				t,
				"full verifications after the move",
				s.runUntilIdle(source.Update{Changed: []source.Candidate{newCandidate("a", "red", 1)}}),
				tc.later,
			)
		})
	}
}

func TestRosterAnomalyRequestsConfirmations(t *testing.T) {
	for confirmations, later := range map[int]int{1: 1, 4: 4} {
		s := newInstantSource()
		s.Roster.SetConfirmations(confirmations)
		s.runUntilIdle(source.Update{Changed: []source.Candidate{newCandidate("a", "blue", 1)}})
		checkEqual(t, "full verifications when all nodes are removed", s.runUntilIdle(source.Update{Removed: []string{"a"}}), later)
	}
}

// The anomaly "none ready" lasts for as long as the view is drained. It requested its observation when
// it started: a view that keeps shrinking must not cause a LIST of all Nodes and a listing of the cloud
// all the time.
func TestDrainedViewRequestsObservationOnce(t *testing.T) {
	s := newInstantSource("blue")
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

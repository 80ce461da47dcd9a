// Package sourcetest has the test suite that every source of the inventory must pass: Run. It
// guarantees to test only what docs/use/sources/README.md requires of a source, through the four
// methods that the inventory uses. It does not depend on what the source reads.
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

// Member is a node or endpoint that the source should report.
type Member struct {
	Name    string // a DNS label
	Address netip.Addr
	Ready   bool
}

// Fixture is a source that does not run yet, and control over what it reads: its origin. All
// fields except Source may be nil; the suite skips the tests that need them.
type Fixture struct {
	Source roster.Source
	Set    func(t *testing.T, members ...Member) // replaces the members of the origin
	Break  func(t *testing.T)                    // makes the origin unreadable
	Repair func(t *testing.T)                    // makes it readable again
}

// timeout limits every wait for the source.
const timeout = 20 * time.Second

// Run tests a kind of source. Each call of newFixture creates an origin with these members and a
// source that has not read it yet.
func Run(t *testing.T, newFixture func(t *testing.T, members ...Member) Fixture) {
	t.Helper()
	two := []Member{newMember(1, true), newMember(2, false)}

	t.Run("full verification reports all members", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.verify(roster.FullVerification)
		h.expectMembers(two...)
		if h.lastContact.IsZero() {
			t.Error("no contact reported")
		}
	})
	t.Run("unchanged members are not reported again", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.verify(roster.FullVerification)
		h.expectMembers(two...)
		h.verify(roster.FullVerification)
		if update := h.Source.Take(); len(update.Changed)+len(update.Removed) > 0 {
			t.Errorf("reported again: %+v", update)
		}
	})
	t.Run("source catches up with light verifications", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.verify(roster.FullVerification)
		first, second := h.verify(roster.LightVerification), h.verify(roster.LightVerification)
		if second <= first {
			t.Errorf("verification %d comes after %d", second, first)
		}
		h.awaitUpdate(fmt.Sprintf("verification %d to complete", second), func() bool { return h.verified >= second })
	})
	t.Run("verification does not wait for Take", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		for range 5 {
			h.verify(roster.FullVerification) // signals Changed, which has no receiver
		}
		h.expectMembers(two...)
	})
	t.Run("verification ends with its context", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, mode := range []roster.Verification{roster.LightVerification, roster.FullVerification} {
				_, _ = h.Source.Verify(ctx, mode) // may succeed before it sees the canceled context
			}
		}()
		select {
		case <-done:
		case <-time.After(timeout):
			t.Fatal("verification does not end")
		}
		h.verify(roster.FullVerification)
		h.expectMembers(two...)
	})
	t.Run("added, changed and removed members are reported", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.require("Set", h.Set != nil)
		h.verify(roster.FullVerification)
		members := []Member{newMember(2, true), newMember(3, true)}
		h.Set(t, members...)
		h.verify(roster.FullVerification)
		h.expectMembers(members...)
	})
	t.Run("an empty origin is reported as empty", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.require("Set", h.Set != nil)
		h.verify(roster.FullVerification)
		h.Set(t)
		h.verify(roster.FullVerification)
		h.expectMembers()
	})
	t.Run("an unreadable origin fails verifications and removes nothing", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.require("Break", h.Break != nil)
		h.verify(roster.FullVerification)
		h.expectMembers(two...)
		h.Break(t)
		for _, mode := range []roster.Verification{roster.LightVerification, roster.FullVerification, roster.FullVerification} {
			if _, err := h.Source.Verify(t.Context(), mode); err == nil {
				t.Errorf("%s verification succeeded", mode)
			}
			h.expectMembers(two...)
		}
	})
	t.Run("source recovers with its origin", func(t *testing.T) {
		h := startHarness(t, newFixture(t, two...))
		h.require("Break, Repair and Set", h.Break != nil && h.Repair != nil && h.Set != nil)
		h.verify(roster.FullVerification)
		h.Break(t)
		if _, err := h.Source.Verify(t.Context(), roster.FullVerification); err == nil {
			t.Error("full verification succeeded")
		}
		h.Repair(t)
		h.Set(t, newMember(3, true))
		h.verify(roster.FullVerification)
		h.expectMembers(newMember(3, true))
	})
}

func newMember(n byte, ready bool) Member {
	return Member{Name: fmt.Sprintf("node-%d", n), Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Ready: ready}
}

// harness runs a source and collects what it reports, as the roster would.
type harness struct {
	Fixture

	t *testing.T

	nodes       map[string]roster.Node
	lastContact time.Time
	verified    uint64
}

func startHarness(t *testing.T, f Fixture) *harness {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(timeout):
			t.Error("Run does not return after its context is canceled")
		}
	})
	return &harness{Fixture: f, t: t, nodes: map[string]roster.Node{}}
}

// require skips the test unless the fixture has these functions.
func (h *harness) require(functions string, ok bool) {
	h.t.Helper()
	if !ok {
		h.t.Skipf("the fixture of this kind of source has no %s", functions)
	}
}

// verify repeats a verification until it succeeds: a source that has just started may not have
// read anything yet.
func (h *harness) verify(mode roster.Verification) (number uint64) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), timeout)
	defer cancel()
	for {
		number, err := h.Source.Verify(ctx, mode)
		if err == nil {
			h.takeUpdate()
			return number
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			h.t.Fatalf("%s verification: %v", mode, err)
		}
	}
}

// takeUpdate applies an update as the roster does, and checks its order.
func (h *harness) takeUpdate() {
	h.t.Helper()
	update := h.Source.Take()
	var changed []string
	for _, c := range update.Changed {
		h.nodes[c.Name] = c
		changed = append(changed, c.Name)
	}
	for _, name := range update.Removed {
		if slices.Contains(changed, name) {
			h.t.Errorf("%q is reported both as changed and as removed", name)
		}
		delete(h.nodes, name)
	}
	if !slices.IsSorted(changed) || !slices.IsSorted(update.Removed) {
		h.t.Errorf("not sorted: %v, %v", changed, update.Removed)
	}
	if update.Verified < h.verified {
		h.t.Errorf("verified %d, after %d", update.Verified, h.verified)
	}
	h.verified = update.Verified
	if !update.LastContact.IsZero() {
		h.lastContact = update.LastContact
	}
}

// awaitUpdate takes updates until the condition holds.
func (h *harness) awaitUpdate(what string, condition func() bool) {
	h.t.Helper()
	deadline := time.After(timeout)
	for h.takeUpdate(); !condition(); h.takeUpdate() {
		select {
		case <-h.Source.Changed():
		case <-deadline:
			h.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// expectMembers takes an update and compares the members reported so far with these.
func (h *harness) expectMembers(members ...Member) {
	h.t.Helper()
	h.takeUpdate()
	want, got := map[netip.Addr]bool{}, map[netip.Addr]bool{} // ready by address
	for _, m := range members {
		want[m.Address] = m.Ready
	}
	for name, c := range h.nodes {
		if len(c.InternalIPs) != 1 || c.Invalid != "" || c.Excluded != 0 {
			h.t.Errorf("%q is reported as %+v", name, c)
			continue
		}
		got[c.InternalIPs[0]] = c.State == roster.Ready
	}
	if !maps.Equal(want, got) {
		h.t.Errorf("reported %v, want %v (ready by address)", got, want)
	}
}

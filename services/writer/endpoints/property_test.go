package endpoints

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/internal/deltaset/deltasettest"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// drawTarget draws a target from a few names, ports and addresses.
func drawTarget(t *rapid.T) Target {
	target := Target{Namespace: "web", Service: fmt.Sprintf("s%d", rapid.IntRange(0, 2).Draw(t, "service")), ManagedBy: "slicefeed-default"}
	target.State = State(rapid.IntRange(1, 3).Draw(t, "state"))
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "a", "b"}), 0, 2, rapid.ID).Draw(t, "ports") {
		target.Ports = append(target.Ports, newPort(name, rapid.Int32Range(1, 2).Draw(t, "number")))
	}
	var listed []discoveryv1.Endpoint
	for i := range 4 {
		address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		conditions := rapid.SampledFrom([]verdict.Conditions{{}, {Ready: true, Serving: true}, {Serving: true, Terminating: true}}).
			Draw(t, "conditions")
		if rapid.Bool().Draw(t, "listed") {
			target.Decision.Endpoints = append(
				target.Decision.Endpoints,
				verdict.Endpoint{
					Address: address, Conditions: conditions, Listed: true, Source: "default",
					Ports: verdict.Ports{Text: rapid.SampledFrom([]string{"", "a/TCP:1", "a/TCP:3"}).Draw(t, "its ports")},
				},
			)
			listed = append(listed, newEndpoint(address, conditions))
		}
	}
	if target.State != Managed {
		target.Reason = rapid.SampledFrom([]string{"One", "Another"}).Draw(t, "reason")
		target.Slices = []*discoveryv1.EndpointSlice{newSlice(target, target.Ports, listed...)}
		target.Ports, target.Decision.Endpoints = nil, nil
	}
	return target
}

// After any sequence of puts, a reader from any position has the same set as a reader of a store that
// only received the last state.
func TestR10EveryReaderConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newStore("instance", 16)
		b.MarkSynced()
		truth := map[string]Target{}
		type reader struct {
			deltasettest.Reader

			selects  deltaset.Filter
			gathered bool
		}
		some := SelectServices([]ServiceName{{"web", "s1"}, {"web", "s7"}})
		readers := []*reader{
			{},
			{gathered: true},
			{selects: some},
			{selects: some, gathered: true},
			{selects: SelectServices([]ServiceName{{Namespace: "web"}})},
		}
		check := func(t *rapid.T, r *reader) {
			fresh := newStore("fresh", 16)
			fresh.MarkSynced()
			for _, name := range slices.Sorted(maps.Keys(truth)) {
				fresh.Put(truth[name])
			}
			u := b.Since(r.Position, r.selects, r.gathered)
			if err := deltasettest.Apply(&r.Reader, u.Delta); err != nil {
				t.Fatal(err)
			}
			var want deltasettest.Reader
			if err := deltasettest.Apply(&want, fresh.Since(nil, r.selects, r.gathered).Delta); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(r.Set, want.Set) {
				t.Fatalf("the reader has %v, the truth is %v", r.Set, want.Set)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				target := drawTarget(t)
				truth[target.Service] = target
				revision := b.Revision()
				b.Put(target)
				changed := b.Changed()
				after := b.Revision()
				b.Put(target)
				if b.Revision() != after || changed != b.Changed() {
					t.Fatal("putting the same twice is a change")
				}
				if most := uint64(1 + 4); after-revision > most { // the target, two ports that go and two that come
					t.Fatalf("%d changes of %d entries", after-revision, most)
				}
			},
			"remove": func(t *rapid.T) {
				name := fmt.Sprintf("s%d", rapid.IntRange(0, 2).Draw(t, "service"))
				delete(truth, name)
				b.Remove("web", name)
			},
			"read": func(t *rapid.T) { check(t, rapid.SampledFrom(readers).Draw(t, "reader")) },
			"":     func(t *rapid.T) { check(t, &reader{gathered: true}) }, // single addresses are kept from the first read on
		})
	})
}

// Whatever is decided, the texts of an explanation say what is listed and by which rule, and advise about what is not
// ready.
func TestAnExplanationFitsTheDecision(t *testing.T) {
	now := time.Unix(10_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		source := verdict.Source{
			Name:               "default",
			EverSynced:         rapid.Bool().Draw(t, "ever synced"),
			MembershipSynced:   rapid.Bool().Draw(t, "synced"),
			MembershipSyncedAt: now,
			Allowlist:          verdict.Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}},
		}
		source.Connected = source.EverSynced && rapid.Bool().Draw(t, "connected")
		input := verdict.Input{
			LeadingSince: now.Add(-time.Hour),
			Limits: verdict.Limits{
				Probing:      rapid.Bool().Draw(t, "probing"),
				ListUnready:  rapid.Bool().Draw(t, "list unready"),
				ShrinkWindow: time.Minute,
			},
		}
		var addresses []netip.Addr
		for i := range 5 {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			addresses = append(addresses, address)
			if rapid.Bool().Draw(t, "reported") {
				source.Members = append(
					source.Members,
					verdict.Member{Address: address, Name: "node", State: verdict.State(rapid.IntRange(0, 3).Draw(t, "state"))},
				)
			}
			if rapid.Bool().Draw(t, "current") {
				input.Current = append(
					input.Current,
					verdict.CurrentEndpoint{
						Address:    address,
						Conditions: rapid.SampledFrom([]verdict.Conditions{ready, draining, out}).Draw(t, "conditions"),
					},
				)
			}
			input.Probes = append(
				input.Probes,
				verdict.Probe{Address: address, Status: verdict.ProbeStatus(rapid.IntRange(0, 2).Draw(t, "probe"))},
			)
		}
		source.Trusted, input.Sources = source.Members, []verdict.Source{source}
		_, decision := verdict.Decide(verdict.Memory{}, input, now)
		b := NewStore("instance")
		b.Put(
			Target{
				Namespace: "web",
				Service:   "a",
				State:     Managed,
				Leading:   true,
				Input:     input,
				Decision:  decision,
				Sources: []subscriber.Snapshot{{
					Source: "default", EverSynced: source.EverSynced, Connected: source.Connected, SyncedInStream: source.Connected,
				}},
			},
		)
		for _, address := range addresses {
			e, _ := b.Explain(ServiceName{"web", "a"}, address, now)
			var decided verdict.Endpoint
			for _, d := range decision.Endpoints {
				if d.Address == address {
					decided = d
				}
			}
			desired := ListedBackend(&decided).String()
			checkEqual(t, "last step", e.Steps[len(e.Steps)-1], Step{"desired", desired})
			if !strings.Contains(strings.ToLower(e.Conclusion), desired) && decided.Verdict != 0 {
				t.Errorf("%q does not say %q", e.Conclusion, desired)
			}
			if rule := "by rule " + string(
				decided.Rule,
			); decided.Verdict != 0 &&
				!slices.ContainsFunc(e.Steps, func(s Step) bool { return strings.Contains(s.Detail, rule) }) {
				t.Errorf("%v do not say %q", e.Steps, rule)
			}
			if desired != "ready" && e.Advice == "" {
				t.Errorf("no advice about %+v: %s", decided, e.Conclusion)
			}
		}
	})
}

package endpoints

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/stream"
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
			testClient

			selects *stream.Selection
			grouped bool
		}
		some := SelectServices([]ServiceName{{"web", "s1"}, {"web", "s7"}})
		readers := []*reader{
			{},
			{grouped: true},
			{selects: some},
			{selects: some, grouped: true},
			{selects: SelectServices([]ServiceName{{Namespace: "web"}})},
		}
		check := func(t *rapid.T, r *reader) {
			fresh := newStore("fresh", 16)
			fresh.MarkSynced()
			for _, name := range slices.Sorted(maps.Keys(truth)) {
				fresh.Put(truth[name])
			}
			r.catchUp(t, b.Feed(r.grouped), r.selects)
			want := testClient{}
			want.catchUp(t, fresh.Feed(r.grouped), r.selects)
			if diff := cmp.Diff(want.set, r.set, protocmp.Transform()); diff != "" {
				t.Fatalf("the reader's set is not the truth (-want +got):\n%s", diff)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				target := drawTarget(t)
				truth[target.Service] = target
				revision := b.Revision()
				b.Put(target)
				_, changed := b.Feed(true).Status()
				after := b.Revision()
				b.Put(target)
				if _, now := b.Feed(true).Status(); b.Revision() != after || changed != now {
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
			"":     func(t *rapid.T) { check(t, &reader{grouped: true}) }, // single addresses are kept from the first read on
		})
	})
}

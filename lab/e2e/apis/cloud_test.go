package apis

import (
	"slices"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// cloudFault is a kind of fault and what it comes to.
type cloudFault struct {
	kind  ionosapi.Kind
	fault ionosapi.Fault // but for the kind
	// reason is what the status of the addresses says; empty: the fault is harmless, and
	// they are SYNCED.
	reason string
	gate   bool // the one of its class that the gate plays
}

// How the cloud API fails, and what the feed says of it: each kind of fault that the emulator
// has. The set that is told stays exactly as it was.
func TestEveryFaultOfTheCloudAPI(t *testing.T) {
	p := prove(t, e2e.Options{Inventory: unhurried})
	// Some faults hit the first server of a list, some the last: workers are both.
	first := p.Machine(pair.WorkerOptions{Name: "a-first"})
	p.Must(first.Join(p.Ctx()))
	p.joinWith(3)
	p.stay = append(p.stay, first, p.scout)
	const second = ionosapi.Duration(time.Second)
	table := []cloudFault{
		{kind: ionosapi.TooManyRequests, reason: "429"}, // it then waits 30 s by itself
		{kind: ionosapi.TooManyRequestsSeconds, fault: ionosapi.Fault{Wait: second}, reason: "429", gate: true},
		{kind: ionosapi.TooManyRequestsDate, fault: ionosapi.Fault{Wait: second}, reason: "429"},
		{kind: ionosapi.ServerError, reason: "500"},
		{kind: ionosapi.BadGatewayHTML, reason: "502"},
		{kind: ionosapi.Unavailable, reason: "503", gate: true},
		{kind: ionosapi.Unauthorized, fault: ionosapi.Fault{Skip: 1}, reason: "401"},
		{kind: ionosapi.Hang, reason: "no complete response"},
		{kind: ionosapi.Reset, reason: "reset", gate: true},
		{kind: ionosapi.EmptyBody, reason: "cloud listing failed"},
		{kind: ionosapi.EmptyObject, reason: "cloud listing failed"},
		{kind: ionosapi.NoContent, reason: "cloud listing failed"},
		{kind: ionosapi.ErrorIn200, reason: "without type or id", gate: true},
		{kind: ionosapi.Redirect, reason: "redirect"},
		{kind: ionosapi.Oversized, fault: ionosapi.Fault{Bytes: 65 << 20, Count: 1}, reason: "longer than"},
		{kind: ionosapi.Truncated, reason: "unexpected end of JSON"},
		{kind: ionosapi.ItemsNull, reason: "without items"},
		{kind: ionosapi.UnknownType, reason: "quantum-thing"},
		{kind: ionosapi.StringLAN, reason: "cannot unmarshal string"},
		{kind: ionosapi.WrongID, reason: "something-else"},
		{kind: ionosapi.PlainText, reason: "text/plain"},
		{kind: ionosapi.EmptyList, gate: true},
		{kind: ionosapi.Shrink},
		{kind: ionosapi.Repeat, reason: "inconsistent pages", gate: true},
		{kind: ionosapi.NoLinks}, // the emulator's pages have fewer servers than the inventory asks for
		{kind: ionosapi.ZeroLimit, reason: "limit"},
		{kind: ionosapi.Busy},
		{kind: ionosapi.ShuffledIPs},
		{kind: ionosapi.LateNICs, gate: true},
		{kind: ionosapi.DuplicateNames},
		{kind: ionosapi.SharedAddress, fault: ionosapi.Fault{Address: "10.0.1.250"}},
		{kind: ionosapi.HiddenSharing, fault: ionosapi.Fault{Address: "10.0.1.250"}, gate: true},
	}
	for _, kind := range ionosapi.Kinds() {
		if !slices.ContainsFunc(table, func(is cloudFault) bool { return is.kind == kind }) {
			t.Errorf("nothing is expected of %s", kind)
		}
	}
	for _, row := range table {
		if !row.gate && !e2e.IsLong() {
			continue
		}
		p.trial("the cloud: "+string(row.kind), func(p *proof) {
			p.T.Cleanup(p.Cloud.ClearFaults)
			p.holds(func() {
				fault := row.fault
				fault.Kind = row.kind
				_, err := p.Cloud.AddFault(fault)
				p.Must(err)
				if row.reason == "" {
					p.listed()
					for _, w := range p.feed.Since(p.mark) {
						if inCloud(w).State != synced {
							p.T.Errorf("the addresses are %v", inCloud(w))
						}
					}
				} else {
					p.says(inCloud, degraded, row.reason)
				}
				p.Cloud.ClearFaults()
				p.says(inCloud, synced)
			})
		})
	}
	p.Step("after all of it, the feed is acted upon", func(s *e2e.Setup) { p.on(s).follows() })
}

// listed waits until a whole listing that begins after now has been taken in: there is but one
// at a time, so the next has begun by then.
func (p *proof) listed() {
	p.T.Helper()
	_, err := p.Cloud.WaitListing(p.Ctx())
	p.Must(err)
	asked := p.Cloud.Asked()
	p.Until("the next listing begins", func() bool { return p.Cloud.Asked() > asked })
}

package apis

import (
	"context"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/watchfeed"
)

// proof is a setup whose inventory reaches its API server through a proxy, with a record of all that the feed sends.
type proof struct {
	*e2e.Setup

	proxy *apifault.Proxy
	feed  *watchfeed.Recorder

	stay  []*pair.Worker // they live through everything,
	scout *pair.Worker   // and this one goes and returns

	mark int // where the present trial begins in the record
}

type (
	word      = watchfeed.Word
	sliceList = []*discoveryv1.EndpointSlice
)

const (
	synced   = inventoryv1.SyncState_SYNC_STATE_SYNCED
	degraded = inventoryv1.SyncState_SYNC_STATE_DEGRADED
	unsynced = inventoryv1.SyncState_SYNC_STATE_UNSYNCED
)

func membership(w word) watchfeed.Part { return w.Membership }

func inCloud(w word) watchfeed.Part { return w.Addresses }

// unhurried lets the inventory list the cloud each second, as the setup does: its budget
// of requests is meant for the product's own intervals.
var unhurried = map[string]string{"IONOS_REQUEST_BUDGET": "6000"}

// prove starts everything, with the proxy.
func prove(t *testing.T, sc e2e.Options) *proof {
	t.Helper()
	s := e2e.New(t, sc)
	p := &proof{Setup: s, proxy: s.Behind(s.Inventory)}
	s.StartAll()
	p.feed = p.record()
	return p
}

// record has a subscriber remember what the feed says, until the test ends.
func (p *proof) record() *watchfeed.Recorder {
	p.T.Helper()
	r := watchfeed.New(p.OperatorConn())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	p.T.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.T.Error(err)
		}
	})
	return r
}

// joinWith has so many workers join that stay, and the scout.
func (p *proof) joinWith(n int) {
	p.T.Helper()
	all := p.Join(n + 1)
	p.stay, p.scout = all[:n], all[n]
	p.Until("the feed has said so", func() bool { return p.feed.Count() > 0 && p.feed.Since(p.feed.Count())[0].Set[p.scout.Name] != nil })
}

// restless has the inventory observe every few seconds, as it does while no node is READY. They are served all the same,
// since they pass their probes.
func (p *proof) restless() {
	p.T.Helper()
	for _, w := range slices.Concat(p.stay, []*pair.Worker{p.scout}) {
		p.Must(w.SetReady(p.Ctx(), false))
	}
	p.Until("the feed has said so", func() bool {
		for _, n := range p.feed.Since(p.feed.Count())[0].Set {
			if n.GetState() != inventoryv1.NodeState_NODE_STATE_NOT_READY {
				return false
			}
		}
		return true
	})
	p.mark = p.feed.Count()
}

// on is the proof in a step.
func (p *proof) on(s *e2e.Setup) *proof {
	inner := *p
	inner.Setup = s
	return &inner
}

// trial is a fault: the workers that stay must be in every
// set that is sent from its beginning to its end.
func (p *proof) trial(fault string, play func(*proof)) {
	p.T.Helper()
	p.Step(fault, func(s *e2e.Setup) {
		p := p.on(s)
		p.mark = p.feed.Count()
		play(p)
		p.judge()
	})
}

func (p *proof) judge() {
	p.T.Helper()
	for _, w := range p.feed.Since(p.mark) {
		for _, worker := range p.stay {
			if w.Synced && w.Set[worker.Name] == nil {
				p.T.Errorf("%s is not in the set %q, which was sent %s ago", worker.Name, w.Names(), time.Since(w.At))
			}
		}
	}
}

// holds wants no write, and the set as it was, from before to after something.
func (p *proof) holds(during func()) {
	p.T.Helper()
	before := p.ListNodes(p.OperatorConn())
	p.ExpectNoWrites(func() {
		during()
		after := p.ListNodes(p.OperatorConn())
		if string(before.GetDigest()) != string(after.GetDigest()) || len(before.GetNodes()) != len(after.GetNodes()) {
			p.T.Errorf("the set was %v and is %v", before.GetNodes(), after.GetNodes())
		}
	})
	for _, w := range p.feed.Since(p.mark) {
		if w.Synced && w.Digest != string(before.GetDigest()) {
			p.T.Errorf("meanwhile the set was %q", w.Names())
		}
	}
}

// says waits until the feed's last message has this state of a part, for a reason that contains these texts.
func (p *proof) says(of func(word) watchfeed.Part, state inventoryv1.SyncState, reason ...string) word {
	p.T.Helper()
	ctx := p.Ctx()
	for mark := p.feed.Count(); ; mark++ {
		last := p.feed.Since(mark)[0]
		if is := of(last); is.State == state && e2e.ContainsAll(is.Reason, reason...) {
			return last
		}
		_, err := p.feed.Wait(ctx, mark, func(word) bool { return true })
		if err != nil {
			p.T.Fatalf("waited for %s because of %q: %v; the last message: %v", state, reason, err, of(last))
		}
	}
}

// follows wants a Node that is deleted to leave, and to return when it is made again.
func (p *proof) follows() {
	p.T.Helper()
	p.Must(p.scout.Leave(p.Ctx()))
	p.Await("the scout is gone", pair.Are(pair.Absent, p.scout.Address))
	p.returns()
}

func (p *proof) returns() {
	p.T.Helper()
	p.Must(p.scout.Join(p.Ctx()))
	p.Await("the scout is back", pair.Are(pair.Ready, p.scout.Address))
}

// once wants one worker to leave the set, and another to come, no more than once.
func (p *proof) once(gone, come *pair.Worker) {
	p.T.Helper()
	for worker, was := range map[*pair.Worker]bool{gone: true, come: false} {
		turns := 0
		for _, w := range p.feed.Since(p.mark) {
			if w.Synced && (w.Set[worker.Name] != nil) != was {
				was = !was
				turns++
			}
		}
		if turns != 1 {
			p.T.Errorf("%s changed %d times", worker.Name, turns)
		}
	}
}

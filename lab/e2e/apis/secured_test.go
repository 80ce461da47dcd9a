package apis

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// How the secured cluster's API server fails, and what the feed says of it. In all of it the
// set that is sent is never smaller than the truth, and the writer writes nothing.
func TestProofOfLife(t *testing.T) {
	p := prove(t, e2e.Options{Inventory: unhurried})
	p.joinWith(3)

	p.trial("etcd is frozen: quorum LISTs time out", func(p *proof) {
		t.Cleanup(func() { _ = p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT) })
		p.restless()
		p.holds(func() {
			p.Must(p.Secured.Signal(controlplane.Etcd, syscall.SIGSTOP))
			p.says(membership, degraded, "source verification failed")
			p.Must(p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT))
			p.says(membership, synced)
		})
		p.follows()
	})
	p.trial("the API server is a black hole, and a Node is deleted behind it", func(p *proof) {
		p.restless()
		p.holds(func() {
			p.proxy.Set(apifault.Fault{BlackHole: true})
			p.Must(p.scout.Leave(p.Ctx()))
			p.says(membership, degraded, "source verification failed")
		})
		p.proxy.Set(apifault.Fault{})
		p.T.Logf("the deleted Node left %s after the API server answered again",
			p.Await("it is gone", pair.Are(pair.Absent, p.scout.Address)))
		p.says(membership, synced)
		p.returns()
	})
	p.trial("a watch stays open and silent, and a Node is deleted behind it", func(p *proof) {
		p.restless()
		p.proxy.Forget()
		p.Must(p.scout.Leave(p.Ctx()))
		p.says(membership, degraded, "inconsistent")
		p.T.Logf("the Nodes were read again %s later", p.Await("the deleted one is gone", pair.Are(pair.Absent, p.scout.Address)))
		p.says(membership, synced)
		p.returns()
	})
	p.trial("the watch has to start again (410), and Nodes came and went meanwhile", func(p *proof) {
		newcomer := p.Machine(pair.WorkerOptions{})
		p.proxy.Forget() // otherwise it would be sent before the watch ends
		p.Must(p.scout.Leave(p.Ctx()))
		p.Must(newcomer.Join(p.Ctx()))
		requests := p.proxy.Count()
		p.proxy.Expire(1)
		p.Await("both is published", func(all sliceList) bool {
			return pair.Are(pair.Absent, p.scout.Address)(all) && pair.Are(pair.Ready, newcomer.Address)(all)
		})
		p.once(p.scout, newcomer)
		p.Until("all Nodes are read again", func() bool {
			return slices.ContainsFunc(p.proxy.RequestsSince(requests), func(r apifault.Request) bool {
				return r.Verb == apifault.Watch && r.Query.Get("sendInitialEvents") == "true" ||
					r.Verb == apifault.List && r.Query.Get("limit") != "1"
			})
		})
		p.Must(newcomer.Leave(p.Ctx()))
		p.Await("the newcomer is gone", pair.Are(pair.Absent, newcomer.Address))
		p.returns()
	})
	for _, row := range []struct {
		name   string
		fault  apifault.Fault
		reason string // empty: it is harmless
		long   bool
	}{
		{"LISTs are answered 429 with Retry-After", apifault.Fault{Refuse: http.StatusTooManyRequests, RetryAfter: time.Second}, "source verification failed", true},
		{"LISTs are answered 500", apifault.Fault{Refuse: http.StatusInternalServerError}, "the server was told to fail", false},
		{"the pages of LISTs are torn: continue tokens expire", apifault.Fault{PageLimit: 2, Torn: true}, "continue parameter is too old", false},
		{"LISTs are answered late, yet in time", apifault.Fault{Delay: 300 * time.Millisecond}, "", true},
		{"pages are shorter than asked for", apifault.Fault{PageLimit: 2}, "", true},
	} {
		p.trial(row.name, func(p *proof) {
			if row.long {
				e2e.Long(p.T)
			}
			p.restless()
			p.holds(func() {
				mark, begun := p.proxy.Count(), time.Now()
				p.proxy.Set(row.fault)
				if row.reason == "" {
					p.Must(p.WaitObservations(p.Ctx(), 2))
					p.says(membership, synced)
				} else {
					p.says(membership, degraded, row.reason)
				}
				p.pacing(mark, begun)
				p.proxy.Set(apifault.Fault{})
				p.says(membership, synced)
			})
			p.follows()
		})
	}
	p.trial("the permission to list Nodes is withdrawn", func(p *proof) {
		p.restless()
		p.holds(func() {
			back := p.withdraw("list")
			p.says(membership, degraded, "cannot list resource", "nodes")
			back()
			p.says(membership, synced)
		})
		p.follows()
	})
	p.trial("the inventory starts while the API server is a black hole", func(p *proof) {
		p.holds(func() {
			p.Must(p.Inventory.Kill())
			p.proxy.Set(apifault.Fault{BlackHole: true})
			p.Must(p.Inventory.Launch())
			blind := p.record() // one that holds nothing
			_, err := blind.Wait(p.Ctx(), 0, func(w word) bool {
				return membership(w).State == unsynced && strings.Contains(membership(w).Reason, "nodes")
			})
			p.Must(err)
			if got := p.health(); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				p.T.Errorf("its health is %s", got)
			}
			for _, w := range blind.Since(0) {
				if w.Synced {
					p.T.Errorf("it said %q", w.Names())
				}
			}
			p.proxy.Set(apifault.Fault{})
			p.Must(p.Inventory.Ready(p.Ctx()))
			p.says(membership, synced)
		})
		p.follows()
	})
}

const inventoryRole = "slicefeed-inventory.slicefeed" // release and namespace

// withdraw takes a verb on Nodes from the inventory; the function that it returns gives it back.
func (p *proof) withdraw(verb string) (back func()) {
	roles := p.SecuredClient().RbacV1().ClusterRoles()
	role, err := roles.Get(p.Ctx(), inventoryRole, metav1.GetOptions{})
	p.Must(err)
	before := slices.Clone(role.Rules)
	set := func(ctx context.Context, rules []rbacv1.PolicyRule) error {
		role, err := roles.Get(ctx, inventoryRole, metav1.GetOptions{})
		if err == nil {
			role.Rules = rules
			_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		}
		return err
	}
	less := role.DeepCopy().Rules
	for i, rule := range less {
		if slices.Contains(rule.Resources, "nodes") {
			less[i].Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb })
		}
	}
	p.Must(set(p.Ctx(), less))
	p.T.Cleanup(func() { _ = set(context.Background(), before) })
	return func() { p.Must(set(p.Ctx(), before)) }
}

// pacing wants no more than two LISTs a second since the mark, and a few at once.
func (p *proof) pacing(mark int, begun time.Time) {
	lists := 0
	for _, r := range p.proxy.RequestsSince(mark) {
		if r.Verb == apifault.List {
			lists++
		}
	}
	took := time.Since(begun)
	p.T.Logf("%d LISTs in %s", lists, took)
	if most := 6 + int(2*took.Seconds()); lists > most {
		p.T.Errorf("%d LISTs in %s, which is a tight loop: at most %d", lists, took, most)
	}
}

func (p *proof) health() grpc_health_v1.HealthCheckResponse_ServingStatus {
	answer, err := grpc_health_v1.NewHealthClient(p.OperatorConn()).Check(p.Ctx(), &grpc_health_v1.HealthCheckRequest{})
	p.Must(err)
	return answer.GetStatus()
}

func TestBookmarksOfAFrozenEtcdAreNoProofOfLife(t *testing.T) {
	e2e.Long(t)
	p := prove(t, e2e.Options{})
	p.Patience = 5 * time.Minute
	p.joinWith(3)
	p.trial("etcd is frozen, and bookmarks keep coming", func(p *proof) {
		t.Cleanup(func() { _ = p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT) })
		p.restless()
		p.holds(func() {
			p.Must(p.Secured.Signal(controlplane.Etcd, syscall.SIGSTOP))
			frozen, before := time.Now(), p.bookmarks()
			p.says(membership, degraded, "source verification failed")
			p.Until("a bookmark comes", func() bool { return p.bookmarks() > before })
			p.T.Logf("a bookmark came %s after etcd was frozen", time.Since(frozen))
			if got := membership(p.feed.Since(p.feed.Count())[0]); got.State != degraded {
				p.T.Errorf("after it, membership is %v", got)
			}
			p.Must(p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT))
			p.says(membership, synced)
		})
		p.follows()
	})
}

func (p *proof) bookmarks() (n int) {
	for _, r := range p.proxy.Requests() {
		n += r.Bookmarks
	}
	return n
}

func TestASilentWatchIsFoundOutAtRest(t *testing.T) {
	e2e.Long(t)
	p := prove(t, e2e.Options{Inventory: atRest})
	p.Patience = 6 * time.Minute
	p.joinWith(3)
	p.trial("at rest, the watch falls silent while LISTs pass", func(p *proof) {
		p.holds(func() {
			p.proxy.Set(apifault.Fault{Silent: true})
			begun := time.Now()
			p.Must(p.scout.Leave(p.Ctx()))
			w := p.says(membership, degraded)
			took := time.Since(begun)
			p.T.Logf("DEGRADED after %s: %s", took, membership(w).Reason)
			if took > 215*time.Second { // a look a minute, and 150 s to catch up with it
				p.T.Errorf("DEGRADED only after %s", took)
			}
		})
		p.proxy.Set(apifault.Fault{})
		p.Await("the deleted Node is gone", pair.Are(pair.Absent, p.scout.Address))
		p.says(membership, synced)
		p.returns()
	})
}

// atRest are the product's own intervals.
var atRest = map[string]string{"IONOS_POLL_INTERVAL": "", "SOURCE_POLL_INTERVAL": ""}

func TestAtRestALookAMinuteIsAllThatItCosts(t *testing.T) {
	e2e.Long(t)
	p := prove(t, e2e.Options{Inventory: atRest})
	p.Patience = 5 * time.Minute
	p.joinWith(3)
	light := func(all []apifault.Request) (light, others int) {
		for _, r := range all {
			switch {
			case r.Verb == apifault.List && r.Query.Get("limit") == "1":
				light++
			case r.Verb != apifault.Watch:
				others++
			}
		}
		return light, others
	}
	start := p.proxy.Count()
	p.Until("it looks for the first time at rest", func() bool { n, _ := light(p.proxy.RequestsSince(start)); return n > 0 })
	mark, begun := p.proxy.Count(), time.Now()
	p.ExpectNoWrites(func() {
		p.Until("it has looked twice more", func() bool { n, _ := light(p.proxy.RequestsSince(mark)); return n >= 2 })
	})
	took := time.Since(begun)
	looks, others := light(p.proxy.RequestsSince(mark))
	listings := 0
	for _, r := range p.Cloud.Requests() {
		if r.At.After(begun) && strings.Contains(r.URL, "/servers") && strings.Contains(r.URL, "offset=0") {
			listings++
		}
	}
	p.T.Logf("in %s: %d LISTs with limit=1, %d other requests that are no watch, %d listings of the cloud", took, looks, others, listings)
	if took < 118*time.Second {
		t.Errorf("two looks came within %s", took)
	}
	if others != 0 {
		t.Errorf("%d other requests to the API server: %s", others, describe(p.proxy.RequestsSince(mark)))
	}
	if most := int(took.Minutes()) + 1; listings > most {
		t.Errorf("%d listings of the cloud, at most %d", listings, most)
	}
}

func describe(all []apifault.Request) string {
	var lines []string
	for _, r := range all {
		lines = append(lines, fmt.Sprintf("%s %s?%s %d", r.Verb, r.Path, r.Query.Encode(), r.Status))
	}
	return strings.Join(lines, "\n")
}

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// How the secured cluster's API server fails, and what the feed says of it. In all of it the
// set that is told is never smaller than the truth, and the writer writes nothing.
func TestProofOfLife(t *testing.T) {
	p := prove(t, script{inventory: unhurried})
	p.hire(3)

	p.trial("etcd is frozen: quorum LISTs time out", func(p *proof) {
		t.Cleanup(func() { _ = p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT) })
		p.holds(func() {
			p.must(p.Secured.Signal(controlplane.Etcd, syscall.SIGSTOP))
			p.observe()
			p.says(membership, degraded, "source verification failed")
			p.must(p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT))
			p.says(membership, synced)
		})
		p.follows()
	})
	p.trial("the API server is a black hole, and a Node is deleted behind it", func(p *proof) {
		p.holds(func() {
			p.proxy.Set(apifault.Fault{BlackHole: true})
			p.must(p.scout.Leave(p.ctx()))
			p.observe()
			p.says(membership, degraded, "source verification failed")
		})
		p.proxy.Set(apifault.Fault{})
		p.t.Logf(
			"the deleted Node left %s after the API server answered again",
			p.slices("it is gone", pair.Are(pair.Absent, p.scout.Address)),
		)
		p.says(membership, synced)
		p.returns()
	})
	p.trial("a watch stays open and silent, and a Node is deleted behind it", func(p *proof) {
		p.proxy.Forget()
		p.must(p.scout.Leave(p.ctx()))
		p.observe()
		p.says(membership, degraded, "inconsistent")
		p.t.Logf("the Nodes were read anew %s later", p.slices("the deleted one is gone", pair.Are(pair.Absent, p.scout.Address)))
		p.says(membership, synced)
		p.returns()
	})
	p.trial("every watch is silent, new ones too, and a Node is deleted behind it", func(p *proof) {
		long(p.t)
		p.holds(func() {
			p.proxy.Set(apifault.Fault{Silent: true})
			p.must(p.scout.Leave(p.ctx()))
			p.observe()
			p.says(membership, degraded, "inconsistent")
		})
		p.proxy.Set(apifault.Fault{})
		p.slices("the deleted one is gone", pair.Are(pair.Absent, p.scout.Address))
		p.says(membership, synced)
		p.returns()
	})
	p.trial("the watch has to start anew (410), and Nodes came and went meanwhile", func(p *proof) {
		newcomer := p.machine(pair.WorkerOptions{})
		p.proxy.Forget() // else it would be told before the watch ends
		p.must(p.scout.Leave(p.ctx()))
		p.must(newcomer.Join(p.ctx()))
		requests := p.proxy.Count()
		p.proxy.Expire(1)
		p.slices("both is told", func(all sliceList) bool {
			return pair.Are(pair.Absent, p.scout.Address)(all) && pair.Are(pair.Ready, newcomer.Address)(all)
		})
		p.once(p.scout, newcomer)
		p.until("all Nodes are read anew", func() bool {
			return slices.ContainsFunc(p.proxy.RequestsSince(requests), func(r apifault.Request) bool {
				return r.Verb == apifault.Watch && r.Query.Get("sendInitialEvents") == "true" ||
					r.Verb == apifault.List && r.Query.Get("limit") != "1"
			})
		})
		p.must(newcomer.Leave(p.ctx()))
		p.slices("the newcomer is gone", pair.Are(pair.Absent, newcomer.Address))
		p.returns()
	})
	for _, row := range []struct {
		name   string
		fault  apifault.Fault
		reason string // empty: it is harmless
		long   bool
	}{
		{"LISTs are answered 429 with Retry-After", apifault.Fault{Refuse: http.StatusTooManyRequests, RetryAfter: time.Second}, "source verification failed", false},
		{"LISTs are answered 500", apifault.Fault{Refuse: http.StatusInternalServerError}, "the server was told to fail", false},
		{"the pages of LISTs are torn: continue tokens expire", apifault.Fault{PageLimit: 2, Torn: true}, "continue parameter is too old", false},
		{"LISTs are answered late, yet in time", apifault.Fault{Delay: 300 * time.Millisecond}, "", true},
		{"pages are shorter than asked for", apifault.Fault{PageLimit: 2}, "", true},
	} {
		p.trial(row.name, func(p *proof) {
			if row.long {
				long(p.t)
			}
			p.holds(func() {
				mark, begun := p.proxy.Count(), time.Now()
				p.proxy.Set(row.fault)
				p.observe()
				if row.reason == "" {
					p.must(p.WaitObservations(p.ctx(), 2))
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
		p.holds(func() {
			back := p.withdraw("list")
			p.observe()
			p.says(membership, degraded, "cannot list resource", "nodes")
			back()
			p.says(membership, synced)
		})
		p.follows()
	})
	p.trial("the inventory starts while the API server is a black hole", func(p *proof) {
		p.holds(func() {
			p.must(p.Inventory.Kill())
			p.proxy.Set(apifault.Fault{BlackHole: true})
			p.must(p.Inventory.Launch())
			blind := p.record() // one that holds nothing
			_, err := blind.Wait(p.ctx(), 0, func(w word) bool {
				return membership(w).State == unsynced && strings.Contains(membership(w).Reason, "nodes")
			})
			p.must(err)
			if got := p.health(); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				p.t.Errorf("its health is %s", got)
			}
			for _, w := range blind.Since(0) {
				if w.Synced {
					p.t.Errorf("it said %q", w.Names())
				}
			}
			p.proxy.Set(apifault.Fault{})
			p.must(p.Inventory.Ready(p.ctx()))
			p.says(membership, synced)
		})
		p.follows()
	})
	p.step(
		"all Nodes are really deleted: believed after three observations, 4 s apart, and followed as the machines fall silent",
		func(s *stage) {
			p := p.on(s)
			begun, mark := time.Now(), p.feed.Count()
			p.must(p.SecuredClient().CoreV1().Nodes().DeleteCollection(p.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			empty, err := p.feed.Wait(p.ctx(), mark, func(w word) bool { return w.Synced && len(w.Set) == 0 })
			p.must(err)
			p.event("SourceEmpty")
			p.event("LastEndpointsKept") // it is believed, and what still answers stays
			took := time.Since(begun)
			// The first to be deleted are gone before the set is empty, as SHRINK_WINDOW is 0 here.
			if len(pair.Conditions(p.Now())) == 0 {
				p.t.Errorf("none is left though %d still answer", len(p.stay))
			}
			observed := p.feed.Since(p.feed.Count())[0].Observation - empty.Observation
			p.t.Logf("told as empty %s, and believed %s after the deletion, %d observations later", empty.At.Sub(begun), took, observed)
			if took < 8*time.Second || observed < 3 {
				p.t.Errorf("believed after %s and %d observations, which is too soon", took, observed)
			}
			p.rows.add(row{fault: "all Nodes are really deleted at once", said: "SYNCED, empty", truth: 0, smallest: 0})
			for _, w := range append(p.stay, p.scout) {
				p.must(w.Set(backend.Refuse))
			}
			p.slices("nothing is left", pair.AreJust(pair.Ready))
		},
	)
	p.print()
}

// withdraw takes a verb on Nodes from the inventory; the function that it returns gives it back.
func (p *proof) withdraw(verb string) (back func()) {
	roles := p.SecuredClient().RbacV1().ClusterRoles()
	role, err := roles.Get(p.ctx(), "slicefeed-inventory", metav1.GetOptions{})
	p.must(err)
	before := slices.Clone(role.Rules)
	set := func(ctx context.Context, rules []rbacv1.PolicyRule) error {
		role, err := roles.Get(ctx, "slicefeed-inventory", metav1.GetOptions{})
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
	p.must(set(p.ctx(), less))
	p.t.Cleanup(func() { _ = set(context.Background(), before) })
	return func() { p.must(set(p.ctx(), before)) }
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
	p.t.Logf("%d LISTs in %s", lists, took)
	if most := 6 + int(2*took.Seconds()); lists > most {
		p.t.Errorf("%d LISTs in %s, which is a tight loop: at most %d", lists, took, most)
	}
}

func (p *proof) health() grpc_health_v1.HealthCheckResponse_ServingStatus {
	answer, err := grpc_health_v1.NewHealthClient(p.operator()).Check(p.ctx(), &grpc_health_v1.HealthCheckRequest{})
	p.must(err)
	return answer.GetStatus()
}

// long skips a test that waits for what takes minutes at rest, but where they are asked for.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SLICEFEED_LONG") != "1" {
		t.Skip("it takes minutes: set SLICEFEED_LONG=1")
	}
}

func TestBookmarksOfAFrozenEtcdAreNoProofOfLife(t *testing.T) {
	long(t)
	p := prove(t, script{})
	p.patience = 5 * time.Minute
	p.hire(3)
	p.trial("etcd is frozen, and bookmarks keep coming", func(p *proof) {
		t.Cleanup(func() { _ = p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT) })
		p.holds(func() {
			p.must(p.Secured.Signal(controlplane.Etcd, syscall.SIGSTOP))
			frozen, before := time.Now(), p.bookmarks()
			p.observe()
			p.says(membership, degraded, "source verification failed")
			p.until("a bookmark comes", func() bool { return p.bookmarks() > before })
			p.t.Logf("a bookmark came %s after etcd was frozen", time.Since(frozen))
			if got := membership(p.feed.Since(p.feed.Count())[0]); got.State != degraded {
				p.t.Errorf("after it, membership is %v", got)
			}
			p.must(p.Secured.Signal(controlplane.Etcd, syscall.SIGCONT))
			p.says(membership, synced)
		})
		p.follows()
	})
	p.print()
}

func (p *proof) bookmarks() (n int) {
	for _, r := range p.proxy.Requests() {
		n += r.Bookmarks
	}
	return n
}

func TestASilentWatchIsFoundOutAtRest(t *testing.T) {
	long(t)
	p := prove(t, script{inventory: atRest})
	p.patience = 6 * time.Minute
	p.hire(3)
	p.trial("at rest, the watch falls silent while LISTs pass", func(p *proof) {
		p.holds(func() {
			p.proxy.Set(apifault.Fault{Silent: true})
			begun := time.Now()
			p.must(p.scout.Leave(p.ctx()))
			w := p.says(membership, degraded)
			took := time.Since(begun)
			p.t.Logf("DEGRADED after %s: %s", took, membership(w).Reason)
			if took > 215*time.Second { // a look a minute, and 150 s to catch up with it
				p.t.Errorf("DEGRADED only after %s", took)
			}
		})
		p.proxy.Set(apifault.Fault{})
		p.slices("the deleted Node is gone", pair.Are(pair.Absent, p.scout.Address))
		p.says(membership, synced)
		p.returns()
	})
	p.print()
}

// atRest are the product's own intervals.
var atRest = map[string]string{"IONOS_POLL_INTERVAL": "", "SOURCE_POLL_INTERVAL": ""}

func TestAtRestALookAMinuteIsAllThatItCosts(t *testing.T) {
	long(t)
	p := prove(t, script{inventory: atRest})
	p.patience = 5 * time.Minute
	p.hire(3)
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
	p.until("it looks for the first time at rest", func() bool { n, _ := light(p.proxy.RequestsSince(start)); return n > 0 })
	mark, begun := p.proxy.Count(), time.Now()
	p.quiet(func() {
		p.until("it has looked twice more", func() bool { n, _ := light(p.proxy.RequestsSince(mark)); return n >= 2 })
	})
	took := time.Since(begun)
	looks, others := light(p.proxy.RequestsSince(mark))
	listings := 0
	for _, r := range p.Cloud.Requests() {
		if r.At.After(begun) && strings.Contains(r.URL, "/servers") && strings.Contains(r.URL, "offset=0") {
			listings++
		}
	}
	p.t.Logf("in %s: %d LISTs with limit=1, %d other requests that are no watch, %d listings of the cloud", took, looks, others, listings)
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

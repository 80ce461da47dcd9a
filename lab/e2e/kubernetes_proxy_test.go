package e2e

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// proxySync is how long kube-proxy may take from a slice to its rules: it writes them once a second at most, and a busy
// machine needs as much again.
const proxySync = 2 * time.Second

// proxyHost makes a Node of the consuming cluster whose packets kube-proxy directs.
func (s *stage) proxyHost(program string) *netns.Host {
	s.t.Helper()
	const node = "proxy-node"
	address := netip.MustParseAddr("10.0.0.40")
	s.must(netns.AddAddr(address))
	host, err := netns.NewHost(address)
	s.must(err)
	s.t.Cleanup(func() { s.must(host.Close()) })
	if _, err := exec.LookPath("nft"); err != nil {
		s.t.Skip("not run: packets through kube-proxy: there is no nft: apt-get install nftables")
	}
	nft := host.Command(
		"nft",
		"add table ip probe { chain c { type nat hook output priority 0; numgen random mod 2 vmap { 0 : drop }; ct state new masquerade; }; }; delete table ip probe",
	)
	if out, err := exec.Command(nft[0], nft[1:]...).CombinedOutput(); err != nil {
		s.t.Skipf("not run: packets through kube-proxy: the kernel lets nft do no NAT in a namespace: %s", out)
	}
	nodes := s.ConsumingClient().CoreV1().Nodes()
	_, err = nodes.Create(s.ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.String()}}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { s.must(nodes.Delete(context.WithoutCancel(s.t.Context()), node, metav1.DeleteOptions{})) })
	s.run("kube-proxy", host.Command(program,
		"--kubeconfig="+s.credential("kube-proxy", "system:node-proxier"), "--hostname-override="+node, "--proxy-mode=nftables",
		// These are settings of the whole machine, which a namespace may not change.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	)...)
	return host
}

// traffic is a client that opens a connection to one address fifty times a second.
type traffic struct {
	mu   sync.Mutex
	sent []*request
}

// request is one of its connections, with one HTTP request on it.
type request struct {
	begun, ended time.Time // the latter is zero while it is under way
	backend      string
	err          error
}

// connect starts traffic that ends with the test.
func (s *stage) connect(host *netns.Host, to netip.AddrPort) *traffic {
	c := &traffic{}
	through := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: from(host)}}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var all sync.WaitGroup
	s.t.Cleanup(func() { stop(); all.Wait() })
	all.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r := &request{begun: time.Now()}
			c.mu.Lock()
			c.sent = append(c.sent, r)
			c.mu.Unlock()
			all.Go(func() {
				name, err := client.Ask(through, to.String())
				c.mu.Lock()
				defer c.mu.Unlock()
				r.ended, r.backend, r.err = time.Now(), name, err
			})
		}
	})
	return c
}

func from(host *netns.Host) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, to string) (net.Conn, error) {
		return host.Dial(ctx, netip.MustParseAddrPort(to))
	}
}

// since returns the requests that began after a moment, once all that began before now are over.
func (s *stage) requests(c *traffic, since time.Time) []request {
	s.t.Helper()
	now := time.Now()
	var found []request
	s.until("the requests under way are over", func() bool {
		found = found[:0]
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, r := range c.sent {
			switch {
			case r.begun.After(now):
				return true
			case r.ended.IsZero():
				return false
			case r.begun.After(since):
				found = append(found, *r)
			}
		}
		return true
	})
	return found
}

// loses wants each failed request since a moment to have begun within a bound of it; 0: none.
func (s *stage) loses(c *traffic, since time.Time, bound time.Duration) {
	s.t.Helper()
	all, lost, last := s.requests(c, since), 0, time.Duration(0)
	for _, r := range all {
		if r.err == nil {
			continue
		}
		lost, last = lost+1, r.begun.Sub(since)
		if last > bound {
			s.t.Errorf("a request %s later failed: %v", last, r.err)
		}
	}
	s.t.Logf("%d of %d connections failed, the last one %s after the beginning", lost, len(all), last.Round(time.Millisecond))
}

// abandoned waits until no connection has reached a backend for a second, and returns when the last one did.
func (s *stage) abandoned(c *traffic, w *pair.Worker) (last time.Time) {
	s.t.Helper()
	begun := time.Now()
	s.until("no connection reaches "+w.Name, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		last = begun
		for _, r := range c.sent {
			if r.backend == w.Name && r.begun.After(last) {
				last = r.begun
			}
		}
		return time.Since(last) > time.Second
	})
	return last
}

// reaches waits until a new connection reaches each of these backends.
func (s *stage) reaches(c *traffic, workers ...*pair.Worker) {
	s.t.Helper()
	for _, w := range workers {
		begun := time.Now()
		s.until("a connection reaches "+w.Name, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := len(c.sent) - 1; i >= 0 && c.sent[i].begun.After(begun); i-- {
				if c.sent[i].backend == w.Name {
					return true
				}
			}
			return false
		})
	}
}

// lasting is an HTTP client with a connection that stays open.
type lasting struct {
	http  *http.Client
	dials int
	to    netip.AddrPort
}

// connectTo opens a connection that lasts to one of the backends behind an address.
func (s *stage) connectTo(w *pair.Worker, host *netns.Host, to netip.AddrPort) *lasting {
	s.t.Helper()
	var found *lasting
	s.until("a lasting connection is with "+w.Name, func() bool {
		found = &lasting{to: to}
		found.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
				found.dials++
				return from(host)(ctx, network, to)
			},
		}}
		name, err := client.Ask(found.http, to.String())
		s.must(err)
		if name != w.Name {
			found.http.CloseIdleConnections()
		}
		return name == w.Name
	})
	s.t.Cleanup(found.http.CloseIdleConnections)
	return found
}

// stays wants the connection to be with that backend still.
func (s *stage) stays(l *lasting, w *pair.Worker) {
	s.t.Helper()
	if name, err := client.Ask(l.http, l.to.String()); err != nil || name != w.Name || l.dials != 1 {
		s.t.Errorf("the lasting connection was answered by %q (%v), and was opened %d times; want %s and once", name, err, l.dials, w.Name)
	}
}

func TestConnectionsThroughKubeProxyFailOnlyWhileADeathIsNotNoticed(t *testing.T) {
	program := upstream(t, "kube-proxy")
	s := enter(t, script{writers: 2})
	host := s.proxyHost(program)
	s.start()
	workers := s.join(3)
	serve := pair.AreJust(pair.Ready, addresses(workers)...)
	to := netip.AddrPortFrom(netip.MustParseAddr(s.service.Spec.ClusterIP), 80)
	s.until("the ClusterIP is connected to a backend", func() bool {
		conn, err := host.Dial(s.ctx(), to)
		if err == nil {
			s.must(conn.Close())
		}
		return err == nil
	})
	c := s.connect(host, to)
	begun := time.Now()

	s.step("connections reach every backend", func(s *stage) { s.reaches(c, workers...) })
	s.step("a node is drained, deleted, and its machine goes", func(s *stage) {
		w := workers[0]
		open, begun := s.connectTo(w, host, to), time.Now()
		s.must(w.Drain(s.ctx(), true))
		s.slices("it drains", pair.Are(pair.Draining, w.Address))
		s.t.Logf("the last connection to it was opened %s after the taint", s.abandoned(c, w).Sub(begun).Round(time.Millisecond))
		s.stays(open, w)
		s.must(w.Leave(s.ctx()))
		s.slices("it is gone", pair.Are(pair.Absent, w.Address))
		s.abandoned(c, w)
		s.stays(open, w)
		s.must(w.Set(backend.Refuse))
		s.loses(c, begun, 0)
		s.must(w.Set(backend.Serve))
		s.must(w.Join(s.ctx()))
		s.slices("it serves again", serve)
		s.reaches(c, workers...)
		s.loses(c, begun, 0)
	})
	s.step("all nodes are drained at once", func(s *stage) {
		begun := time.Now()
		for _, w := range workers {
			s.must(w.Drain(s.ctx(), true))
		}
		s.event("LastEndpointsKept")
		s.t.Log(pair.Describe(s.Now()))
		for _, w := range workers {
			if pair.Conditions(s.Now())[w.Address] == pair.Draining {
				s.abandoned(c, w)
			}
		}
		for _, w := range workers {
			s.must(w.Drain(s.ctx(), false))
		}
		s.slices("they serve again", serve)
		s.reaches(c, workers...)
		s.loses(c, begun, 0)
	})
	s.step("the leader is killed, and its successor drains a node", func(s *stage) {
		s.warm(s.writers[1])
		begun := time.Now()
		s.must(s.writers[0].Kill())
		s.metric(s.writers[1], leads, equals(1))
		s.t.Logf("the next one leads after %s", time.Since(begun).Round(time.Millisecond))
		s.must(workers[1].Drain(s.ctx(), true))
		s.slices("it drains", pair.Are(pair.Draining, workers[1].Address))
		s.abandoned(c, workers[1])
		s.must(workers[1].Drain(s.ctx(), false))
		s.slices("it serves again", serve)
		s.reaches(c, workers...)
		s.must(s.writers[0].Start(s.ctx()))
		s.loses(c, begun, 0)
	})
	for _, death := range []struct {
		name  string
		mode  backend.Mode
		bound time.Duration
	}{
		{"a backend's process dies", backend.Refuse, pair.RefusalBound},
		{"a backend's machine dies", backend.Silent, pair.SilenceBound},
	} {
		s.step(death.name, func(s *stage) {
			w, begun := workers[2], time.Now()
			s.must(w.Set(death.mode))
			s.t.Logf("out after %s", s.slices("it is out", pair.Are(pair.Out, w.Address)).Round(time.Millisecond))
			s.reaches(c, workers[:2]...)
			// There is no event for what is not to happen: failures after the bound.
			time.Sleep(time.Until(begun.Add(death.bound + proxySync + time.Second)))
			s.loses(c, begun, death.bound+proxySync)
			begun = time.Now()
			s.must(w.Set(backend.Serve))
			s.slices("it serves again", serve)
			s.reaches(c, workers...)
			s.loses(c, begun, 0)
		})
	}
	s.step("a backend dies with the leader", func(s *stage) {
		s.warm(s.writers[0])
		w, begun := workers[0], time.Now()
		s.must(s.writers[1].Kill())
		s.must(w.Set(backend.Refuse))
		took, err := s.WaitSlicesSince(s.ctx(), begun, pair.Are(pair.Out, w.Address))
		s.must(err)
		s.t.Logf("the next one writes after %s", took.Round(time.Millisecond))
		s.reaches(c, workers[1:]...)
		s.loses(c, begun, takeover+hurried+proxySync)
	})
	t.Logf("%d connections in all", len(s.requests(c, begun)))
}

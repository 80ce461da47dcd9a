package kubernetes

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
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// proxySync is how long kube-proxy may take from a slice to its rules: it writes them once a second at most, and a busy
// machine needs as much again.
const proxySync = 2 * time.Second

// proxyHost makes a Node of the consuming cluster whose packets kube-proxy directs.
func proxyHost(s *e2e.Setup, program string) *netns.Host {
	s.T.Helper()
	const node = "proxy-node"
	address := netip.MustParseAddr("10.0.0.40")
	s.Must(netns.AddAddr(address))
	host, err := netns.NewHost(address)
	s.Must(err)
	s.T.Cleanup(func() { s.Must(host.Close()) })
	if _, err := exec.LookPath("nft"); err != nil {
		s.T.Skip("not run: packets through kube-proxy: there is no nft: apt-get install nftables")
	}
	nft := host.Command(
		"nft",
		"add table ip probe { chain c { type nat hook output priority 0; numgen random mod 2 vmap { 0 : drop }; ct state new masquerade; }; }; delete table ip probe",
	)
	if out, err := exec.Command(nft[0], nft[1:]...).CombinedOutput(); err != nil {
		s.T.Skipf("not run: packets through kube-proxy: the kernel lets nft do no NAT in a namespace: %s", out)
	}
	nodes := s.ConsumingClient().CoreV1().Nodes()
	_, err = nodes.Create(s.Ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.String()}}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.T.Cleanup(func() { s.Must(nodes.Delete(context.WithoutCancel(s.T.Context()), node, metav1.DeleteOptions{})) })
	runProgram(s, "kube-proxy", host.Command(program,
		"--kubeconfig="+credential(s, "kube-proxy", "system:node-proxier"), "--hostname-override="+node, "--proxy-mode=nftables",
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
func connect(s *e2e.Setup, host *netns.Host, to netip.AddrPort) *traffic {
	c := &traffic{}
	through := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: from(host)}}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.T.Context()))
	var all sync.WaitGroup
	s.T.Cleanup(func() { stop(); all.Wait() })
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
func requests(s *e2e.Setup, c *traffic, since time.Time) []request {
	s.T.Helper()
	now := time.Now()
	var found []request
	s.Until("the requests under way are over", func() bool {
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
func loses(s *e2e.Setup, c *traffic, since time.Time, bound time.Duration) {
	s.T.Helper()
	all, lost, last := requests(s, c, since), 0, time.Duration(0)
	for _, r := range all {
		if r.err == nil {
			continue
		}
		lost, last = lost+1, r.begun.Sub(since)
		if last > bound {
			s.T.Errorf("a request %s later failed: %v", last, r.err)
		}
	}
	s.T.Logf("%d of %d connections failed, the last one %s after the beginning", lost, len(all), last.Round(time.Millisecond))
}

// abandoned waits until no connection has reached a backend for a second, and returns when the last one did.
func abandoned(s *e2e.Setup, c *traffic, w *pair.Worker) (last time.Time) {
	s.T.Helper()
	begun := time.Now()
	s.Until("no connection reaches "+w.Name, func() bool {
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
func reaches(s *e2e.Setup, c *traffic, workers ...*pair.Worker) {
	s.T.Helper()
	for _, w := range workers {
		begun := time.Now()
		s.Until("a connection reaches "+w.Name, func() bool {
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
func connectTo(s *e2e.Setup, w *pair.Worker, host *netns.Host, to netip.AddrPort) *lasting {
	s.T.Helper()
	var found *lasting
	s.Until("a lasting connection is with "+w.Name, func() bool {
		found = &lasting{to: to}
		found.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
				found.dials++
				return from(host)(ctx, network, to)
			},
		}}
		name, err := client.Ask(found.http, to.String())
		s.Must(err)
		if name != w.Name {
			found.http.CloseIdleConnections()
		}
		return name == w.Name
	})
	s.T.Cleanup(found.http.CloseIdleConnections)
	return found
}

// stays wants the connection to be with that backend still.
func stays(s *e2e.Setup, l *lasting, w *pair.Worker) {
	s.T.Helper()
	if name, err := client.Ask(l.http, l.to.String()); err != nil || name != w.Name || l.dials != 1 {
		s.T.Errorf("the lasting connection was answered by %q (%v), and was opened %d times; want %s and once", name, err, l.dials, w.Name)
	}
}

func TestConnectionsThroughKubeProxyFailOnlyWhileADeathIsNotNoticed(t *testing.T) {
	program := upstream(t, "kube-proxy")
	s := e2e.New(t, e2e.Options{Writers: 2})
	host := proxyHost(s, program)
	s.StartAll()
	workers := s.Join(3)
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	to := netip.AddrPortFrom(netip.MustParseAddr(s.Service.Spec.ClusterIP), 80)
	s.Until("the ClusterIP is connected to a backend", func() bool {
		conn, err := host.Dial(s.Ctx(), to)
		if err == nil {
			s.Must(conn.Close())
		}
		return err == nil
	})
	c := connect(s, host, to)
	begun := time.Now()

	s.Step("connections reach every backend", func(s *e2e.Setup) { reaches(s, c, workers...) })
	s.Step("a node is drained, deleted, and its machine goes", func(s *e2e.Setup) {
		w := workers[0]
		open, begun := connectTo(s, w, host, to), time.Now()
		s.Must(w.Drain(s.Ctx(), true))
		s.Await("it drains", pair.Are(pair.Draining, w.Address))
		s.T.Logf("the last connection to it was opened %s after the taint", abandoned(s, c, w).Sub(begun).Round(time.Millisecond))
		stays(s, open, w)
		s.Must(w.Leave(s.Ctx()))
		s.Await("it is gone", pair.Are(pair.Absent, w.Address))
		abandoned(s, c, w)
		stays(s, open, w)
		s.Must(w.Set(backend.Refuse))
		loses(s, c, begun, 0)
		s.Must(w.Set(backend.Serve))
		s.Must(w.Join(s.Ctx()))
		s.Await("it serves again", serve)
		reaches(s, c, workers...)
		loses(s, c, begun, 0)
	})
	s.Step("all nodes are drained at once", func(s *e2e.Setup) {
		begun := time.Now()
		for _, w := range workers {
			s.Must(w.Drain(s.Ctx(), true))
		}
		s.AwaitEvent("LastEndpointsKept")
		s.T.Log(pair.Describe(s.Now()))
		for _, w := range workers {
			if pair.Conditions(s.Now())[w.Address] == pair.Draining {
				abandoned(s, c, w)
			}
		}
		for _, w := range workers {
			s.Must(w.Drain(s.Ctx(), false))
		}
		s.Await("they serve again", serve)
		reaches(s, c, workers...)
		loses(s, c, begun, 0)
	})
	s.Step("the leader is killed, and its successor drains a node", func(s *e2e.Setup) {
		s.AwaitStandby(s.Writers[1])
		begun := time.Now()
		s.Must(s.Writers[0].Kill())
		s.AwaitMetric(s.Writers[1], e2e.Leads, e2e.Equals(1))
		s.T.Logf("the next one leads after %s", time.Since(begun).Round(time.Millisecond))
		s.Must(workers[1].Drain(s.Ctx(), true))
		s.Await("it drains", pair.Are(pair.Draining, workers[1].Address))
		abandoned(s, c, workers[1])
		s.Must(workers[1].Drain(s.Ctx(), false))
		s.Await("it serves again", serve)
		reaches(s, c, workers...)
		s.Must(s.Writers[0].Start(s.Ctx()))
		loses(s, c, begun, 0)
	})
	for _, death := range []struct {
		name  string
		mode  backend.Mode
		bound time.Duration
	}{
		{"a backend's process dies", backend.Refuse, pair.RefusalBound},
		{"a backend's machine dies", backend.Silent, pair.SilenceBound},
	} {
		s.Step(death.name, func(s *e2e.Setup) {
			w, begun := workers[2], time.Now()
			s.Must(w.Set(death.mode))
			s.T.Logf("out after %s", s.Await("it is out", pair.Are(pair.Out, w.Address)).Round(time.Millisecond))
			reaches(s, c, workers[:2]...)
			// There is no event for what is not to happen: failures after the bound.
			time.Sleep(time.Until(begun.Add(death.bound + proxySync + time.Second)))
			loses(s, c, begun, death.bound+proxySync)
			begun = time.Now()
			s.Must(w.Set(backend.Serve))
			s.Await("it serves again", serve)
			reaches(s, c, workers...)
			loses(s, c, begun, 0)
		})
	}
	s.Step("a backend dies with the leader", func(s *e2e.Setup) {
		s.AwaitStandby(s.Writers[0])
		w, begun := workers[0], time.Now()
		s.Must(s.Writers[1].Kill())
		s.Must(w.Set(backend.Refuse))
		took, err := s.WaitSlicesSince(s.Ctx(), begun, pair.Are(pair.Out, w.Address))
		s.Must(err)
		s.T.Logf("the next one writes after %s", took.Round(time.Millisecond))
		reaches(s, c, workers[1:]...)
		loses(s, c, begun, e2e.Takeover+proxySync)
	})
	t.Logf("%d connections in all", len(requests(s, c, begun)))
}

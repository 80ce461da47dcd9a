package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// dnsRole is what kubeadm lets CoreDNS do.
const dnsRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}
`

// corefile is what of kubeadm's answers for the cluster.
const corefile = `.:53 {
    bind %s
    errors
    kubernetes cluster.local %s in-addr.arpa ip6.arpa {
       kubeconfig %s
       %s
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loadbalance
}
`

// clusterSetZone is the zone of ServiceImports.
const clusterSetZone = "clusterset.local"

// dns runs CoreDNS in the consuming cluster, with a zone of ServiceImports if one is given, and returns what asks it.
func (s *stage) dns(program string, importZone ...string) *net.Resolver {
	s.t.Helper()
	zone := strings.Join(importZone, " ")
	option := ""
	if zone != "" {
		option = "multicluster " + zone
	}
	address := netip.MustParseAddr("10.0.0.41")
	s.must(netns.AddAddr(address))
	s.must(s.Consuming.ApplyYAML(s.ctx(), []byte(dnsRole)))
	file := filepath.Join(s.t.TempDir(), "Corefile")
	s.must(os.WriteFile(file, fmt.Appendf(nil, corefile, address, zone, s.credential("coredns", "system:coredns"), option), 0o600))
	s.run("coredns", program, "-conf", file)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(address, 53).String())
	}}
}

// lookUp returns the A records of a name, sorted; none if there is no such name.
func lookUp(ctx context.Context, by *net.Resolver, name string) ([]netip.Addr, error) {
	found, err := by.LookupNetIP(ctx, "ip4", name)
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound {
		return nil, nil
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return found, err
}

func TestRecordsOfAHeadlessServiceInCoreDNSAreItsReadyEndpoints(t *testing.T) {
	program := upstream(t, "coredns")
	const name = pair.Service + "." + pair.Namespace + ".svc.cluster.local."
	s := enter(t, script{writers: 2, service: func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone }})
	resolver := s.dns(program)
	s.start()
	workers := s.join(3)
	resolves := func(s *stage, workers ...*pair.Worker) {
		s.t.Helper()
		want, begun := addresses(workers), time.Now()
		s.until("the records are the ready endpoints", func() bool {
			found, err := lookUp(s.ctx(), resolver, name)
			return err == nil && slices.Equal(found, want)
		})
		s.t.Logf("after %s", time.Since(begun).Round(time.Millisecond))
	}
	resolves(s, workers...)
	s.neverEmpty(resolver, name)

	s.step("SRV records have the port", func(s *stage) {
		_, found, err := resolver.LookupSRV(s.ctx(), "http", "tcp", name)
		s.must(err)
		if len(found) != len(workers) || found[0].Port != pair.NodePort {
			s.t.Errorf("got %d records, want %d with port %d", len(found), len(workers), pair.NodePort)
		}
	})
	s.step("a node that drains is left out", func(s *stage) {
		s.must(workers[0].Drain(s.ctx(), true))
		s.slices("it drains", pair.Are(pair.Draining, workers[0].Address))
		resolves(s, workers[1:]...)
		s.must(workers[0].Drain(s.ctx(), false))
		resolves(s, workers...)
	})
	s.step("all nodes drain, and a record is left", func(s *stage) {
		for _, w := range workers {
			s.must(w.Drain(s.ctx(), true))
		}
		s.event("LastEndpointsKept")
		s.t.Log(pair.Describe(s.Now()))
		for _, w := range workers {
			s.must(w.Drain(s.ctx(), false))
		}
		resolves(s, workers...)
	})
	s.step("a backend that dies is left out", func(s *stage) {
		s.must(workers[1].Set(backend.Refuse))
		resolves(s, workers[0], workers[2])
		s.must(workers[1].Set(backend.Serve))
		resolves(s, workers...)
	})
	s.step("a Node that is deleted is left out", func(s *stage) {
		s.must(workers[2].Leave(s.ctx()))
		resolves(s, workers[:2]...)
	})
	s.step("the leader is killed, and its successor adds a node", func(s *stage) {
		s.warm(s.writers[1])
		s.must(s.writers[0].Kill())
		s.metric(s.writers[1], leads, equals(1))
		s.must(workers[2].Join(s.ctx()))
		resolves(s, workers...)
	})
}

func TestHostnamesOfASourceResolveInCoreDNS(t *testing.T) {
	program := upstream(t, "coredns")
	s := enter(t, script{
		inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE": shop + "/" + web},
		service:   func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone },
	})
	resolver := s.dns(program)
	s.shopService()
	a, b := s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})
	resolves := func(hostname string, want ...netip.Addr) {
		s.t.Helper()
		s.until(fmt.Sprintf("%s resolves to %v", hostname, want), func() bool {
			found, err := lookUp(s.ctx(), resolver, hostname+"."+pair.Service+"."+pair.Namespace+".svc.cluster.local.")
			return err == nil && slices.Equal(found, want)
		})
	}
	s.shopSlice(
		"web-x7k2q",
		discoveryv1.AddressTypeIPv4,
		80,
		named(backing("web-0", a.Address, pair.Ready), "db-0"),
		named(backing("web-1", b.Address, pair.Ready), "db-1"),
	)
	s.start()
	resolves("db-0", a.Address)
	resolves("db-1", b.Address)
	s.shopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 80, named(backing("web-1", b.Address, pair.Ready), "db-1"))
	resolves("db-0")
	resolves("db-1", b.Address)
}

// CoreDNS finds the slices of a ServiceImport by the labels of the multi-cluster API, and takes them for no Service's.
func TestRecordsOfAHeadlessServiceImportInCoreDNS(t *testing.T) {
	program := upstream(t, "coredns")
	s := enter(t, script{writer: map[string]string{"SERVICE_IMPORTS": "true"}, service: func(service *corev1.Service) {
		service.Spec.ClusterIP = corev1.ClusterIPNone
		service.Annotations = map[string]string{"slicefeed.dev/probe": "off"}
	}})
	i := openImports(s)
	i.define()
	resolver := s.dns(program, clusterSetZone)
	object := newImport(
		"elsewhere",
		map[string]any{"slicefeed.dev/class": "default"},
		map[string]any{"slicefeed.dev/ports.default": fmt.Sprint(pair.NodePort)},
	)
	s.must(unstructured.SetNestedField(object.Object, "Headless", "spec", "type"))
	i.make(object)
	s.start()
	workers := s.join(2)
	resolves := func(want ...netip.Addr) {
		s.t.Helper()
		s.until(fmt.Sprintf("the records are %v", want), func() bool {
			found, err := lookUp(s.ctx(), resolver, "elsewhere."+pair.Namespace+".svc."+clusterSetZone+".")
			return err == nil && slices.Equal(found, want)
		})
	}
	resolves(addresses(workers)...)
	s.must(workers[1].Set(backend.Refuse))
	resolves(workers[0].Address)
	s.must(workers[1].Set(backend.Serve))
	resolves(addresses(workers)...)
	if found, err := lookUp(s.ctx(), resolver, "elsewhere."+pair.Namespace+".svc.cluster.local."); err != nil || len(found) > 0 {
		t.Errorf("a ServiceImport is taken for a Service: %v (%v)", found, err)
	}
}

// neverEmpty wants a name to have records at any time until the test is over.
func (s *stage) neverEmpty(by *net.Resolver, name string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var asking sync.WaitGroup
	s.t.Cleanup(func() { stop(); asking.Wait() })
	asking.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				s.t.Logf("it had records each of %d times", n)
				return
			case <-tick.C:
			}
			if found, err := lookUp(context.Background(), by, name); err != nil || len(found) == 0 {
				s.t.Errorf("%s has the records %v (%v)", name, found, err)
				return
			}
		}
	})
}

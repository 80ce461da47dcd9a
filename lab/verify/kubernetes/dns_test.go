package kubernetes

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
	"github.com/slicefeed/slicefeed/lab/e2e"
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
func dns(s *e2e.Setup, program string, importZone ...string) *net.Resolver {
	s.T.Helper()
	zone := strings.Join(importZone, " ")
	option := ""
	if zone != "" {
		option = "multicluster " + zone
	}
	address := netip.MustParseAddr("10.0.0.41")
	s.Must(netns.AddAddr(address))
	s.Must(s.Consuming.ApplyYAML(s.Ctx(), []byte(dnsRole)))
	file := filepath.Join(s.T.TempDir(), "Corefile")
	s.Must(os.WriteFile(file, fmt.Appendf(nil, corefile, address, zone, credential(s, "coredns", "system:coredns"), option), 0o600))
	runProgram(s, "coredns", program, "-conf", file)
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
	s := e2e.New(t, e2e.Options{Writers: 2, Service: func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone }})
	resolver := dns(s, program)
	s.StartAll()
	workers := s.Join(3)
	resolves := func(s *e2e.Setup, workers ...*pair.Worker) {
		s.T.Helper()
		want, begun := e2e.Addresses(workers), time.Now()
		s.Until("the records are the ready endpoints", func() bool {
			found, err := lookUp(s.Ctx(), resolver, name)
			return err == nil && slices.Equal(found, want)
		})
		s.T.Logf("after %s", time.Since(begun).Round(time.Millisecond))
	}
	resolves(s, workers...)
	neverEmpty(s, resolver, name)

	s.Step("SRV records have the port", func(s *e2e.Setup) {
		_, found, err := resolver.LookupSRV(s.Ctx(), "http", "tcp", name)
		s.Must(err)
		if len(found) != len(workers) || found[0].Port != pair.NodePort {
			s.T.Errorf("got %d records, want %d with port %d", len(found), len(workers), pair.NodePort)
		}
	})
	s.Step("a node that drains is left out", func(s *e2e.Setup) {
		s.Must(workers[0].Drain(s.Ctx(), true))
		s.Await("it drains", pair.Are(pair.Draining, workers[0].Address))
		resolves(s, workers[1:]...)
		s.Must(workers[0].Drain(s.Ctx(), false))
		resolves(s, workers...)
	})
	s.Step("all nodes drain, and a record is left", func(s *e2e.Setup) {
		for _, w := range workers {
			s.Must(w.Drain(s.Ctx(), true))
		}
		s.AwaitEvent("LastEndpointsKept")
		s.T.Log(pair.Describe(s.Now()))
		for _, w := range workers {
			s.Must(w.Drain(s.Ctx(), false))
		}
		resolves(s, workers...)
	})
	s.Step("a backend that dies is left out", func(s *e2e.Setup) {
		s.Must(workers[1].Set(backend.Refuse))
		resolves(s, workers[0], workers[2])
		s.Must(workers[1].Set(backend.Serve))
		resolves(s, workers...)
	})
	s.Step("a Node that is deleted is left out", func(s *e2e.Setup) {
		s.Must(workers[2].Leave(s.Ctx()))
		resolves(s, workers[:2]...)
	})
	s.Step("the leader is killed, and its successor adds a node", func(s *e2e.Setup) {
		s.AwaitStandby(s.Writers[1])
		s.Must(s.Writers[0].Kill())
		s.AwaitMetric(s.Writers[1], e2e.Leads, e2e.Equals(1))
		s.Must(workers[2].Join(s.Ctx()))
		resolves(s, workers...)
	})
}

func TestHostnamesOfASourceResolveInCoreDNS(t *testing.T) {
	program := upstream(t, "coredns")
	s := e2e.New(t, e2e.Options{
		Inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE": e2e.Shop + "/" + e2e.Web},
		Service:   func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone },
	})
	resolver := dns(s, program)
	s.CreateShop()
	a, b := s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})
	resolves := func(hostname string, want ...netip.Addr) {
		s.T.Helper()
		s.Until(fmt.Sprintf("%s resolves to %v", hostname, want), func() bool {
			found, err := lookUp(s.Ctx(), resolver, hostname+"."+pair.Service+"."+pair.Namespace+".svc.cluster.local.")
			return err == nil && slices.Equal(found, want)
		})
	}
	s.PutShopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 80, e2e.Named(e2e.Backing("web-0", a.Address, pair.Ready), "db-0"),
		e2e.Named(e2e.Backing("web-1", b.Address, pair.Ready), "db-1"))
	s.StartAll()
	resolves("db-0", a.Address)
	resolves("db-1", b.Address)
	s.PutShopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 80, e2e.Named(e2e.Backing("web-1", b.Address, pair.Ready), "db-1"))
	resolves("db-0")
	resolves("db-1", b.Address)
}

// CoreDNS finds the slices of a ServiceImport by the labels of the multi-cluster API, and takes them for no Service's.
func TestRecordsOfAHeadlessServiceImportInCoreDNS(t *testing.T) {
	program := upstream(t, "coredns")
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"SERVICE_IMPORTS": "true"}, Service: func(service *corev1.Service) {
		service.Spec.ClusterIP = corev1.ClusterIPNone
		service.Annotations = map[string]string{"slicefeed.dev/probe": "off"}
	}})
	i := openImports(s)
	i.define()
	resolver := dns(s, program, clusterSetZone)
	object := newImport("elsewhere", map[string]any{"slicefeed.dev/class": "default"},
		map[string]any{"slicefeed.dev/ports.default": fmt.Sprint(pair.NodePort)})
	s.Must(unstructured.SetNestedField(object.Object, "Headless", "spec", "type"))
	i.make(object)
	s.StartAll()
	workers := s.Join(2)
	resolves := func(want ...netip.Addr) {
		s.T.Helper()
		s.Until(fmt.Sprintf("the records are %v", want), func() bool {
			found, err := lookUp(s.Ctx(), resolver, "elsewhere."+pair.Namespace+".svc."+clusterSetZone+".")
			return err == nil && slices.Equal(found, want)
		})
	}
	resolves(e2e.Addresses(workers)...)
	s.Must(workers[1].Set(backend.Refuse))
	resolves(workers[0].Address)
	s.Must(workers[1].Set(backend.Serve))
	resolves(e2e.Addresses(workers)...)
	if found, err := lookUp(s.Ctx(), resolver, "elsewhere."+pair.Namespace+".svc.cluster.local."); err != nil || len(found) > 0 {
		t.Errorf("a ServiceImport is taken for a Service: %v (%v)", found, err)
	}
}

// neverEmpty wants a name to have records at any time until the test is over.
func neverEmpty(s *e2e.Setup, by *net.Resolver, name string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.T.Context()))
	var asking sync.WaitGroup
	s.T.Cleanup(func() { stop(); asking.Wait() })
	asking.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				s.T.Logf("it had records each of %d times", n)
				return
			case <-tick.C:
			}
			if found, err := lookUp(context.Background(), by, name); err != nil || len(found) == 0 {
				s.T.Errorf("%s has the records %v (%v)", name, found, err)
				return
			}
		}
	})
}

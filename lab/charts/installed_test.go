package charts

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/node"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const service = `apiVersion: v1
kind: Service
metadata:
  name: shop
  namespace: web
  labels: {slicefeed.dev/class: default}
spec:
  ports:
  - {name: http, port: 80, targetPort: 30080}
`

// TestBothChartsInstalled goes through the life of an installation, from the first helm install to
// the last helm uninstall.
func TestBothChartsInstalled(t *testing.T) {
	s := enter(t)
	const askNodes = `grpcurl -cacert "$DIR/certificates/operator/peer-ca.crt" -cert "$DIR/certificates/operator/tls.crt" -key "$DIR/certificates/operator/tls.key" -servername inventory.example.org 10.0.0.13:9443 slicefeed.inventory.v1.InventoryService/ListNodes`

	s.step("a missing Secret is a sentence in the Pod's status and log", func(s *stage) {
		s.must(s.TrustCloud(s.ctx()))
		s.run(s.helmInventory("install", "--create-namespace"))
		s.until("the Pods have crashed", func() bool {
			all := s.pods(Secured)
			for _, p := range all {
				if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].LastTerminationState.Terminated == nil {
					return false
				}
			}
			return len(all) == 2
		})
		told := s.run(
			`kubectl --context secured -n slicefeed get pods -o jsonpath='{.items[0].status.containerStatuses[0].lastState.terminated.message}'`,
		)
		files := []string{"/etc/slicefeed/tls/tls.crt", "/etc/slicefeed/peer-ca/ca.crt"}
		for _, file := range files {
			if !strings.Contains(told, file) {
				s.t.Errorf("it does not name %s:\n%s", file, told)
			}
		}
		s.until("the log names both files", func() bool { // that of a container which begins is empty for a moment
			log := s.run(`kubectl --context secured -n slicefeed logs deployment/slicefeed-inventory`)
			return strings.Contains(log, files[0]) && strings.Contains(log, files[1])
		})
		s.t.Logf("the Pod says:\n%s", told)
	})
	s.step("a missing token is one too, and the Pod is not ready", func(s *stage) {
		s.must(s.Certificates(s.ctx()))
		const logs = `kubectl --context secured -n slicefeed logs deployment/slicefeed-inventory`
		s.until("the log names the token's file", func() bool {
			return strings.Contains(s.run(logs), "/etc/slicefeed/ionos/token (IONOS_TOKEN_FILE): no such file or directory")
		})
		if ready := s.run(
			`kubectl --context secured -n slicefeed get deployment slicefeed-inventory -o jsonpath='{.status.readyReplicas}'`,
		); ready != "" {
			s.t.Errorf("%s Pods are ready", ready)
		}
	})
	s.step("it comes up by itself with what it missed", func(s *stage) {
		s.must(s.Token(s.ctx()))
		s.run(`kubectl --context secured -n slicefeed rollout status deployment/slicefeed-inventory --timeout=60s`)
		s.must(s.Balance(s.ctx()))
	})
	s.step("the writer comes up with one command", func(s *stage) {
		s.must(s.Consuming.ApplyYAML(s.ctx(), []byte(service)))
		s.run(s.helmWriter("install", "--wait", "--timeout=60s"))
	})
	first := s.worker()
	s.step("a worker that joins is in the slice", func(s *stage) {
		s.must(first.Join(s.ctx()))
		s.slices("the worker serves", pair.AreJust(pair.Ready, first.Address))
	})
	second := s.worker()
	s.step("a worker is replaced", func(s *stage) {
		s.must(second.Join(s.ctx()))
		s.slices("both serve", pair.AreJust(pair.Ready, first.Address, second.Address))
		s.must(first.Drain(s.ctx(), true))
		s.slices("the old one drains", pair.Are(pair.Draining, first.Address))
		s.must(first.Leave(s.ctx()))
		s.slices("the old one is gone", pair.AreJust(pair.Ready, second.Address))
	})
	s.step("preflight finds nothing wrong, inside of the Pods", func(s *stage) {
		s.run(`kubectl --context secured -n slicefeed exec deployment/slicefeed-inventory -- /slicefeed-inventory preflight`)
		s.run(`kubectl --context consuming -n web exec deployment/slicefeed-writer -- /slicefeed-writer preflight`)
	})
	s.step("helm test reports each dependency", func(s *stage) {
		out := s.run(`helm --kube-context secured test slicefeed-inventory -n slicefeed --logs --timeout 50s`)
		s.wantLines(out, "ok +certificate key +matches", "ok +list nodes +allowed", "ok +IONOS token +accepted", "ok +first observation")
		out = s.run(`helm --kube-context consuming test slicefeed-writer -n web --logs --timeout 50s`)
		s.wantLines(out, "ok +inventory +connected", "ok +initial sync", "ok +admission policy +a slice", "ok +probes")
		s.run(`kubectl --context secured -n slicefeed delete pod slicefeed-inventory-preflight
kubectl --context consuming -n web delete pod slicefeed-writer-preflight`)
	})
	s.step("a changed list of clients is taken up without a restart", func(s *stage) {
		before := s.alive(Secured)
		if out, err := s.Run(s.ctx(), askNodes); err == nil {
			s.t.Fatalf("the operator may ask already: %s", out)
		}
		s.run(s.helmInventory(
			"upgrade",
			"--wait",
			"--set-json 'allowedClients=[{\"san\":\"spiffe://example.org/slicefeed/writer\",\"role\":\"subscriber\"},{\"san\":\"spiffe://example.org/slicefeed/operator\",\"role\":\"operator\"}]'",
		))
		var out string
		s.until("the operator may ask", func() bool {
			var err error
			out, err = s.Run(s.ctx(), askNodes)
			return err == nil
		})
		if !strings.Contains(out, second.Address.String()) {
			s.t.Errorf("the inventory does not tell %s: %s", second.Address, out)
		}
		if after := s.alive(Secured); after != before {
			s.t.Errorf("Pods were restarted: %s, before: %s", after, before)
		}
	})
	s.step("a rotated certificate is taken up without a restart", func(s *stage) {
		before := s.alive(Secured) + ", " + s.alive(Consuming)
		slice := s.slice()
		s.must(s.Certificates(s.ctx()))
		s.until("the inventory shows the new one", func() bool { return s.served() == s.issued() })
		if after := s.alive(Secured) + ", " + s.alive(Consuming); after != before {
			s.t.Errorf("Pods were restarted: %s, before: %s", after, before)
		}
		s.unchanged(slice)
	})
	s.step("an upgrade of the writer loses no endpoint and writes nothing", func(s *stage) {
		slice, before := s.slice(), s.alive(Consuming)
		s.run(s.helmWriter("upgrade", "--wait", "--timeout=80s", "--set settings.HEALTH_CHECK_TIMEOUT=900ms"))
		s.unchanged(slice)
		if after := s.alive(Consuming); after == before {
			s.t.Error("no Pod was replaced")
		}
		third := s.worker()
		s.must(third.Join(s.ctx()))
		s.slices("the new writer writes", pair.AreJust(pair.Ready, second.Address, third.Address))
	})
	s.step("a rollback loses none either", func(s *stage) {
		slice := s.slice()
		s.run(`helm --kube-context consuming rollback slicefeed-writer 1 -n web --wait --timeout=80s`)
		s.unchanged(slice)
	})
	s.step("an uninstalled writer leaves the Service as it is", func(s *stage) {
		slice := s.slice()
		s.run(`helm --kube-context consuming uninstall slicefeed-writer -n web`)
		s.until("its Pods are gone", func() bool { return len(s.pods(Consuming)) == 0 })
		s.unchanged(slice)
		left := s.run(
			`kubectl --context consuming get deploy,sa,role,rolebinding,cm,svc,pdb,netpol -n web -l app.kubernetes.io/instance=slicefeed-writer -o name; kubectl --context consuming get validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings -l app.kubernetes.io/instance=slicefeed-writer -o name`,
		)
		if left != "" {
			s.t.Errorf("it left %s", left)
		}
	})
	s.step("installed again, it goes on from there", func(s *stage) {
		slice := s.slice()
		s.run(s.helmWriter("install", "--wait", "--timeout=60s"))
		s.unchanged(slice)
		s.must(second.Leave(s.ctx()))
		s.slices("it writes", pair.Are(pair.Absent, second.Address))
	})
	if n, ok := s.nodes[Consuming].(*node.Node); ok {
		s.restarts(n)
	}
	s.step("both uninstalled", func(s *stage) {
		s.run(`helm --kube-context consuming uninstall slicefeed-writer -n web --wait`)
		s.run(`helm --kube-context secured uninstall slicefeed-inventory -n slicefeed --wait`)
		s.until("all Pods are gone", func() bool { return len(s.pods(Consuming))+len(s.pods(Secured)) == 0 })
	})
}

// worker makes a machine that is in the cloud and answers, and is no Node yet.
func (s *stage) worker() *pair.Worker {
	s.t.Helper()
	last++
	w, err := s.AddWorker(pair.WorkerOptions{Name: fmt.Sprintf("worker-%d", last), Address: netip.AddrFrom4([4]byte{10, 0, 1, byte(last)})})
	s.must(err)
	return w
}

func (s *stage) slices(what string, are func([]*discoveryv1.EndpointSlice) bool) {
	s.t.Helper()
	if _, err := s.WaitSlices(s.ctx(), are); err != nil {
		s.t.Fatalf("waited until %s: %v", what, err)
	}
}

// slice is the one that there is.
func (s *stage) slice() *discoveryv1.EndpointSlice {
	s.t.Helper()
	all := s.Now()
	if len(all) != 1 {
		s.t.Fatalf("%d slices, want one", len(all))
	}
	return all[0]
}

func (s *stage) unchanged(before *discoveryv1.EndpointSlice) {
	s.t.Helper()
	if now := s.slice(); now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
		s.t.Errorf(
			"the slice was written: resourceVersion %s, before %s: %s",
			now.ResourceVersion,
			before.ResourceVersion,
			pair.Describe(s.Now()),
		)
	}
}

// served is the certificate that the inventory shows.
func (s *stage) served() string {
	s.t.Helper()
	own, err := tls.LoadX509KeyPair(
		filepath.Join(s.Dir(), "certificates/operator/tls.crt"),
		filepath.Join(s.Dir(), "certificates/operator/tls.key"),
	)
	s.must(err)
	ca, err := os.ReadFile(filepath.Join(s.Dir(), "certificates/operator/peer-ca.crt"))
	s.must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	conn, err := tls.Dial(
		"tcp",
		pair.InventoryAddress.String()+":9443",
		&tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, ServerName: InventoryHost, NextProtos: []string{"h2"}},
	)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// issued is the one that was made last.
func (s *stage) issued() string {
	s.t.Helper()
	pair, err := tls.LoadX509KeyPair(
		filepath.Join(s.Dir(), "certificates/inventory/tls.crt"),
		filepath.Join(s.Dir(), "certificates/inventory/tls.key"),
	)
	s.must(err)
	return pair.Leaf.SerialNumber.String()
}

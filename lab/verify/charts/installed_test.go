package charts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
)

const service = `apiVersion: v1
kind: Service
metadata: {name: shop, namespace: web, labels: {slicefeed.dev/class: default}}
spec:
  ports: [{name: http, port: 80, targetPort: 30080}]
`

// TestBothChartsInstalled goes through the life of an installation, from the first helm install to the last helm uninstall.
// The runbooks have more of it.
func TestBothChartsInstalled(t *testing.T) {
	w := begin(t)
	steps := []struct {
		name string
		run  func(*world)
	}{
		{"a missing Secret is a sentence in the Pod's status and log", (*world).missingSecret},
		{"a missing token is one too, and the Pod is not ready", (*world).missingToken},
		{"the inventory comes up once it has both", func(w *world) {
			w.run(createToken + `kubectl --context secured -n slicefeed rollout status deployment/slicefeed-inventory --timeout=60s`)
		}},
		{"the writer comes up with one command, and lists a worker", func(w *world) {
			w.must(w.Consuming.ApplyYAML(w.ctx(), []byte(service)))
			w.run(installWriter)
			w.must(w.join(w.ctx(), "worker-1", "10.0.1.11"))
			w.waitReady(1)
		}},
		{"helm test reports each dependency", (*world).helmTest},
		{"a changed list of clients needs no restart", (*world).changeClients},
		{"an upgrade of the writer loses no endpoint and writes nothing", func(w *world) {
			slice, before := w.slice(), w.restarts(consuming)
			w.run(strings.Replace(installWriter, "install", "upgrade", 1) + " --set settings.HEALTH_CHECK_TIMEOUT=900ms")
			w.unchanged(slice)
			if after := w.restarts(consuming); after == before {
				w.t.Error("no Pod was replaced")
			}
			w.must(w.join(w.ctx(), "worker-2", "10.0.1.12"))
			w.waitReady(2)
		}},
		{"a rollback loses none either", func(w *world) {
			slice := w.slice()
			w.run(`helm --kube-context consuming rollback slicefeed-writer 1 -n web --wait --timeout=80s`)
			w.unchanged(slice)
		}},
		{"an uninstalled writer leaves the Service as it is", (*world).uninstallWriter},
		{"installed again, it goes on from there", func(w *world) {
			slice := w.slice()
			w.run(installWriter)
			w.unchanged(slice)
			w.must(w.workers["worker-2"].Leave(w.ctx()))
			w.waitSlices(pair.Are(pair.Absent, w.workers["worker-2"].Address))
		}},
		{"a writer that dies is started again by the kubelet, and writes nothing", (*world).killWriters},
		{"the writer writes while no kubelet runs, and another kubelet restarts nothing", (*world).stopKubelet},
		{"both are uninstalled", func(w *world) {
			w.run(`helm --kube-context consuming uninstall slicefeed-writer -n web --wait
helm --kube-context secured uninstall slicefeed-inventory -n slicefeed --wait`)
			w.until("all Pods are gone", func() bool { return len(w.pods(consuming))+len(w.pods(secured)) == 0 })
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) {
			in := *w
			in.t = t
			step.run(&in)
		}) {
			return // the next steps build on it
		}
	}
}

const (
	createToken = `kubectl --context secured -n slicefeed create secret generic slicefeed-inventory-ionos --from-file=token
`
	installWriter = `helm --kube-context consuming install slicefeed-writer deploy/slicefeed-writer -n web \
  -f deploy/slicefeed-writer/examples/minimal.yaml --set settings.SHRINK_WINDOW=0s --wait --timeout=80s`
	installInventory = `helm --kube-context secured install slicefeed-inventory deploy/slicefeed-inventory -n slicefeed \
  -f inventory.yaml --set service.type=LoadBalancer`
	inventoryLogs = `kubectl --context secured -n slicefeed logs deployment/slicefeed-inventory`
)

func (w *world) missingSecret() {
	w.run(`cp deploy/slicefeed-inventory/examples/minimal.yaml inventory.yaml`)
	w.must(w.useEmulator(w.ctx()))
	w.run(installInventory)
	files := []string{"/etc/slicefeed/tls/tls.crt", "/etc/slicefeed/peer-ca/ca.crt"}
	namesBoth := func(text string) bool { return strings.Contains(text, files[0]) && strings.Contains(text, files[1]) }
	w.until("the status of both Pods names both files", func() bool {
		pods := w.pods(secured)
		return len(pods) == 2 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			status := p.Status.ContainerStatuses
			return len(status) == 0 || status[0].LastTerminationState.Terminated == nil ||
				!namesBoth(status[0].LastTerminationState.Terminated.Message)
		})
	})
	w.until("the log names both files", func() bool { return namesBoth(w.run(inventoryLogs)) }) // a new container has none yet
}

func (w *world) missingToken() {
	w.run(`deploy/certificates.sh --dns ` + inventoryHost + ` --writer-namespace ` + writerNamespace + ` all pki >pki.sh
sh pki.sh`)
	w.until("the log names the token's file", func() bool {
		return strings.Contains(w.run(inventoryLogs), "/etc/slicefeed/ionos/token (IONOS_TOKEN_FILE): no such file or directory")
	})
	if ready := w.run(
		`kubectl --context secured -n slicefeed get deployment slicefeed-inventory -o jsonpath='{.status.readyReplicas}'`,
	); ready != "" {
		w.t.Errorf("%s Pods are ready", ready)
	}
}

func (w *world) helmTest() {
	out := w.run(`helm --kube-context secured test slicefeed-inventory -n slicefeed --logs --timeout 50s
helm --kube-context consuming test slicefeed-writer -n web --logs --timeout 50s`)
	for _, check := range []string{"certificate", "peer CA", "nodes", "inventory", "allowlist", "admission policy"} {
		if !regexp.MustCompile(`(?m)^` + check + ` +ok `).MatchString(out) {
			w.t.Errorf("%s is not ok:\n%s", check, out)
		}
	}
	w.run(`kubectl --context secured -n slicefeed delete pod slicefeed-inventory-preflight
kubectl --context consuming -n web delete pod slicefeed-writer-preflight`)
}

func (w *world) changeClients() {
	const list = `grpcurl -cacert pki/operator/peer-ca.crt -cert pki/operator/tls.crt -key pki/operator/tls.key \
  -servername ` + inventoryHost + ` 10.0.0.13:9443 slicefeed.inventory.v1.InventoryService/ListNodes`
	before := w.restarts(secured)
	if out, err := w.try(w.ctx(), list); err == nil {
		w.t.Fatalf("the operator is allowed already: %s", out)
	}
	w.run(strings.Replace(installInventory, "install", "upgrade", 1) + ` --wait \
  --set-json 'allowedClients=[{"san":"spiffe://example.org/slicefeed/writer","role":"subscriber"},{"san":"spiffe://example.org/slicefeed/operator","role":"operator"}]'`)
	w.until("the inventory lists the worker for the operator", func() bool {
		out, err := w.try(w.ctx(), list)
		return err == nil && strings.Contains(out, "10.0.1.11")
	})
	if after := w.restarts(secured); after != before {
		w.t.Errorf("Pods were restarted: %s, before: %s", after, before)
	}
}

func (w *world) uninstallWriter() {
	slice := w.slice()
	w.run(`helm --kube-context consuming uninstall slicefeed-writer -n web`)
	w.until("its Pods are gone", func() bool { return len(w.pods(consuming)) == 0 })
	w.unchanged(slice)
	left := w.run(`k="kubectl --context consuming get -l app.kubernetes.io/instance=slicefeed-writer -o name"
$k -n web deploy,sa,role,rolebinding,cm,svc,pdb,netpol
$k validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings`)
	if left != "" {
		w.t.Errorf("it leaves %s", left)
	}
}

func (w *world) killWriters() {
	slice := w.slice()
	for _, p := range w.pods(consuming) {
		before := p.Status.ContainerStatuses[0]
		w.must(w.nodes[consuming].Kill(w.ctx(), strings.TrimPrefix(before.ContainerID, "containerd://")))
		w.until("another container of the Pod is ready", func() bool {
			return slices.ContainsFunc(w.pods(consuming), func(now corev1.Pod) bool {
				return now.UID == p.UID && now.Status.ContainerStatuses[0].RestartCount > before.RestartCount &&
					now.Status.ContainerStatuses[0].Ready
			})
		})
	}
	w.unchanged(slice)
}

func (w *world) stopKubelet() {
	before, slice := w.restarts(consuming), w.slice()
	w.must(w.nodes[consuming].StopKubelet())
	w.must(w.join(w.ctx(), "worker-3", "10.0.1.13"))
	w.waitSlices(pair.Are(pair.Ready, w.workers["worker-3"].Address))
	w.must(w.nodes[consuming].StartKubelet(w.ctx()))
	w.until("the kubelet runs a command in a Pod", func() bool { // it is ready before it knows its Pods
		_, err := w.try(w.ctx(), `kubectl --context consuming -n web exec deployment/slicefeed-writer -- /slicefeed-writer version`)
		return err == nil
	})
	if after := w.restarts(consuming); after != before {
		w.t.Errorf("Pods were restarted: %s, before: %s", after, before)
	}
	if now := w.slice(); now.UID != slice.UID {
		w.t.Error("the slice is another one")
	}
}

// restarts returns how often each Pod's container was started.
func (w *world) restarts(cluster string) string {
	w.t.Helper()
	var all []string
	for _, p := range w.pods(cluster) {
		all = append(all, fmt.Sprintf("%s %d", p.Name, p.Status.ContainerStatuses[0].RestartCount))
	}
	return strings.Join(all, ", ")
}

// slice returns the only slice.
func (w *world) slice() *discoveryv1.EndpointSlice {
	w.t.Helper()
	all := w.Now()
	if len(all) != 1 {
		w.t.Fatalf("%d slices, want one", len(all))
	}
	return all[0]
}

func (w *world) unchanged(before *discoveryv1.EndpointSlice) {
	w.t.Helper()
	if now := w.slice(); now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
		w.t.Errorf("the slice was written: %s", pair.Describe(w.Now()))
	}
}

func (w *world) waitSlices(are func([]*discoveryv1.EndpointSlice) bool) {
	w.t.Helper()
	_, err := w.WaitSlices(w.ctx(), are)
	w.must(err)
}

// waitReady waits until the endpoints are the workers 1 to n, all ready.
func (w *world) waitReady(n int) {
	w.t.Helper()
	w.must(w.untilReady(w.ctx(), n))
}

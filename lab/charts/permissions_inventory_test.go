package charts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// asker asks an inventory's Pod as the writer does.
type asker struct{ link *tls.Config }

func (s *stage) asker() asker {
	s.t.Helper()
	dir := filepath.Join(s.Dir(), "certificates", "writer")
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	s.must(err)
	ca, err := os.ReadFile(filepath.Join(dir, "peer-ca.crt"))
	s.must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return asker{&tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, ServerName: InventoryHost, MinVersion: tls.VersionTLS13}}
}

// list is what the inventory of the tenant tells; nil: it does not answer.
func (a asker) list(ctx context.Context, t *tenant) *inventoryv1.ListNodesResponse {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pods, err := t.client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name"})
	if err != nil || len(pods.Items) != 1 {
		return nil
	}
	conn, err := grpc.NewClient(pods.Items[0].Status.PodIP+":9443", grpc.WithTransportCredentials(credentials.NewTLS(a.link)))
	if err != nil {
		return nil
	}
	defer conn.Close()
	answer, err := inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, &inventoryv1.ListNodesRequest{})
	if err != nil {
		return nil
	}
	return answer
}

// is reports whether the inventory tells the address as READY, or as not READY.
func (a asker) is(ctx context.Context, t *tenant, address string, ready bool) bool {
	answer := a.list(ctx, t)
	if answer == nil {
		return false
	}
	for _, n := range answer.GetNodes() {
		if slices.Contains(n.GetAddresses(), address) {
			return ready == (n.GetState() == inventoryv1.NodeState_NODE_STATE_READY)
		}
	}
	return !ready
}

const (
	becomesReady = "its Pod becomes ready"
	tellsNodes   = "it tells a worker"
	hearsOfMore  = "it hears of what changes"
)

// deeds are an inventory's: what it tells of the tenant's worker is ready, and then not, and so on.
func (a asker) deeds(change func(ctx context.Context, t *tenant, ready bool) error) []deed {
	ready := func(t *tenant) bool { return t.round%2 == 1 }
	return []deed{
		podReady,
		{name: tellsNodes, done: func(ctx context.Context, t *tenant) bool { return a.is(ctx, t, t.worker.Address.String(), true) }},
		again(
			20, hearsOfMore,
			func(ctx context.Context, t *tenant) error { return change(ctx, t, ready(t)) },
			func(ctx context.Context, t *tenant) bool { return a.is(ctx, t, t.worker.Address.String(), ready(t)) },
		),
	}
}

func TestTheInventoryNeedsEachOfItsPermissions(t *testing.T) {
	s := enter(t)
	s.inventoryUp() // for the certificates
	a := s.asker()
	var mu sync.Mutex
	// Each tenant has a worker of its own to be changed.
	worker := func(ctx context.Context, s *stage, t *tenant) error {
		mu.Lock()
		t.worker = s.worker()
		mu.Unlock()
		return t.worker.Join(ctx)
	}
	for _, tr := range []*trial{
		{
			name:  "nodes",
			deeds: a.deeds(func(ctx context.Context, t *tenant, ready bool) error { return t.worker.SetReady(ctx, ready) }),
			needs: map[permission]string{
				{"ClusterRole", "nodes", "list"}:  becomesReady,
				{"ClusterRole", "nodes", "watch"}: hearsOfMore,
			},
			prepare: worker,
		},
		{
			name: "workload", role: "Role-workload", flags: "--set settings.WORKLOAD=NAMESPACE/app=gateway",
			deeds: a.deeds(func(ctx context.Context, t *tenant, ready bool) error { return t.gatewayReady(ctx, ready) }),
			needs: map[permission]string{
				{"Role-workload", "pods", "list"}:  becomesReady,
				{"Role-workload", "pods", "watch"}: hearsOfMore,
			},
			prepare: func(ctx context.Context, s *stage, t *tenant) error {
				if err := worker(ctx, s, t); err != nil {
					return err
				}
				return t.gateway(ctx, t.worker.Name)
			},
		},
		{
			name: "service", flags: "--set settings.SOURCE_KIND=service --set settings.SOURCE_SERVICE=NAMESPACE/web",
			deeds: a.deeds(func(ctx context.Context, t *tenant, ready bool) error { return t.endpoint(ctx, ready) }),
			needs: map[permission]string{
				{"Role-service", "services", "get"}:                          becomesReady,
				{"Role-service", "endpointslices.discovery.k8s.io", "list"}:  becomesReady,
				{"Role-service", "endpointslices.discovery.k8s.io", "watch"}: hearsOfMore,
			},
			prepare: func(ctx context.Context, s *stage, t *tenant) error {
				if err := worker(ctx, s, t); err != nil {
					return err
				}
				return errors.Join(t.service(ctx, "web"), t.endpoint(ctx, true))
			},
		},
	} {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			s := &stage{s.World, t}
			tr.chart, tr.side = Inventory, Secured
			tr.flags += " --set settings.SOURCE_POLL_INTERVAL=5s" // in doubt it lists as often
			defer tr.remove(s)
			tr.run(s)
		})
	}
}

// gateway makes a ready Pod of a workload on a node.
func (t *tenant) gateway(ctx context.Context, node string) error {
	no := false
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := t.client.CoreV1().ServiceAccounts(t.namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	pods := t.client.CoreV1().Pods(t.namespace)
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway", Labels: map[string]string{"app": "gateway"}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a Pod of the workload: %w", err)
	}
	return t.gatewayReady(ctx, true)
}

func (t *tenant) gatewayReady(ctx context.Context, ready bool) error {
	status := corev1.ConditionTrue
	if !ready {
		status = corev1.ConditionFalse
	}
	pods := t.client.CoreV1().Pods(t.namespace)
	pod, err := pods.Get(ctx, "gateway", metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// endpoint makes the slice of the Service "web" list the tenant's worker.
func (t *tenant) endpoint(ctx context.Context, ready bool) error {
	name, port := "http", int32(pair.NodePort)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{t.worker.Address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
	}
	all := t.client.DiscoveryV1().EndpointSlices(t.namespace)
	if _, err := all.Get(ctx, slice.Name, metav1.GetOptions{}); err == nil {
		_, err = all.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	}
	_, err := all.Create(ctx, slice, metav1.CreateOptions{})
	return err
}

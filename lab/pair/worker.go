package pair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// DrainTaint is what the cluster autoscaler puts on a node that it is about to remove.
const DrainTaint = "ToBeDeletedByClusterAutoscaler"

// Within these bounds a backend's death has to be found out, by the way it died: the
// prober's own bounds plus half a second for a machine that does all of this at once.
const (
	RefusalBound = 2500*time.Millisecond + 500*time.Millisecond
	SilenceBound = 4500*time.Millisecond + 500*time.Millisecond
)

// WorkerOptions describe a worker. Name and Address are mandatory.
type WorkerOptions struct {
	Name     string
	Address  netip.Addr    // on the private LAN
	NICAfter time.Duration // how much later than the server the cloud shows its private NIC
	// InternalIP is that of the Node; zero: a public one, as the cloud's own Nodes have.
	InternalIP netip.Addr
	Labels     map[string]string
}

// Worker is a worker of the secured cluster: a machine in the cloud, a Node in the
// cluster, and a backend that answers on the private address.
type Worker struct {
	Name    string
	Server  string // UUID of the machine
	Address netip.Addr

	options WorkerOptions
	pair    *Pair
	backend *backend.Backend

	mu     sync.Mutex
	deaths []client.Death
}

// AddWorker makes a machine: its server is in the cloud, its backend answers. It is no
// Node before Join.
func (p *Pair) AddWorker(options WorkerOptions) (*Worker, error) {
	if err := netns.AddAddr(options.Address); err != nil {
		return nil, err
	}
	w := &Worker{Name: options.Name, Server: string(uuid.NewUUID()), Address: options.Address, options: options, pair: p}
	if !w.options.InternalIP.IsValid() {
		w.options.InternalIP = w.public()
	}
	var err error
	if w.backend, err = backend.Start(w.Name, netip.AddrPortFrom(w.Address, NodePort)); err != nil {
		return nil, err
	}
	if _, err := p.Cloud.PutServer(Datacenter, server(w.Server, w.Name, w.public(), w.Address, options.NICAfter)); err != nil {
		return nil, errors.Join(fmt.Errorf("put the server of %s: %w", w.Name, err), w.backend.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers[w.Address] = w
	return w, nil
}

// public is an address that nobody in the lab uses.
func (w *Worker) public() netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, w.Address.As4()[3]})
}

// Join creates the Node as a kubelet and a cloud controller would together: ready, with
// provider ID and system UUID.
func (w *Worker) Join(ctx context.Context) error {
	labels := map[string]string{
		corev1.LabelHostname: w.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelTopologyRegion: "de-fra", corev1.LabelTopologyZone: "AUTO",
		"enterprise.cloud.ionos.com/datacenter-id": Datacenter, "enterprise.cloud.ionos.com/node-id": w.Server,
	}
	maps.Copy(labels, w.options.Labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: "ionos://" + w.Server},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{
				SystemUUID:      w.Server,
				OperatingSystem: "linux",
				Architecture:    "amd64",
				KubeletVersion:  "v1.36.3",
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: w.options.InternalIP.String()},
				{Type: corev1.NodeHostName, Address: w.Name},
			},
			Conditions: []corev1.NodeCondition{readyCondition(true)},
		},
	}
	if _, err := w.pair.securedClient.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("join %s: %w", w.Name, err)
	}
	return nil
}

func readyCondition(ready bool) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
	if !ready {
		c.Status, c.Reason = corev1.ConditionFalse, "KubeletNotReady"
	}
	return c
}

// SetReady changes the Node's readiness, as its kubelet would.
func (w *Worker) SetReady(ctx context.Context, ready bool) error {
	return w.patch(ctx, map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{readyCondition(ready)}}}, "status")
}

// Cordon makes the Node unschedulable, or takes that back.
func (w *Worker) Cordon(ctx context.Context, on bool) error {
	return w.patch(ctx, map[string]any{"spec": map[string]any{"unschedulable": on}})
}

// Drain puts the autoscaler's taint on the Node, or takes it away. A Node here has no other.
func (w *Worker) Drain(ctx context.Context, on bool) error {
	taints := []corev1.Taint{}
	if on {
		taints = append(taints, corev1.Taint{Key: DrainTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	return w.patch(ctx, map[string]any{"spec": map[string]any{"taints": taints}})
}

func (w *Worker) patch(ctx context.Context, change map[string]any, subresources ...string) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("change %s: %w", w.Name, err)
	}
	_, err = w.pair.securedClient.CoreV1().Nodes().
		Patch(ctx, w.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return fmt.Errorf("change %s: %w", w.Name, err)
	}
	return nil
}

// Leave deletes the Node. The machine goes on.
func (w *Worker) Leave(ctx context.Context) error {
	if err := w.pair.securedClient.CoreV1().Nodes().Delete(ctx, w.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the Node %s: %w", w.Name, err)
	}
	return nil
}

// Destroy takes the machine away: its server is gone from the cloud, nothing answers any
// more. The address may not be used again.
func (w *Worker) Destroy() error {
	err := w.pair.Cloud.RemoveServer(Datacenter, w.Server)
	if err != nil {
		err = fmt.Errorf("remove the server of %s: %w", w.Name, err)
	}
	w.died(0) // nobody is owed any time: it was to be out of the slices before
	return errors.Join(err, w.backend.Close())
}

// Set changes how the backend behaves; Backend says how.
func (w *Worker) Set(mode backend.Mode) error {
	switch mode {
	case backend.Serve:
		if err := w.backend.Set(mode); err != nil {
			return err
		}
		w.revived()
		return nil
	case backend.Refuse, backend.Error:
		w.died(RefusalBound)
	default:
		w.died(SilenceBound)
	}
	return w.backend.Set(mode)
}

// Backend is what answers on the worker's private address.
func (w *Worker) Backend() *backend.Backend { return w.backend }

// died is noted before it is so, and revived after: a request between the two met
// something that was dying.
func (w *Worker) died(bound time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.deaths); n > 0 && w.deaths[n-1].To.IsZero() {
		return
	}
	w.deaths = append(w.deaths, client.Death{From: time.Now(), Bound: bound})
}

func (w *Worker) revived() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.deaths); n > 0 && w.deaths[n-1].To.IsZero() {
		w.deaths[n-1].To = time.Now()
	}
}

// Truth says what really became of the backend at an address, for a client's judgement.
func (p *Pair) Truth(address netip.Addr) client.Truth {
	p.mu.Lock()
	w := p.workers[address]
	p.mu.Unlock()
	if w == nil {
		return client.Truth{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return client.Truth{Known: true, Name: w.Name, Deaths: append([]client.Death(nil), w.deaths...)}
}

// patience is for a machine that does everything at once and may stall; a request that is
// lost to a silent backend ends no sooner.
const patience = 10 * time.Second

// NewClient returns a client of the Service that sends a request each so often.
func (p *Pair) NewClient(every time.Duration) *client.Client {
	return client.New(client.Config{
		Slices: p.Now, Truth: p.Truth, Every: every, Limit: patience,
	})
}

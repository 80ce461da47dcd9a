package runbooks

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// worker is one of the secured cluster: a server in the cloud, a Node, and a backend that
// answers on the private address.
type worker struct {
	name, server string
	address      netip.Addr
	backend      *backend.Backend
}

// join makes a worker. Without a NIC on the private LAN it has an address nobody can know.
func (w *world) join(ctx context.Context, name, address string, onLAN bool, labels map[string]string) error {
	at := netip.MustParseAddr(address)
	if err := netns.AddAddr(at); err != nil {
		return err
	}
	made := &worker{name: name, server: string(uuid.NewUUID()), address: at}
	var err error
	if made.backend, err = backend.Start(name, netip.AddrPortFrom(at, pair.NodePort)); err != nil {
		return err
	}
	w.t.Cleanup(func() { w.ended(made.backend.Close()) })
	w.workers[name] = made
	if err := w.attach(made, onLAN); err != nil {
		return err
	}
	all := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelTopologyRegion: "de-fra"}
	maps.Copy(all, labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
		Spec:       corev1.NodeSpec{ProviderID: "ionos://" + made.server},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: made.server, OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.3"},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: made.public()}, {Type: corev1.NodeHostName, Address: name}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}},
		},
	}
	if _, err := w.secured.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	return nil
}

func (m *worker) public() string { return fmt.Sprintf("203.0.113.%d", m.address.As4()[3]) }

// attach shows the worker's server in the cloud, with or without its private NIC.
func (w *world) attach(m *worker, onLAN bool) error {
	s := ionosapi.Server{ID: m.server, Name: m.name, NICs: []ionosapi.NIC{{Name: "public", LAN: pair.PublicLAN, IPs: []string{m.public()}}}}
	if onLAN {
		s.NICs = append(s.NICs, ionosapi.NIC{Name: "private", LAN: pair.PrivateLAN, IPs: []string{m.address.String()}})
	}
	_, err := w.cloud.PutServer(pair.Datacenter, s)
	return err
}

// destroy takes the machine away, as the cloud does once its Node has left.
func (w *world) destroy(name string) error {
	m := w.workers[name]
	delete(w.workers, name)
	if err := w.cloud.RemoveServer(pair.Datacenter, m.server); err != nil {
		return err
	}
	return m.backend.Close()
}

// names are those of all workers that there are.
func (w *world) names() []string { return slices.Sorted(maps.Keys(w.workers)) }

// set changes how workers' backends behave.
func (w *world) set(mode backend.Mode, names ...string) error {
	for _, name := range names {
		if err := w.workers[name].backend.Set(mode); err != nil {
			return err
		}
	}
	return nil
}

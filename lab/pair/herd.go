package pair

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// HerdSubnet is where the workers of a herd are. The admission policy allows it; both components
// have to be told by SECURED_SUBNET_CIDR.
const HerdSubnet = SourcesSubnet

// Herd is as many workers as wanted of which nothing runs: machines in the cloud, and Nodes
// of the size that kubelets and their company make them. Its methods are for one goroutine.
type Herd struct {
	pair   *Pair
	client *kubernetes.Clientset
	nodes  []*Node
}

// Node is a Node of the secured cluster that bears a name, an address and nothing else.
type Node struct {
	Name    string
	Server  string     // UUID of its machine
	Address netip.Addr // on the private LAN

	client *kubernetes.Clientset
}

// NewHerd makes a herd of none.
func (p *Pair) NewHerd() (*Herd, error) {
	client, err := FastClient(p.Secured)
	if err != nil {
		return nil, fmt.Errorf("make a herd: %w", err)
	}
	return &Herd{pair: p, client: client}, nil
}

// FastClient is an administrator's client that is as fast as they come.
func FastClient(plane *controlplane.ControlPlane) (*kubernetes.Clientset, error) {
	config := plane.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// Nodes are those that there are, in the order of their addresses and names.
func (h *Herd) Nodes() []*Node { return h.nodes }

// joining is how many Nodes are made at a time: more do not make the API server faster.
const joining = 32

// Grow makes the herd so large: first the machines, then the Nodes.
func (h *Herd) Grow(ctx context.Context, to int) error {
	address := netip.MustParsePrefix(HerdSubnet).Addr().Next()
	if n := len(h.nodes); n > 0 {
		address = h.nodes[n-1].Address.Next()
	}
	fresh := len(h.nodes)
	for i := fresh; i < to; i, address = i+1, address.Next() {
		node := &Node{Name: fmt.Sprintf("herd-%06d", i), Server: string(uuid.NewUUID()), Address: address, client: h.client}
		if _, err := h.pair.Cloud.PutServer(Datacenter, server(node.Server, node.Name, node.public(), address, 0)); err != nil {
			return fmt.Errorf("put the server of %s: %w", node.Name, err)
		}
		h.nodes = append(h.nodes, node)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(joining)
	for _, node := range h.nodes[fresh:] {
		all.Go(func() error { return node.Join(ctx) })
	}
	return all.Wait()
}

// NewNode is a Node to join that no machine belongs to.
func (h *Herd) NewNode(name string, address netip.Addr) *Node {
	return &Node{Name: name, Server: string(uuid.NewUUID()), Address: address, client: h.client}
}

// public is an address that nobody in the lab uses.
func (n *Node) public() netip.Addr {
	ip := n.Address.As4()
	return netip.AddrFrom4([4]byte{198, 18, ip[2], ip[3]})
}

// Join creates the Node: ready, with the further labels.
func (n *Node) Join(ctx context.Context, labels ...map[string]string) error {
	node := grown(n.Name, n.Server, n.public())
	for _, some := range labels {
		maps.Copy(node.Labels, some)
	}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("join %s: %w", n.Name, err)
	}
	return nil
}

// SetReady changes the Node's readiness by the least that does.
func (n *Node) SetReady(ctx context.Context, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	_, err := n.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("change %s: %w", n.Name, err)
	}
	return nil
}

// nodeConditions are those that a kubelet and a network plugin report of a healthy Node.
var nodeConditions = []struct{ kind, reason, message string }{
	{"NetworkUnavailable", "CalicoIsUp", "Calico is running on this node"},
	{"MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	{"DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	{"PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	{"Ready", "KubeletReady", "kubelet is posting ready status"},
}

// grown is a Node as one looks that has been in use for a while: some 14 KB of JSON, most of
// which are the names of images.
func grown(name, server string, internal netip.Addr) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
				corev1.LabelTopologyRegion: "de-fra", corev1.LabelTopologyZone: "AUTO",
				corev1.LabelInstanceTypeStable: "dedicated-core-amd-epyc", "kubernetes.io/role": "node",
				"enterprise.cloud.ionos.com/datacenter-id": Datacenter, "enterprise.cloud.ionos.com/node-id": server,
				"enterprise.cloud.ionos.com/nodepool-id": "0f0c8f5e-5d4e-4f0a-b8a5-3f1f5a1d7a10",
			},
			Annotations: map[string]string{
				"csi.volume.kubernetes.io/nodeid":                        fmt.Sprintf(`{"cloud.ionos.com":"%s/%s"}`, Datacenter, server),
				"node.alpha.kubernetes.io/ttl":                           "0",
				"projectcalico.org/IPv4Address":                          internal.String() + "/22",
				"projectcalico.org/IPv4IPIPTunnelAddr":                   "10.220.64.1",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec: corev1.NodeSpec{ProviderID: "ionos://" + server, PodCIDR: "10.220.64.0/24", PodCIDRs: []string{"10.220.64.0/24"}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: internal.String()},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				SystemUUID: server, MachineID: strings.ReplaceAll(server, "-", ""), BootID: string(uuid.NewUUID()),
				OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.3", KernelVersion: "6.8.0-71-generic",
				OSImage: "Ubuntu 24.04.3 LTS", ContainerRuntimeVersion: "containerd://2.1.4",
			},
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("65842976Ki"),
				corev1.ResourceEphemeralStorage: resource.MustParse("203056560Ki"), corev1.ResourcePods: resource.MustParse("110"),
			},
		},
	}
	node.Status.Allocatable = node.Status.Capacity
	now := metav1.Now()
	for _, c := range nodeConditions {
		status := corev1.ConditionFalse
		if c.kind == "Ready" {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type:               corev1.NodeConditionType(c.kind),
			Status:             status,
			Reason:             c.reason,
			Message:            c.message,
			LastHeartbeatTime:  now,
			LastTransitionTime: now,
		})
	}
	const images = 50 // as many as a kubelet reports at most
	for i := range images {
		repository := fmt.Sprintf("registry.example.org/team-%02d/some-service-of-the-shop-%02d", i%7, i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, i), fmt.Sprintf("%s:v1.%d.0", repository, i)},
			SizeBytes: int64(i+1) << 24,
		})
	}
	return node
}

package rest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// heartbeat is how often a kubelet tells its Node's status where nothing has changed.
const heartbeat = 5 * time.Minute

// images is how many a kubelet lists at most.
const images = 50

// subnet is where the workers are. The pair's admission policy lets it through.
var subnet = netip.MustParsePrefix(pair.SourcesSubnet)

// fleet is the workers: a server in the cloud and a Node of real size for each. What they run is
// not here.
type fleet struct {
	cloud  *pair.Cloud
	nodes  *kubernetes.Clientset
	made   int
	weight int // bytes of one Node, as the API server stores it
}

func newFleet(p *pair.Pair) (*fleet, error) {
	config := p.Secured.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	return &fleet{cloud: p.Cloud, nodes: client}, err
}

// grow adds workers until there are so many.
func (f *fleet) grow(ctx context.Context, to int) error {
	adding, within := errgroup.WithContext(ctx)
	adding.SetLimit(16)
	for i := f.made; i < to; i++ {
		id := string(uuid.NewUUID())
		_, err := f.cloud.PutServer(pair.Datacenter, ionosapi.Server{ID: id, Name: name(i), NICs: []ionosapi.NIC{
			{Name: "public", LAN: pair.PublicLAN, IPs: []string{fmt.Sprintf("203.0.%d.%d", i/250, 1+i%250)}},
			{Name: "private", LAN: pair.PrivateLAN, IPs: []string{address(i).String()}},
		}})
		if err != nil {
			return err
		}
		adding.Go(func() error {
			_, err := f.nodes.CoreV1().Nodes().Create(within, node(i, id), metav1.CreateOptions{})
			return err
		})
	}
	if err := adding.Wait(); err != nil {
		return fmt.Errorf("add the Nodes up to %d: %w", to, err)
	}
	f.made = to
	one, err := f.nodes.CoreV1().Nodes().Get(ctx, name(0), metav1.GetOptions{})
	if err != nil {
		return err
	}
	f.weight = one.Size()
	return nil
}

// live has every kubelet tell its heartbeat, evenly spread, until ctx ends.
func (f *fleet) live(ctx context.Context) error {
	tick := time.NewTicker(heartbeat / time.Duration(f.made))
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % f.made {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions(time.Now())}})
		if err != nil {
			return err
		}
		_, err = f.nodes.CoreV1().Nodes().Patch(ctx, name(i), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("tell a heartbeat of %s: %w", name(i), err)
		}
	}
}

// decoding is what part of a core it takes to decode the heartbeats, measured in this process.
func (f *fleet) decoding() (float64, error) {
	raw, err := node(0, pair.Datacenter).Marshal()
	if err != nil {
		return 0, err
	}
	before, err := figures.UsageOf(os.Getpid())
	if err != nil {
		return 0, err
	}
	const often = 20_000
	for range often {
		if err := new(corev1.Node).Unmarshal(raw); err != nil {
			return 0, err
		}
	}
	after, err := figures.UsageOf(os.Getpid())
	return (after.CPU - before.CPU).Seconds() / often * float64(f.made) / heartbeat.Seconds(), err
}

func name(i int) string { return fmt.Sprintf("standardnodes-%05d", i) }

func address(i int) netip.Addr {
	base := subnet.Addr().As4()
	return netip.AddrFrom4([4]byte{base[0], base[1], byte(1 + i/250), byte(1 + i%250)})
}

// node is what a kubelet, a cloud controller and a network plugin make of a Node together. The
// API server adds the managed fields.
func node(i int, server string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name(i),
			Labels: map[string]string{
				corev1.LabelHostname: name(i), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", corev1.LabelInstanceTypeStable: "DEDICATED-8-32768",
				corev1.LabelTopologyRegion: "de-fra", corev1.LabelTopologyZone: "AUTO",
				"failure-domain.beta.kubernetes.io/region": "de-fra", "failure-domain.beta.kubernetes.io/zone": "AUTO",
				"enterprise.cloud.ionos.com/datacenter-id": pair.Datacenter, "enterprise.cloud.ionos.com/node-id": server,
				"enterprise.cloud.ionos.com/nodepool-id": pair.Datacenter, "pool": "standard", "team": "shop",
			},
			Annotations: map[string]string{
				"alpha.kubernetes.io/provided-node-ip": address(i).String(), "node.alpha.kubernetes.io/ttl": "300",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				"projectcalico.org/IPv4Address":                          address(i).String() + "/16", "projectcalico.org/IPv4IPIPTunnelAddr": "10.208.1.1",
				"csi.volume.kubernetes.io/nodeid": `{"cloud.ionos.com":"` + server + `"}`,
			},
		},
		Spec: corev1.NodeSpec{ProviderID: "ionos://" + server, PodCIDR: "10.208.1.0/24", PodCIDRs: []string{"10.208.1.0/24"}},
		Status: corev1.NodeStatus{
			Capacity: resources(8, 32), Allocatable: resources(7, 30),
			Conditions: conditions(time.Now()),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("203.0.%d.%d", i/250, 1+i%250)}, {Type: corev1.NodeHostName, Address: name(i)},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: server, SystemUUID: server, BootID: server, KernelVersion: "6.8.0-79-generic", OSImage: "Ubuntu 24.04.3 LTS",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for k := range images {
		digest := sha256.Sum256([]byte{byte(i), byte(k)})
		repository := fmt.Sprintf("registry.shop.example/platform/service-%02d", k)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%x", repository, digest), fmt.Sprintf("%s:v1.%d.%d", repository, k, i%40)},
			SizeBytes: int64(1+k) << 20,
		})
	}
	return n
}

func resources(cores, gigabytes int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(gigabytes<<30, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(100<<30, resource.BinarySI), corev1.ResourcePods: *resource.NewQuantity(110, resource.DecimalSI),
		"hugepages-1Gi": resource.Quantity{}, "hugepages-2Mi": resource.Quantity{},
	}
}

func conditions(heard time.Time) []corev1.NodeCondition {
	of := func(kind corev1.NodeConditionType, is corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: is, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(heard), LastTransitionTime: metav1.NewTime(time.Unix(1790000000, 0)),
		}
	}
	return []corev1.NodeCondition{
		of(corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "CalicoIsUp", "Calico is running on this node"),
		of(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		of(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		of(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		of(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pki"
)

const cloudToken = "the-token-of-the-cloud" // of an emulator that only this stack has

// clients is the inventory's ALLOWED_CLIENTS_FILE.
const clients = `clients:
- san: ` + WriterSAN + `
  role: subscriber
- san: ` + OperatorSAN + `
  role: operator
`

// Secured sets up the secured side: its cluster, its cloud, its workers, and the inventory.
func (j Job) Secured(ctx context.Context) error {
	s := side{
		name: "secured", dirs: []string{"cloud"},
		keys: j.inventoryKeys, manifests: []string{"inventory-rbac.yaml"}, furnish: joinWorkers,
	}
	s.account.namespace, s.account.name = "slicefeed", "slicefeed-inventory"
	return j.run(ctx, s)
}

// inventoryKeys also makes the files of the cloud. Only the inventory needs to trust its certificate.
func (j Job) inventoryKeys(link *pki.CA) error {
	cloud, err := pki.NewCA("cloud")
	if err != nil {
		return err
	}
	if err := issue(cloud, pki.Cert{CommonName: "cloud", DNS: []string{"ionos"}, Usage: pki.Server}, j.path("cloud"), "tls"); err != nil {
		return err
	}
	// A writer checks the URI. The other names are for grpcurl, which checks the name that it dials.
	own := pki.Cert{CommonName: "inventory", URIs: []string{InventorySAN}, DNS: []string{"inventory", "localhost"}, Usage: pki.Server}
	if err := issue(link, own, j.path("component", "tls"), "tls"); err != nil {
		return err
	}
	state, err := json.Marshal(cloudState())
	if err != nil {
		return err
	}
	// peer-ca stays empty: the other side's public volume is mounted there.
	for _, dir := range []string{"ionos", "config", "peer-ca"} {
		if err := os.MkdirAll(j.path("component", dir), 0o700); err != nil {
			return err
		}
	}
	for path, content := range map[string][]byte{
		j.path("cloud", "state.json"):                 state,
		j.path("cloud", "token"):                      []byte(cloudToken),
		j.path("component", "ionos", "token"):         []byte(cloudToken),
		j.path("component", "ionos", "ca.crt"):        cloud.PEM(),
		j.path("component", "config", "clients.yaml"): []byte(clients),
	} {
		if err := pki.WriteFile(path, content); err != nil {
			return err
		}
	}
	return nil
}

func cloudState() ionosapi.State {
	dc := ionosapi.Datacenter{ID: Datacenter, Name: "production", LANs: []ionosapi.LAN{
		{ID: publicLAN, Name: "internet", Public: true},
		{ID: PrivateLAN, Name: "workers", IPv4CIDR: Subnet},
	}}
	for _, w := range Workers() {
		dc.Servers = append(dc.Servers, ionosapi.Server{ID: w.Server, Name: w.Name, NICs: []ionosapi.NIC{
			{Name: "public", LAN: publicLAN, IPs: []string{w.public().String()}},
			{Name: "private", LAN: PrivateLAN, IPs: []string{w.Address.String()}},
		}})
	}
	return ionosapi.State{Datacenters: []ionosapi.Datacenter{dc}}
}

// joinWorkers creates the Nodes as kubelets and a cloud controller would together. Nodes that
// are there stay as they are.
func joinWorkers(ctx context.Context, client kubernetes.Interface) error {
	for _, w := range Workers() {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: w.Name, Labels: map[string]string{
				corev1.LabelHostname: w.Name, corev1.LabelTopologyRegion: "de-fra", corev1.LabelTopologyZone: "AUTO",
				"enterprise.cloud.ionos.com/datacenter-id": Datacenter, "enterprise.cloud.ionos.com/node-id": w.Server,
			}},
			Spec: corev1.NodeSpec{ProviderID: "ionos://" + w.Server},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{SystemUUID: w.Server, OperatingSystem: "linux", KubeletVersion: "v1.36.3"},
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: w.public().String()},
					{Type: corev1.NodeHostName, Address: w.Name},
				},
				Conditions: []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
					LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
				}},
			},
		}
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("join %s: %w", w.Name, err)
		}
	}
	return nil
}

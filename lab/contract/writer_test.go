package contract

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

func TestPythonClientFollowsTheContractOfTheWriter(t *testing.T) {
	python, dir := findPython(t), t.TempDir()
	issueCertificates(t, dir)
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	must(t, err)
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{Programs: programs, Address: controlPlaneAddress})
	must(t, err)
	t.Cleanup(func() { must(t, cluster.Stop()) })
	must(t, cluster.Apply(t.Context(), "../../deploy/manifests/writer-rbac.yaml"))
	createService(t, cluster, "shop", nil)
	createService(t, cluster, "cart", nil)
	createService(t, cluster, "broken", map[string]string{"app": "broken"})

	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "web", "slicefeed-writer")
	must(t, err)
	source, stopInventory := startInventory(t, dir)
	address := freePort(t)
	startWriter := func() (stop func()) {
		return startComponent(
			t, dir, "writer", "TARGET_KUBECONFIG="+kubeconfig, "HEALTH_CHECK_MODE=off", "SHRINK_WINDOW=0", "SECURED_SUBNET_CIDR=10.0.0.0/8",
			"INVENTORY_ADDRESS="+source, "INVENTORY_SAN=inventory.example", "TLS_PEER_CA_FILE="+filepath.Join(dir, "server-ca.crt"),
			"TLS_CERT_FILE="+filepath.Join(dir, "subscriber.crt"), "TLS_KEY_FILE="+filepath.Join(dir, "subscriber.key"),
			"LISTEN_ADDRESS="+address, "CLIENT_CA_FILE="+filepath.Join(dir, "client-ca.crt"),
			"LISTEN_CERT_FILE="+filepath.Join(dir, "writer.crt"), "LISTEN_KEY_FILE="+filepath.Join(dir, "writer.key"),
		)
	}
	stopWriter := startWriter()
	runClient(t, python, dir, "writer.py", address, map[string]func(){
		"not ready": func() { writeNodes(t, dir, 1) },
		"ready":     func() { writeNodes(t, dir, -1) },
		"create":    func() { createService(t, cluster, "late", nil) },
		"cut off":   stopInventory,
		"restart":   func() { stopWriter(); startWriter() },
	})
}

// createService creates a target in the namespace of the writer.
func createService(t *testing.T, cluster *controlplane.ControlPlane, name string, selector map[string]string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.AdminConfig())
	must(t, err)
	_, err = client.CoreV1().Services("web").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slicefeed.dev/class": "default"}},
		Spec: corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(30080),
		}}},
	}, metav1.CreateOptions{})
	must(t, err)
}

package stack

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// Consuming sets up the consuming side: its cluster, the Service, and the writers.
func (j Job) Consuming(ctx context.Context) error {
	s := side{name: "consuming", keys: j.writerKeys, manifests: []string{"writer-rbac.yaml", "writer-policy.yaml"}, furnish: createService}
	s.account.namespace, s.account.name = Namespace, "slicefeed-writer"
	return j.run(ctx, s)
}

// writerKeys are one pair for both writers, as the Pods of a Deployment share a Secret, and one
// for a person who queries the inventory, which trusts this side's CA.
func (j Job) writerKeys(link *pki.CA) error {
	writer := pki.Cert{CommonName: "writer", URIs: []string{WriterSAN}, Usage: pki.Client}
	if err := issue(link, writer, j.path("component", "tls"), "tls"); err != nil {
		return err
	}
	operator := pki.Cert{CommonName: "operator", URIs: []string{OperatorSAN}, Usage: pki.Client}
	if err := issue(link, operator, j.path("people"), "operator"); err != nil {
		return err
	}
	// It stays empty: the other side's public volume is mounted there.
	return os.MkdirAll(j.path("component", "peer-ca"), 0o700)
}

// createService makes the Service that is kept pointed at the workers, unless it is there.
func createService(ctx context.Context, client kubernetes.Interface) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Service, Labels: map[string]string{"slicefeed.dev/class": "default"}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(NodePort),
		}}},
	}
	_, err := client.CoreV1().Services(Namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Service %s/%s: %w", Namespace, Service, err)
	}
	return nil
}

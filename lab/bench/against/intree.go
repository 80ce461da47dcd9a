package against

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/process"
)

const (
	inTree     = "in-tree" // its namespace, Service, Node and what selects its Pods
	inTreeUser = "system:serviceaccount:" + inTree + ":controller"
)

// inTreeRights are all, since what a controller may do makes it no slower.
const inTreeRights = `apiVersion: v1
kind: Namespace
metadata: {name: in-tree}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: controller, namespace: in-tree}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: in-tree}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: controller, namespace: in-tree}
`

// inTree is Kubernetes' own EndpointSlice controller: a Pod of its cluster, and a slice there.
func (s *scene) inTree(ctx context.Context) (*contender, error) {
	client, err := pair.FastClient(s.Consuming)
	if err != nil {
		return nil, err
	}
	if err := s.Consuming.ApplyYAML(ctx, []byte(inTreeRights)); err != nil {
		return nil, err
	}
	sight, err := floor.NewSight(ctx, s.Pair, inTree)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := s.Consuming.ServiceAccountKubeconfig(ctx, inTree, "controller")
	if err != nil {
		return nil, err
	}
	first := netip.MustParseAddr("10.3.0.1")
	if err := pods(ctx, client, first); err != nil {
		return nil, err
	}
	manager, err := process.Start(process.Spec{
		Name: "kube-controller-manager", Path: s.manager, Dir: s.dir, Log: filepath.Join(s.dir, "kube-controller-manager.log"),
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=endpointslice-controller", "--secure-port=0",
			// Else it would wait for its own limit of 20 requests a second, not for anything that it does.
			"--kube-api-qps=1000", "--kube-api-burst=1000",
		},
	})
	if err != nil {
		return nil, err
	}
	if _, _, err := sight.Until(ctx, 1, allReady); err != nil {
		return nil, errors.Join(err, manager.Stop(0), fmt.Errorf("%s", manager.Tail()))
	}
	return &contender{
		name: "in-tree EndpointSlice controller, one cluster", users: []string{inTreeUser},
		set: func(ctx context.Context, ready bool) error {
			status := corev1.ConditionFalse
			if ready {
				status = corev1.ConditionTrue
			}
			patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
			_, err := client.CoreV1().Pods(inTree).Patch(ctx, podName(0), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		},
		address: first, sight: sight, pause: briefly, ready: true,
		usage: func() (figures.Usage, error) { return usageOf(manager.PID()) },
		stop: func() error {
			sight.Close()
			return manager.Stop(0) // it does not end in order: it says that it lost its Lease
		},
	}, nil
}

func podName(i int) string { return fmt.Sprintf("shop-%d", i) }

// pods makes a Service with a selector, and ready Pods of which nothing runs.
func pods(ctx context.Context, client *kubernetes.Clientset, address netip.Addr) error {
	labels := map[string]string{"app": inTree}
	if _, err := client.CoreV1().Services(inTree).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: inTree},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(pair.NodePort),
		}}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inTree}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range endpoints {
		made, err := client.CoreV1().Pods(inTree).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: labels},
			Spec: corev1.PodSpec{
				NodeName:   inTree,
				Containers: []corev1.Container{{Name: "shop", Image: "registry.example.org/shop:v1"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address.String(), PodIPs: []corev1.PodIP{{IP: address.String()}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		if _, err := client.CoreV1().Pods(inTree).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
		address = address.Next()
	}
	return nil
}

package kubelet

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// port is the kubelet API's.
const port = 10250

// register makes the Node. It is one of the control plane, so that nobody takes it for a worker.
func (k *Kubelet) register(ctx context.Context) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(
			"2",
		),
		corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.options.Node, Labels: map[string]string{
			"node-role.kubernetes.io/control-plane": "", corev1.LabelHostname: k.options.Node,
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: k.options.Address.String()},
				{Type: corev1.NodeHostName, Address: k.options.Node},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux",
				Architecture:    "amd64",
				KubeletVersion:  "v1.36.3-slicefeed-lab",
			},
		},
	}
	if _, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Node %s: %w", node.Name, err)
	}
	return nil
}

// nextAddress is the loop's own. Addresses are not used twice: what dials an old one must not
// find a new Pod.
func (k *Kubelet) nextAddress() netip.Addr {
	k.last = k.last.Next()
	return k.last
}

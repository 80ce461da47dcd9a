package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsBelongToANamedWorkloadByTheirOwner(t *testing.T) {
	isController := true
	pod := func(kind, owner string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: &isController}}
		}
		return p
	}
	hash := map[string]string{"pod-template-hash": "6d8f7"}
	for name, tc := range map[string]struct {
		workload string
		pod      *corev1.Pod
		want     bool
	}{
		"of the Deployment":                {"ingress/deployment/gateway", pod("ReplicaSet", "gateway-6d8f7", hash), true},
		"of a Deployment with such a name": {"ingress/deployment/gateway", pod("ReplicaSet", "gateway-edge-6d8f7", hash), false},
		"of a bare ReplicaSet":             {"ingress/deployment/gateway", pod("ReplicaSet", "gateway-6d8f7", nil), false},
		"of the DaemonSet":                 {"ingress/daemonset/gateway", pod("DaemonSet", "gateway", nil), true},
		"of a StatefulSet of this name":    {"ingress/daemonset/gateway", pod("StatefulSet", "gateway", nil), false},
		"of the StatefulSet":               {"ingress/StatefulSet/gateway", pod("StatefulSet", "gateway", nil), true},
		"of nobody":                        {"ingress/statefulset/gateway", pod("", "", nil), false},
		"selected by its labels":           {"ingress/app=gateway", pod("", "", nil), true},
	} {
		w, err := ParseWorkload(tc.workload)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := w.has(tc.pod); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// runsOnce reports whether a Pod has no owner and ends by itself, as those of helm test do.
func runsOnce(p *corev1.Pod) bool {
	return metav1.GetControllerOf(p) == nil && p.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// schedule places each Pod that runs once and has no node on the only one, and runs it.
func (k *Kubelet) schedule(ctx context.Context) {
	all, err := k.loose.List(labels.Everything())
	if err != nil {
		return // of a cache, which does not fail
	}
	for _, found := range all {
		if !runsOnce(found) || found.Spec.NodeName != "" || found.DeletionTimestamp != nil || k.refused[found.UID] {
			continue
		}
		if p := k.pod(found.Namespace, found.Name); p != nil { // an earlier one of this name has not ended, or the cache is behind
			continue
		}
		if err := understandOnce(found); err != nil {
			k.refused[found.UID] = true
			k.note(fmt.Errorf("run Pod %s/%s: %w", found.Namespace, found.Name, err))
			continue
		}
		bound, err := k.bind(ctx, found)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // the cache is behind
		}
		if err != nil {
			time.AfterFunc(200*time.Millisecond, k.mark) // the API server may be away
			continue
		}
		k.launch(ctx, bound, "")
	}
}

// bind does what the scheduler does.
func (k *Kubelet) bind(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	pods := k.client.CoreV1().Pods(p.Namespace)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: k.options.Node},
	}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return pods.Get(ctx, p.Name, metav1.GetOptions{})
}

// understandOnce wants a Pod that is understood to its last field, those that the API server sets included.
func understandOnce(p *corev1.Pod) error {
	spec := p.Spec.DeepCopy()
	spec.RestartPolicy = corev1.RestartPolicyAlways // a template's
	spec.Priority, spec.PreemptionPolicy = nil, nil // there is nothing to preempt
	return understand(spec)
}

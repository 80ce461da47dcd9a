package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
)

// workload is what there is of a Deployment.
type workload struct {
	pods    []*pod // those that are ending too, until they have
	refused error  // why no Pod of the present template can be made
	hash    string // of the template that was refused
}

// sync makes of all Deployments what they say.
func (k *Kubelet) sync(ctx context.Context) {
	all, err := k.deployments.List(labels.Everything())
	if err != nil {
		return // of a cache, which does not fail
	}
	seen := map[types.NamespacedName]bool{}
	for _, d := range all {
		name := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
		if d.DeletionTimestamp != nil {
			continue
		}
		seen[name] = true
		if k.workloads[name] == nil {
			k.workloads[name] = &workload{}
		}
		k.roll(ctx, d, k.workloads[name])
		if err := k.tell(ctx, d, k.workloads[name]); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			time.AfterFunc(100*time.Millisecond, k.mark) // a conflict, or the API server is away
		}
	}
	for name, w := range k.workloads {
		if !seen[name] { // there is no garbage collector here: what a Deployment owned ends with it
			w.forget()
			for _, p := range w.pods {
				k.remove(ctx, p)
			}
			if len(w.pods) == 0 {
				delete(k.workloads, name)
			}
		}
	}
}

// forget drops the Pods that have ended.
func (w *workload) forget() {
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p.over() })
}

// roll makes and ends Pods, by the rules of a rolling update or of Recreate.
func (k *Kubelet) roll(ctx context.Context, d *appsv1.Deployment, w *workload) {
	w.forget()
	hash := templateHash(d.Spec.Template)
	if w.hash != hash {
		w.hash, w.refused = hash, nil
	}
	var current, old []*pod
	ending := 0
	for _, p := range w.pods {
		switch {
		case p.ending():
			ending++
		case p.hash == hash:
			current = append(current, p)
		default:
			old = append(old, p)
		}
	}
	want := int(*d.Spec.Replicas)
	surge, unavailable := bounds(d.Spec.Strategy, want)
	most := want + surge
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		most, unavailable = want, want
		if len(old)+ending > 0 {
			most = 0
		}
	}
	for w.refused == nil && len(current) < want && len(current)+len(old) < most {
		p, err := k.newPod(ctx, d, hash)
		if err != nil {
			w.refused = err
			if !isNotUnderstood(err) {
				w.refused = nil
				time.AfterFunc(200*time.Millisecond, k.mark)
			}
			break
		}
		w.pods, current = append(w.pods, p), append(current, p)
	}
	for ; len(current) > want; current = current[:len(current)-1] {
		k.remove(ctx, current[len(current)-1])
	}
	ready := 0
	for _, p := range slices.Concat(current, old) {
		if p.ready() {
			ready++
		}
	}
	for _, p := range old {
		if !p.ready() {
			k.remove(ctx, p)
		} else if ready > want-unavailable {
			ready--
			k.remove(ctx, p)
		}
	}
}

// remove deletes a Pod as the controller does; the kubelet's part follows from that.
func (k *Kubelet) remove(ctx context.Context, p *pod) {
	if p.ending() {
		return
	}
	at := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.object.UID))}
	if err := k.client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, at); err != nil && !apierrors.IsNotFound(err) {
		time.AfterFunc(200*time.Millisecond, k.mark)
		return
	}
	p.end()
}

// bounds are how many Pods more or fewer than wanted there may be during an update.
func bounds(strategy appsv1.DeploymentStrategy, want int) (surge, unavailable int) {
	more, fewer := intstr.FromString("25%"), intstr.FromString("25%")
	if r := strategy.RollingUpdate; r != nil {
		more, fewer = *r.MaxSurge, *r.MaxUnavailable // the API server sets defaults
	}
	surge, _ = intstr.GetScaledValueFromIntOrPercent(&more, want, true)
	unavailable, _ = intstr.GetScaledValueFromIntOrPercent(&fewer, want, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

func templateHash(template corev1.PodTemplateSpec) string {
	raw, err := json.Marshal(template)
	if err != nil {
		panic(err) // it came from JSON
	}
	sum := sha256.Sum256(raw)
	return utilrand.SafeEncodeString(hex.EncodeToString(sum[:5]))
}

// newPod makes a Pod object and starts what it says. A template that is not understood is
// refused before.
func (k *Kubelet) newPod(ctx context.Context, d *appsv1.Deployment, hash string) (*pod, error) {
	yes := true
	template := d.Spec.Template.DeepCopy()
	object := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	object.Namespace = d.Namespace
	object.Name = d.Name + "-" + hash + "-" + utilrand.String(5)
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	object.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	// There are no ReplicaSets here: the Deployment itself controls its Pods.
	object.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: &yes,
	}}
	object.Spec.NodeName = k.options.Node
	refuse := func(err error) error {
		err = fmt.Errorf("run Deployment %s/%s: %w", d.Namespace, d.Name, err)
		k.note(err)
		return err
	}
	if err := understand(&template.Spec); err != nil {
		return nil, refuse(err)
	}
	made, err := k.client.CoreV1().
		Pods(d.Namespace).
		Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, err
	}
	return k.launch(ctx, made, hash), nil
}

// launch runs a Pod that is on this node until it has ended.
func (k *Kubelet) launch(ctx context.Context, made *corev1.Pod, hash string) *pod {
	p := &pod{
		kubelet: k, object: made, hash: hash, address: k.nextAddress(),
		stop: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	k.mu.Lock()
	k.pods[types.NamespacedName{Namespace: made.Namespace, Name: made.Name}] = p
	k.mu.Unlock()
	go func() { // whoever ends it waits for done
		defer func() {
			k.mu.Lock()
			delete(k.pods, types.NamespacedName{Namespace: made.Namespace, Name: made.Name})
			k.mu.Unlock()
			close(p.done)
			k.mark()
		}()
		p.run(ctx)
	}()
	return p
}

// tell writes the Deployment's status if it is another one.
func (k *Kubelet) tell(ctx context.Context, d *appsv1.Deployment, w *workload) error {
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	for _, p := range w.pods {
		if p.ending() {
			continue
		}
		status.Replicas++
		if p.ready() {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
		if p.hash == w.hash {
			status.UpdatedReplicas++
		}
	}
	want := *d.Spec.Replicas
	status.UnavailableReplicas = max(0, want-status.AvailableReplicas)
	_, unavailable := bounds(d.Spec.Strategy, int(want))
	available := condition(appsv1.DeploymentAvailable, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	if int(status.AvailableReplicas) >= int(want)-unavailable {
		available = condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability.")
		available.Status = corev1.ConditionTrue
	}
	progressing := condition(appsv1.DeploymentProgressing, "ReplicaSetUpdated", "Pods are progressing.")
	progressing.Status = corev1.ConditionTrue
	if status.UpdatedReplicas == want && status.AvailableReplicas == want && status.Replicas == want {
		progressing.Reason, progressing.Message = "NewReplicaSetAvailable", "All Pods are available."
	}
	if w.refused != nil { // what waits for a rollout knows this reason and gives up
		progressing = condition(appsv1.DeploymentProgressing, "ProgressDeadlineExceeded", w.refused.Error())
	}
	status.Conditions = []appsv1.DeploymentCondition{available, progressing}
	keepTimes(status.Conditions, d.Status.Conditions)
	if equality.Semantic.DeepEqual(status, d.Status) {
		return nil
	}
	updated := d.DeepCopy()
	updated.Status = status
	_, err := k.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return err
}

func condition(kind appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return appsv1.DeploymentCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now,
	}
}

// keepTimes takes over when a condition became what it is.
func keepTimes(now, before []appsv1.DeploymentCondition) {
	for i := range now {
		for _, was := range before {
			if was.Type == now[i].Type && was.Status == now[i].Status {
				now[i].LastTransitionTime = was.LastTransitionTime
				if was.Reason == now[i].Reason && was.Message == now[i].Message {
					now[i].LastUpdateTime = was.LastUpdateTime
				}
			}
		}
	}
}

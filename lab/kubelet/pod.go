package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/process"
)

// pod is a Pod and the process of its container. One goroutine runs it; the methods may be
// called from any.
type pod struct {
	kubelet *Kubelet
	object  *corev1.Pod // as the API server made it
	hash    string
	address netip.Addr

	stop     chan struct{} // closed when it shall end
	stopOnce sync.Once
	done     chan struct{} // closed when it has
	changed  chan struct{} // a Secret or ConfigMap has

	mu        sync.Mutex
	isReady   bool
	sandbox   *sandbox
	container corev1.ContainerStatus
	logs      []string // of each start, the last one last
	running   *process.Process
	told      corev1.PodStatus

	tokens map[string]token // the goroutine's own
}

func (p *pod) end() { p.stopOnce.Do(func() { close(p.stop) }) }

func (p *pod) ending() bool { return closed(p.stop) }

func (p *pod) over() bool { return closed(p.done) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *pod) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isReady
}

// look has the Pod look at its volumes again.
func (p *pod) look() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *pod) spec() *corev1.Container { return &p.object.Spec.Containers[0] }

func (p *pod) dir() string {
	return filepath.Join(p.kubelet.options.Dir, p.object.Namespace+"_"+p.object.Name)
}

// run starts the container, again and again when it ends unless it is to run once, until the Pod shall
// end, and then takes the object away.
func (p *pod) run(ctx context.Context) {
	p.container = corev1.ContainerStatus{
		Name: p.spec().Name, Image: p.spec().Image, ImageID: p.spec().Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}
	p.tokens = map[string]token{}
	p.tell(ctx)
	if p.prepare(ctx) {
		backoff := p.kubelet.options.Backoff
		for !p.ending() {
			began := time.Now()
			p.live(ctx)
			if p.ending() {
				break
			}
			if p.object.Spec.RestartPolicy == corev1.RestartPolicyNever { // its log and its status stay until it is deleted
				p.tell(ctx)
				<-p.stop
				break
			}
			if time.Since(began) > 20*p.kubelet.options.Backoff {
				backoff = p.kubelet.options.Backoff
			}
			p.mu.Lock()
			p.container.LastTerminationState = p.container.State
			p.container.RestartCount++
			p.container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container=%s", backoff, p.spec().Name),
			}}
			p.mu.Unlock()
			p.tell(ctx)
			p.pause(ctx, backoff)
			backoff = min(2*backoff, 10*p.kubelet.options.Backoff)
		}
	}
	p.finish(ctx)
}

// prepare makes the Pod's surroundings, and waits for what they need; false: the Pod ends before.
func (p *pod) prepare(ctx context.Context) bool {
	for {
		err := p.surround(ctx)
		if err == nil {
			return true
		}
		if isNotUnderstood(err) {
			p.kubelet.note(fmt.Errorf("run Pod %s/%s: %w", p.object.Namespace, p.object.Name, err))
		}
		p.waiting(ctx, err)
		select {
		case <-p.stop:
			return false
		case <-p.changed:
		case <-time.After(time.Second): // a token that was refused is told by no event
		}
	}
}

func (p *pod) waiting(ctx context.Context, err error) {
	p.mu.Lock()
	p.container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: err.Error()}
	p.mu.Unlock()
	p.tell(ctx)
}

// pause waits for the next start, during which the volumes are kept up to date.
func (p *pod) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-p.stop:
			return
		case <-p.changed:
			p.refresh(ctx)
		}
	}
}

// live is one life of the container: it returns when the process has ended.
func (p *pod) live(ctx context.Context) {
	log := filepath.Join(p.dir(), fmt.Sprintf("%d.log", p.container.RestartCount))
	began := metav1.Now()
	running, err := p.sandbox.start(p, log)
	if err != nil {
		p.died(log, began, 128, "StartError", err.Error())
		return
	}
	yes := true
	p.mu.Lock()
	p.running = running
	p.logs = append(p.logs, log)
	p.container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
	p.container.Started = &yes
	p.container.ContainerID = fmt.Sprintf("process://%d", running.PID())
	p.mu.Unlock()
	p.tell(ctx)

	probing, cancel := context.WithCancel(ctx)
	probes := p.probe(probing)
	defer func() {
		cancel()
		probes.Wait()
		p.setReady(context.WithoutCancel(ctx), false)
	}()
	renew := time.NewTicker(30 * time.Second)
	defer renew.Stop()
	for {
		select {
		case <-running.Done():
			p.ended(log, began, running)
			return
		case <-p.stop:
			p.setReady(ctx, false)
			p.quit(running)
			p.ended(log, began, running)
			return
		case <-p.changed:
			p.refresh(ctx)
		case <-renew.C:
			p.refresh(ctx)
		}
	}
}

// quit ends the process as a kubelet does: the hook, SIGTERM, and after the grace SIGKILL.
func (p *pod) quit(running *process.Process) {
	grace := 30 * time.Second
	if s := p.object.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	begun := time.Now()
	if l := p.spec().Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		select {
		case <-time.After(time.Duration(l.PreStop.Sleep.Seconds) * time.Second):
		case <-running.Done():
		}
	}
	_ = running.Stop(max(grace-time.Since(begun), time.Second)) // how it ended is told in the status
}

// ended notes how the process ended.
func (p *pod) ended(log string, began metav1.Time, running *process.Process) {
	code, reason := running.ExitCode(), "Completed"
	if code != 0 {
		reason = "Error"
	}
	message := ""
	if p.spec().TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && code != 0 {
		message = lastWords(log)
	}
	p.died(log, began, code, reason, message)
}

func (p *pod) died(log string, began metav1.Time, code int, reason, message string) {
	no := false
	p.mu.Lock()
	defer p.mu.Unlock()
	terminated := &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, StartedAt: began, FinishedAt: metav1.Now(),
		ContainerID: p.container.ContainerID,
	}
	if code > 128 && reason == "Error" {
		terminated.Signal = int32(code - 128)
	}
	p.running = nil
	p.container.State, p.container.Started = corev1.ContainerState{Terminated: terminated}, &no
	if code == 66 { // the race detector's
		p.kubelet.note(fmt.Errorf("a data race in Pod %s/%s: see %s", p.object.Namespace, p.object.Name, log))
	}
}

// finish takes the object and all that is local away.
func (p *pod) finish(ctx context.Context) {
	if ctx.Err() == nil {
		p.tell(ctx)
		at := metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.object.UID)),
		}
		err := p.kubelet.client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, at)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			p.kubelet.note(fmt.Errorf("delete Pod %s/%s: %w", p.object.Namespace, p.object.Name, err))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sandbox != nil {
		if err := p.sandbox.close(); err != nil {
			p.kubelet.note(fmt.Errorf("take away what Pod %s/%s ran in: %w", p.object.Namespace, p.object.Name, err))
		}
	}
}

func (p *pod) setReady(ctx context.Context, ready bool) {
	p.mu.Lock()
	changed := p.isReady != ready
	p.isReady, p.container.Ready = ready, ready
	p.mu.Unlock()
	if changed {
		p.tell(ctx)
		p.kubelet.mark()
	}
}

// tell writes the Pod's status if it is another one.
func (p *pod) tell(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status()
	if equality.Semantic.DeepEqual(status, p.told) || ctx.Err() != nil {
		return
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": status})
	if err == nil {
		_, err = p.kubelet.client.CoreV1().
			Pods(p.object.Namespace).
			Patch(ctx, p.object.Name, types.MergePatchType, raw, metav1.PatchOptions{}, "status")
	}
	if err == nil {
		p.told = status
	} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !errors.Is(err, context.Canceled) {
		time.AfterFunc(200*time.Millisecond, p.look) // the API server may be away
	}
}

// status needs mu.
func (p *pod) status() corev1.PodStatus {
	address := p.address.String()
	s := corev1.PodStatus{
		Phase: corev1.PodPending, StartTime: &p.object.CreationTimestamp, HostIP: p.kubelet.options.Address.String(),
		HostIPs: []corev1.HostIP{{IP: p.kubelet.options.Address.String()}},
		PodIP:   address, PodIPs: []corev1.PodIP{{IP: address}},
		ContainerStatuses: []corev1.ContainerStatus{*p.container.DeepCopy()},
	}
	if p.container.State.Waiting == nil || p.container.RestartCount > 0 {
		s.Phase = corev1.PodRunning
	}
	if t := p.container.State.Terminated; t != nil && p.object.Spec.RestartPolicy == corev1.RestartPolicyNever {
		s.Phase = corev1.PodSucceeded
		if t.ExitCode != 0 {
			s.Phase = corev1.PodFailed
		}
	}
	conditions := []struct {
		kind corev1.PodConditionType
		is   bool
	}{{corev1.PodScheduled, true}, {corev1.PodInitialized, true}, {corev1.ContainersReady, p.isReady}, {corev1.PodReady, p.isReady}}
	for _, c := range conditions {
		condition := corev1.PodCondition{
			Type:               c.kind,
			Status:             corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
		}
		if !c.is {
			condition.Status, condition.Reason = corev1.ConditionFalse, "ContainersNotReady"
			condition.Message = "containers with unready status: [" + p.container.Name + "]"
		}
		for _, before := range p.told.Conditions {
			if before.Type == c.kind && before.Status == condition.Status {
				condition.LastTransitionTime = before.LastTransitionTime
			}
		}
		s.Conditions = append(s.Conditions, condition)
	}
	return s
}

// snapshot is for who asks from outside: the log of each start, the process if it runs.
func (p *pod) snapshot() (logs []string, running *process.Process, sandbox *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.logs...), p.running, p.sandbox
}

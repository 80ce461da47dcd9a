// Package kubelet stands in for the workload controller, the scheduler and one node with its kubelet: what the
// Deployments of a control plane say, and Pods that run once, runs as real local processes. It promises that a process
// sees what a container of that Pod template would see, and nothing else: its file system with
// its volumes, kept up to date, a network and a host name of its own, its user, its environment
// and its service account's token; and that status, logs, exec and port-forward tell the truth
// to kubectl and helm. It refuses a template that says anything it does not understand, so that
// nothing passes by being ignored; it knows no images (a program stands for each), no limits
// and no scheduling. It needs no root; with root, lab/node runs real ones.
//
//	k, err := kubelet.Start(ctx, kubelet.Options{
//		ControlPlane: plane, Address: addr, Pods: netip.MustParsePrefix("10.244.1.0/24"),
//		Images: map[string]string{"ghcr.io/slicefeed/slicefeed-writer": ".bin/race/slicefeed-writer"},
//	})
//	defer k.Stop()
//	// helm install, kubectl rollout status, kubectl logs, kubectl exec, kubectl port-forward …
//
// The control plane must have been started with Options.Accounts, since it is the API server
// that gives each Pod the volume with its token. Everything runs in the program's namespaces,
// see lab/netns.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
)

// Options describe a kubelet. ControlPlane, Address, Pods and Images are mandatory.
type Options struct {
	ControlPlane *controlplane.ControlPlane
	Node         string       // name of the Node; default: that of the control plane and -node
	Address      netip.Addr   // of the Node, made one of this machine's: its API listens there
	Pods         netip.Prefix // where Pods get their addresses from, none of them twice
	// Images are the programs that stand for images, by repository, with or without a tag. One
	// is at the root of its image, under its own name, and is its entrypoint.
	Images map[string]string
	Hosts  map[string]netip.Addr // what DNS would know; goes to /etc/hosts of each Pod
	Env    []string              // for each process, beside what its Pod says, such as GORACE
	Dir    string                // for volumes and logs; empty: a temporary one, removed by Stop

	// Backoff is how long a container that has ended waits for its first restart; it doubles,
	// up to ten times that. Default: 500 ms, where a kubelet has 10 s.
	Backoff time.Duration
}

// Kubelet is a running stand-in. Its methods may be called from any goroutine.
type Kubelet struct {
	options Options
	ownDir  bool
	client  *kubernetes.Clientset
	server  *http.Server
	serving chan struct{} // closed when the server has ended

	deployments appslisters.DeploymentLister
	secrets     corelisters.SecretLister
	configs     corelisters.ConfigMapLister
	loose       corelisters.PodLister // all Pods: some belong to no Deployment

	dirty  chan struct{}
	cancel context.CancelFunc
	done   chan struct{} // closed when the loop has ended

	workloads map[types.NamespacedName]*workload // the loop's own
	refused   map[types.UID]bool                 // Pods that are not understood; the loop's own
	last      netip.Addr                         // the last address that was given to a Pod; the loop's own

	mu   sync.Mutex
	pods map[types.NamespacedName]*pod
	errs []error // what was refused; Stop tells it
}

// Start makes the Node, follows all Deployments and returns. It ends with Stop.
func Start(ctx context.Context, options Options) (*Kubelet, error) {
	k := &Kubelet{
		options: options, dirty: make(chan struct{}, 1), done: make(chan struct{}), serving: make(chan struct{}),
		workloads: map[types.NamespacedName]*workload{}, pods: map[types.NamespacedName]*pod{}, refused: map[types.UID]bool{},
		last: options.Pods.Masked().Addr(),
	}
	if err := k.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the kubelet of %s: %w", options.ControlPlane.Name(), err), k.Stop())
	}
	return k, nil
}

func (k *Kubelet) start(ctx context.Context) (err error) {
	if k.options.Node == "" {
		k.options.Node = k.options.ControlPlane.Name() + "-node"
	}
	if k.options.Backoff == 0 {
		k.options.Backoff = 500 * time.Millisecond
	}
	for image, program := range k.options.Images {
		if k.options.Images[image], err = filepath.Abs(program); err != nil {
			return err
		}
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("the program for image %s: %w", image, err)
		}
	}
	if k.options.Dir == "" {
		if k.options.Dir, err = os.MkdirTemp("", "slicefeed-kubelet-"); err != nil {
			return err
		}
		k.ownDir = true
	}
	if k.client, err = kubernetes.NewForConfig(k.options.ControlPlane.AdminConfig()); err != nil {
		return err
	}
	if err := netns.AddAddr(k.options.Address); err != nil {
		return err
	}
	if err := k.serve(); err != nil {
		return err
	}
	if err := k.register(ctx); err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := k.follow(ctx, running); err != nil {
		cancel()
		return err
	}
	k.cancel = cancel // from here on Stop has a loop to wait for
	go func() {       // Stop waits for it
		defer close(k.done)
		k.run(running)
	}()
	k.mark()
	return nil
}

// follow has the caches filled and every change of them noticed.
func (k *Kubelet) follow(ctx, running context.Context) error {
	factory := informers.NewSharedInformerFactory(k.client, 0)
	k.deployments = factory.Apps().V1().Deployments().Lister()
	k.secrets = factory.Core().V1().Secrets().Lister()
	k.configs = factory.Core().V1().ConfigMaps().Lister()
	k.loose = factory.Core().V1().Pods().Lister()
	var synced []cache.InformerSynced
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		factory.Apps().V1().Deployments().Informer(): onAny[*appsv1.Deployment](func(*appsv1.Deployment) { k.mark() }),
		factory.Core().V1().Namespaces().Informer():  onAny[*corev1.Namespace](func(*corev1.Namespace) { k.mark() }),
		factory.Core().V1().Secrets().Informer():     onAny[*corev1.Secret](func(*corev1.Secret) { k.refresh() }),
		factory.Core().V1().ConfigMaps().Informer():  onAny[*corev1.ConfigMap](func(*corev1.ConfigMap) { k.refresh() }),
		factory.Core().V1().Pods().Informer(): cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) {
				if runsOnce(object.(*corev1.Pod)) {
					k.mark()
				}
			},
			UpdateFunc: func(_, object any) { k.podChanged(object, false) },
			DeleteFunc: func(object any) { k.podChanged(object, true) },
		},
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	factory.Start(running.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("fill the caches: %w", context.Cause(ctx))
	}
	return nil
}

func onAny[T any](do func(T)) cache.ResourceEventHandler {
	tell := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		do(object.(T))
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) }, DeleteFunc: tell,
	}
}

// mark has the loop look at all Deployments again.
func (k *Kubelet) mark() {
	select {
	case k.dirty <- struct{}{}:
	default:
	}
}

// refresh has every Pod look at its volumes again.
func (k *Kubelet) refresh() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		p.look()
	}
}

// podChanged ends a Pod that somebody has deleted.
func (k *Kubelet) podChanged(object any, gone bool) {
	if final, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = final.Obj
	}
	changed := object.(*corev1.Pod)
	if !gone && changed.DeletionTimestamp == nil {
		return
	}
	if p := k.pod(changed.Namespace, changed.Name); p != nil && p.object.UID == changed.UID {
		p.end()
	}
}

func (k *Kubelet) pod(namespace, name string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[types.NamespacedName{Namespace: namespace, Name: name}]
}

func (k *Kubelet) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			k.mu.Lock()
			var all []*pod
			for _, p := range k.pods {
				all = append(all, p)
			}
			k.mu.Unlock()
			for _, p := range all {
				p.end()
			}
			for _, p := range all {
				<-p.done
			}
			return
		case <-k.dirty:
			k.sync(ctx)
			k.schedule(ctx)
		}
	}
}

// note keeps an error for Stop; a test must not pass by what was not run.
func (k *Kubelet) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

// Stop ends all processes in order (SIGTERM, and SIGKILL after their grace) and returns what was
// refused meanwhile. The objects in the control plane stay as they are. It is safe to call it twice.
func (k *Kubelet) Stop() error {
	if k.cancel != nil {
		k.cancel()
		<-k.done
	}
	if k.server != nil {
		_ = k.server.Close()
		<-k.serving
	}
	k.mu.Lock()
	err := errors.Join(k.errs...)
	k.errs = nil
	k.mu.Unlock()
	if k.ownDir {
		err = errors.Join(err, os.RemoveAll(k.options.Dir))
	}
	return err
}

package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/workqueue"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// cluster is a Reconciler of a fake cluster, with a source that is never synced.
type cluster struct {
	*Reconciler

	watched  *targets.Watcher
	client   kubernetes.Interface
	registry *prometheus.Registry
}

func newCluster(t *testing.T, lease Lease, objects ...runtime.Object) *cluster {
	t.Helper()
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	client := fake.NewClientset(objects...)
	watched, err := targets.New(client, nil, targets.Config{
		Class: "default", Writer: "web", Namespaces: []string{"web"},
		Defaults: targets.Settings{Probe: probe.Spec{Mode: probe.Off}, ListUnready: true},
		Sources:  []sources.Source{{Name: "default", Ports: []sources.PortRange{{First: 1, Last: 65535}}}},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	reporter := events.NewReporter(events.Config{Logger: log})
	hooks := report.NewHooks(registry, reporter, nil)
	board := endpoints.NewStore("epoch")
	registry.MustRegister(report.Metrics{Store: board})
	return &cluster{New(Config{
		Sources: []Source{{Name: "default", Feeds: silentFeeds{}}},
		Targets: watched, Prober: probe.NewProber(log, registry), Lease: lease,
		Endpoints: board, Reporter: reporter, Logger: log, Registerer: registry,
		Applier: func() *applier.Applier {
			leading := func() bool { return !lease.LeadingSince().IsZero() }
			return applier.New(
				applier.Config{Store: applier.Kubernetes(client, targets.FieldManager), Leading: leading, Hooks: hooks, Logger: log},
			)
		},
	}, nil, nil), watched, client, registry}
}

// start runs the Reconciler until the test ends, and returns once nothing more happens. Its end removes nothing that
// is published.
func (c *cluster) start(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return c.watched.Run(ctx) })
	decisions, writes := workqueue.NewTypedDelayingQueue[targets.Key](), workqueue.NewTypedDelayingQueue[targets.Key]()
	c.decisions, c.writes = decisions, writes
	group.Go(func() error { c.run(ctx, decisions, writes); return nil })
	t.Cleanup(func() {
		before := c.published()
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		if after := c.published(); !slices.Equal(after, before) {
			t.Errorf("when the writer stopped, %v were published, and then %v", before, after)
		}
	})
	time.Sleep(time.Second) // informers check ten times a second whether they have synced
	synctest.Wait()
}

// published returns the names of the targets on the board.
func (c *cluster) published() (names []string) {
	all, _ := c.Endpoints.Views(nil)
	for _, one := range all {
		names = append(names, one.Service)
	}
	return names
}

func service(name, class string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web",
			Name:      name,
			UID:       types.UID(name),
			Labels:    map[string]string{targets.LabelClass: class},
		},
		Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// put updates a Service and waits until nothing more happens.
func (c *cluster) put(t *testing.T, svc *corev1.Service) {
	t.Helper()
	if _, err := c.client.CoreV1().Services("web").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestEachServiceIsDecidedWhileItIsATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(
			t,
			&fakeLease{since: time.Now()},
			service("blue", "default"),
			service("red", "default"),
			service("other", "elsewhere"),
		)
		if _, status := c.Endpoints.Views(nil); status.Synced {
			t.Error("the board is synced before anything was read")
		}
		c.start(t)
		if _, status := c.Endpoints.Views(nil); !status.Synced {
			t.Error("the board is not synced though there was a decision about each target")
		}
		for _, step := range []struct {
			name string
			svc  *corev1.Service
			want []string
		}{
			{"as at the start", service("other", "elsewhere"), []string{"blue", "red"}},
			{"one opts in", service("other", "default"), []string{"blue", "other", "red"}},
			{"one opts out", service("blue", "elsewhere"), []string{"other", "red"}},
			{"and in again", service("blue", "default"), []string{"blue", "other", "red"}},
		} {
			c.put(t, step.svc)
			if got := c.published(); !slices.Equal(got, step.want) || len(c.states) != len(step.want) {
				t.Errorf("%s: %v are published and %d known, want %v", step.name, got, len(c.states), step.want)
			}
		}
	})
}

func TestBoardIsSyncedWithoutAnyTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, &fakeLease{since: time.Now()})
		c.start(t)
		if _, status := c.Endpoints.Views(nil); !status.Synced {
			t.Error("the board is not synced")
		}
	})
}

// releasable is a Lease that ends when it is released.
type releasable struct {
	fakeLease

	over                 atomic.Bool
	released, handedOver atomic.Int32
}

func (l *releasable) LeadingSince() time.Time {
	if l.over.Load() {
		return time.Time{}
	}
	return l.since
}

func (l *releasable) Release() func() {
	l.over.Store(true)
	l.released.Add(1)
	return func() { l.handedOver.Add(1) }
}

// hangingStore is a store whose deletes hang until the test ends that.
type hangingStore struct {
	applier.Store

	deletes atomic.Int32
	respond chan struct{}
}

func (s *hangingStore) Delete(context.Context, *discoveryv1.EndpointSlice) error {
	s.deletes.Add(1)
	<-s.respond
	return nil
}

// hang has the deletes of a cluster hang.
func (c *cluster) hang() *hangingStore {
	store := &hangingStore{Store: applier.Kubernetes(c.client, targets.FieldManager), respond: make(chan struct{})}
	hooks := report.NewHooks(prometheus.NewRegistry(), c.Reporter, nil)
	c.Applier = func() *applier.Applier {
		leading := func() bool { return !c.Lease.LeadingSince().IsZero() }
		return applier.New(applier.Config{Store: store, Leading: leading, Hooks: hooks, Logger: c.Logger})
	}
	return store
}

func TestDecisionsGoOnDuringAWriteAndTheLeaseIsHandedOverAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &releasable{fakeLease: fakeLease{since: time.Now()}}
		left := service("left", "none")
		c := newCluster(
			t,
			lease,
			left,
			ownedSlice(left, "left-slicefeed"),
			ownedSlice(left, "left-slicefeed-2"),
			service("blue", "elsewhere"),
		)
		store := c.hang()
		c.start(t)
		if n := store.deletes.Load(); n != 1 {
			t.Fatalf("%d deletes in progress, want 1", n)
		}
		key, fails := targets.Key{Name: "blind"}, verdict.Decision{Panic: true, NonePassingSince: time.Now()}
		c.stepDown.update(key, fails, lease, time.Now())
		time.Sleep(nonePassingFor)
		c.stepDown.update(key, fails, lease, time.Now())
		c.put(t, service("blue", "default"))
		if got, want := c.published(), []string{"blue"}; !slices.Equal(got, want) {
			t.Errorf("during a request %v are published, want %v", got, want)
		}
		if released, handedOver := lease.released.Load(), lease.handedOver.Load(); released != 1 || handedOver != 0 {
			t.Errorf("during a request: released %d times and handed over %d times, want 1 and 0", released, handedOver)
		}
		close(store.respond)
		synctest.Wait()
		if deletes, handedOver := store.deletes.Load(), lease.handedOver.Load(); deletes != 1 || handedOver != 1 {
			t.Errorf("after its response: %d deletes and handed over %d times, want 1 and 1", deletes, handedOver)
		}
	})
}

func TestLimitsServicesThatAreWrittenAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range maxWrites + 10 {
			svc := service(fmt.Sprintf("left-%d", i), "none")
			objects = append(objects, svc, ownedSlice(svc, svc.Name+"-slicefeed"))
		}
		c := newCluster(t, &fakeLease{since: time.Now()}, objects...)
		store := c.hang()
		c.start(t)
		if n := store.deletes.Load(); n != maxWrites {
			t.Errorf("%d writes in progress, want %d", n, maxWrites)
		}
		close(store.respond)
		synctest.Wait()
		if n := store.deletes.Load(); n != maxWrites+10 {
			t.Errorf("%d writes, want %d", n, maxWrites+10)
		}
	})
}

func TestWritesThatWaitDoNotStartAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedDelayingQueue[targets.Key]()
		ctx, stop := context.WithCancel(t.Context())
		queue.Add(targets.Key{Name: "a"})
		queue.Add(targets.Key{Name: "b"})
		processed := 0
		go func() {
			time.Sleep(time.Second)
			queue.ShutDown()
		}()
		work(ctx, queue, func(targets.Key) { processed++; stop() })
		if processed != 1 {
			t.Errorf("%d keys were processed, want 1", processed)
		}
	})
}

// ownedSlice is a slice of the default class.
func ownedSlice(svc *corev1.Service, name string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       svc.Namespace,
			Name:            name,
			UID:             types.UID(name),
			ResourceVersion: "1",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: svc.Name,
				discoveryv1.LabelManagedBy:   "slicefeed-default",
				targets.LabelWriter:          "web",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
}

func TestGuardThatActsAgainIsReportedThoughItEndedWhileAnotherReplicaLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, plain := &fakeLease{since: time.Now()}, service("blue", "default")
		halted := plain.DeepCopy()
		halted.Annotations = map[string]string{"slicefeed.dev/paused": "true"}
		c := newCluster(t, lease, plain)
		reported := &recordedEvents{Handler: slog.DiscardHandler}
		c.Reporter = events.NewReporter(events.Config{Logger: slog.New(reported)})
		c.start(t)
		for _, step := range []struct {
			name  string
			since time.Time // when this replica took the Lease
			svc   *corev1.Service
			want  int // Events so far
		}{
			{"the episode begins", lease.since, halted, 1},
			{"another replica leads when it ends", time.Time{}, plain, 1},
			{"and when it begins again", time.Time{}, halted, 1},
		} {
			lease.since = step.since
			c.put(t, step.svc)
			if all := reported.take(); len(all) != step.want {
				t.Errorf("%s: %d Events, want %d", step.name, len(all), step.want)
			}
		}
		lease.since = time.Now()
		halted = halted.DeepCopy()
		halted.Annotations["example.org/a"] = "any change"
		c.put(t, halted)
		if all := reported.take(); len(all) != 2 {
			t.Errorf("this replica leads again during the second episode: %d Events, want 2", len(all))
		}
	})
}

// signalingLease is a Lease that signals changes.
type signalingLease struct {
	fakeLease

	changed chan struct{}
}

func (l *signalingLease) Changed() <-chan struct{} { return l.changed }

// signalingFeeds are of a source that signals changes.
type signalingFeeds struct {
	silentFeeds

	changed chan struct{}
	targets []string
}

func (f signalingFeeds) Changed() <-chan struct{} { return f.changed }

func (f signalingFeeds) TakeChanged() map[string]struct{} {
	changed := map[string]struct{}{}
	for _, target := range f.targets {
		changed[target] = struct{}{}
	}
	return changed
}

// keyQueue is a queue that only records what is added.
type keyQueue struct {
	workQueue

	names []string
}

func (q *keyQueue) Add(key targets.Key) { q.names = append(q.names, key.Name) }

func TestAChangeDecidesTheTargetsThatDependOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blue, green, lease := make(chan struct{}), make(chan struct{}), make(chan struct{})
		c := newCluster(t, &signalingLease{changed: lease})
		c.sources = map[string]Source{
			"blue":  {Name: "blue", Feeds: signalingFeeds{changed: blue, targets: []string{"web/api", "web/both"}}},
			"green": {Name: "green", Feeds: signalingFeeds{changed: green, targets: []string{"web/both"}}},
		}
		for _, name := range []string{"api", "both", "rejected"} {
			c.state(targets.Key{Namespace: "web", Name: name})
		}
		decisions := &keyQueue{workQueue: workqueue.NewTypedDelayingQueue[targets.Key]()}
		c.decisions = decisions
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.run(ctx, decisions, workqueue.NewTypedDelayingQueue[targets.Key]())
		for _, step := range []struct {
			name    string
			changed chan struct{}
			want    []string
		}{
			{"a source that two targets use", blue, []string{"api", "both"}},
			{"a source that one target uses", green, []string{"both"}},
			{"the Lease was taken", lease, []string{"api", "both", "rejected"}},
		} {
			step.changed <- struct{}{}
			synctest.Wait()
			slices.Sort(decisions.names)
			if !slices.Equal(decisions.names, step.want) {
				t.Errorf("%s: decisions about %v, want %v", step.name, decisions.names, step.want)
			}
			decisions.names = nil
		}
	})
}

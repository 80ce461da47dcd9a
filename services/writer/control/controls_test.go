package control

import (
	"context"
	"errors"
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
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// office is controls with a consuming cluster that is a fake, and with a source that is never heard.
type office struct {
	*Controls

	followed *targets.Targets
	client   kubernetes.Interface
	registry *prometheus.Registry
}

func newOffice(t *testing.T, lead Lease, objects ...kuberuntime.Object) *office {
	t.Helper()
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	client := fake.NewClientset(objects...)
	followed, err := targets.New(targets.Config{
		Client: client, Class: "default", Writer: "web", Namespaces: []string{"web"},
		Defaults: targets.Settings{Probe: prober.Spec{Mode: prober.Off}, ListUnready: true},
		Sources:  []targets.Source{{Name: "default"}}, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	reporter, written := events.NewReporter(events.Config{Logger: log}), applier.NewMetrics(registry)
	return &office{New(Config{
		Sources: []Source{{
			Name: "default", Feed: subscriber.New(subscriber.Config{Source: "default", Log: log, Metrics: subscriber.NewMetrics(registry)}),
		}},
		Targets: followed, Prober: prober.New(prober.Config{Log: log, Registerer: registry}), Lease: lead,
		Board: endpoints.NewStore("life"), Reporter: reporter, Logger: log, Registerer: registry,
		Applier: func() *applier.Applier {
			return applier.New(applier.Config{Store: applier.Kubernetes(client), Leading: lead.Leading, Reporter: reporter, Logger: log, Metrics: written})
		},
	}), followed, client, registry}
}

// run runs the office until the test ends, and returns once nothing more happens. Its end takes
// nothing away from those who are told.
func (o *office) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	running, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{o.followed.Run, o.Run} {
		running.Go(func() error { return run(ctx) })
	}
	t.Cleanup(func() {
		reporter := o.listed()
		stop()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
		if left := o.listed(); !slices.Equal(left, reporter) {
			t.Errorf("when the writer stopped, %v were told, and then %v", reporter, left)
		}
	})
	time.Sleep(time.Second) // caches are looked at ten times a second until they are filled
	synctest.Wait()
}

// listed are the names of the targets that others are told of.
func (o *office) listed() (names []string) {
	all, _ := o.board.List(nil)
	for _, one := range all {
		names = append(names, one.Service)
	}
	return names
}

func service(name, class string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name), Labels: map[string]string{targets.LabelClass: class}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}}},
	}
}

func (o *office) put(t *testing.T, svc *corev1.Service) {
	t.Helper()
	if _, err := o.client.CoreV1().Services("web").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestEachServiceIsDecidedUponWhileItIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, &elected{}, service("blue", "default"), service("red", "default"), service("other", "elsewhere"))
		if _, status := o.board.List(nil); status.Synced {
			t.Error("the board speaks before anything was read")
		}
		o.run(t)
		if _, status := o.board.List(nil); !status.Synced {
			t.Error("the board does not speak though there was a decision on all")
		}
		for _, step := range []struct {
			what string
			svc  *corev1.Service
			want []string
		}{
			{"as at the start", service("other", "elsewhere"), []string{"blue", "red"}},
			{"one opts in", service("other", "default"), []string{"blue", "other", "red"}},
			{"one opts out", service("blue", "elsewhere"), []string{"other", "red"}},
			{"and in again", service("blue", "default"), []string{"blue", "other", "red"}},
		} {
			o.put(t, step.svc)
			if got := o.listed(); !slices.Equal(got, step.want) {
				t.Errorf("%s: %v, want %v", step.what, got, step.want)
			}
		}
	})
}

func TestDecidesAgainWhenAnInvolvedSourceReports(t *testing.T) {
	c := &control{}
	if !c.rests("blue") {
		t.Error("before the first decision any source may matter")
	}
	c.sourceNames.Store(&[]string{"blue"})
	if !c.rests("blue") || c.rests("green") {
		t.Error("it rests upon blue alone")
	}
}

// elected leads, and counts how often it stopped leading, and how often it handed the Lease over.
type elected struct{ released, handedOver int }

func (*elected) Leading() bool            { return true }
func (*elected) Term() int                { return 1 }
func (*elected) Changed() <-chan struct{} { return nil }
func (e *elected) Release() func() {
	e.released++
	return func() { e.handedOver++ }
}

// resigning leads until it is released.
type resigning struct {
	elected

	over atomic.Bool
}

func (r *resigning) Leading() bool { return !r.over.Load() }

func (r *resigning) Term() int {
	if r.Leading() {
		return 1
	}
	return 0
}

func (r *resigning) Release() func() {
	r.over.Store(true)
	return r.elected.Release()
}

// slowAPI is a store whose deletes are answered when the test says.
type slowAPI struct {
	applier.Store

	deletes atomic.Int32
	answer  chan struct{}
}

func (s *slowAPI) Delete(context.Context, *discoveryv1.EndpointSlice) error {
	s.deletes.Add(1)
	<-s.answer
	return nil
}

func TestEverythingIsFollowedWhileARequestIsUnderWayAndTheLeaseIsReleasedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lead := &resigning{}
		left := service("left", "none")
		o := newOffice(t, lead, left, ownedSlice(left, "left-slicefeed"), ownedSlice(left, "left-slicefeed-2"), service("blue", "elsewhere"))
		api := &slowAPI{answer: make(chan struct{})}
		o.applier = func() *applier.Applier {
			return applier.New(applier.Config{
				Store: api, Leading: lead.Leading, Reporter: o.reporter, Logger: o.log, Metrics: applier.NewMetrics(prometheus.NewRegistry()),
			})
		}
		o.run(t)
		if n := api.deletes.Load(); n != 1 {
			t.Fatalf("%d deletes under way, want 1", n)
		}
		o.onDecision(targets.Key{Name: "blind"}, verdict.Decision{Panic: true, NonePassingSince: time.Now()})
		time.Sleep(nonePassingFor)
		synctest.Wait()
		o.put(t, service("blue", "default"))
		if got, want := o.listed(), []string{"blue"}; !slices.Equal(got, want) {
			t.Errorf("while a request is under way the targets are %v, want %v", got, want)
		}
		if lead.released != 1 || lead.handedOver != 0 {
			t.Errorf("while a request is under way: released %d times and handed over %d times, want 1 and 0", lead.released, lead.handedOver)
		}
		close(api.answer)
		synctest.Wait()
		if n := api.deletes.Load(); n != 1 || lead.handedOver != 1 {
			t.Errorf("once it is answered: %d deletes and handed over %d times, want 1 and 1", n, lead.handedOver)
		}
	})
}

// ownedSlice is a slice of the default class.
func ownedSlice(svc *corev1.Service, name string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: name, UID: types.UID(name), ResourceVersion: "1",
			Labels:          map[string]string{discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: "slicefeed-default", planner.LabelWriter: "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
}

func TestTheLeaseIsGivenUpOnceBlindForLongEnough(t *testing.T) {
	lead, start := &elected{}, time.Now()
	o := newOffice(t, lead)
	o.maybeStepDown(start) // we lead from now on
	blind := start.Add(time.Minute)
	o.onDecision(targets.Key{Name: "blue"}, verdict.Decision{Panic: true, NonePassingSince: blind})
	if release, wake := o.maybeStepDown(blind); release != nil || !wake.Equal(blind.Add(nonePassingFor)) || lead.released != 0 {
		t.Fatalf("released %d times, to be asked again at %v", lead.released, wake)
	}
	if release, _ := o.maybeStepDown(blind.Add(nonePassingFor)); release == nil || lead.released != 1 || lead.handedOver != 0 {
		t.Errorf("released %d times and handed over %d times, want 1 and 0", lead.released, lead.handedOver)
	}
}

func TestWhatAProbeOfAnotherTargetSeesKeepsTheLease(t *testing.T) {
	lead := &elected{}
	o := newOffice(t, lead)
	start := time.Now()
	o.maybeStepDown(start)
	o.onDecision(targets.Key{Name: "blue"}, verdict.Decision{Panic: true, NonePassingSince: start.Add(time.Second)})
	o.onDecision(targets.Key{Name: "red"}, verdict.Decision{AnyPassing: true})
	o.maybeStepDown(start.Add(time.Hour))
	if lead.released != 0 {
		t.Error("it was given up though red's probes pass")
	}
	o.onDecision(targets.Key{Name: "red"}, verdict.Decision{}) // red is gone
	o.maybeStepDown(start.Add(2 * time.Hour))
	if lead.released != 1 {
		t.Error("it is kept though no probe passes")
	}
}

func TestNoMoreServicesAreWrittenAtATimeThanAnAPIServerTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, &elected{})
		ctx, stop := context.WithCancel(t.Context())
		var under atomic.Int32
		over := make(chan struct{})
		var all errgroup.Group
		for range maxWrites + 10 {
			all.Go(func() error {
				return o.control(targets.Key{}, o).write(ctx, func(context.Context) error {
					under.Add(1)
					<-over
					return nil
				})
			})
		}
		synctest.Wait()
		if n := under.Load(); n != maxWrites {
			t.Errorf("%d writes are under way", n)
		}
		stop() // those that wait do not begin any more
		synctest.Wait()
		close(over)
		if err := all.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("of those that waited: %v", err)
		}
		if n := under.Load(); n != maxWrites {
			t.Errorf("%d writes were begun", n)
		}
	})
}

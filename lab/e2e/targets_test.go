package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// grant gives the writers a view from the list of clients, and operators the whole.
func (s *stage) grant(view string) {
	s.t.Helper()
	s.write(s.Inventory.Dir()+"/clients.yaml", fmt.Sprintf(`clients:
- san: %s
  role: subscriber
  view: %s
- san: %s
  role: operator
`, pair.WriterSAN, view, pair.OperatorSAN))
}

func TestANewcomersServiceIsServedForItsLabelAndAsItsAnnotationsSay(t *testing.T) {
	f := enterFleet(t, script{})
	f.keep(f.Inventory.Dir() + "/clients.yaml")
	f.grant(`{labels: [pool]}`)
	f.start()
	blue, red := f.machine(
		pair.WorkerOptions{Labels: map[string]string{"pool": "blue"}},
	), f.machine(
		pair.WorkerOptions{Labels: map[string]string{"pool": "red"}},
	)
	f.must(blue.Join(f.ctx()))
	f.must(red.Join(f.ctx()))
	both := pair.AreJust(pair.Ready, blue.Address, red.Address)
	f.slices("both serve", both)

	cart := f.make(plain("cart"))
	f.step("without the label nothing happens, with it the Service is served", func(f *fleet) {
		f.must(f.told().Leave(f.ctx()))
		if !none(f.of(cart)) {
			f.t.Fatalf("it has slices: %s", pair.Describe(f.of(cart)))
		}
		f.slices("only the two are left", both)
		f.label(cart, "default")
		took := f.wait(cart, "both serve", both)
		f.t.Logf("served %s after the label", took)
		if took > 5*time.Second {
			f.t.Errorf("that took %s", took)
		}
		slice := f.of(cart)[0]
		want := map[string]string{
			discoveryv1.LabelServiceName: "cart",
			discoveryv1.LabelManagedBy:   "slicefeed-default",
			"slicefeed.dev/source":       "default",
			"slicefeed.dev/writer":       pair.Namespace,
		}
		if diff := cmp.Diff(want, slice.Labels); diff != "" {
			f.t.Errorf("the slice's labels (-want +got):\n%s", diff)
		}
		if got := slice.OwnerReferences; slice.Name != "cart-slicefeed" || len(got) != 1 || got[0].UID != cart.UID {
			f.t.Errorf("it is named %s and owned by %v", slice.Name, got)
		}
	})
	f.step("node-selector: only the blue one", func(f *fleet) {
		f.annotate(cart, "node-selector", "pool=blue")
		f.wait(cart, "the blue one serves alone", pair.AreJust(pair.Ready, blue.Address))
		f.annotate(cart, "node-selector", "")
		f.wait(cart, "both serve", both)
	})
	f.step("list-unready: one that is out is not listed", func(f *fleet) {
		f.annotate(cart, "list-unready", "false")
		f.must(red.Set(backend.Refuse))
		f.slices("it is out where nothing is said of it", pair.Are(pair.Out, red.Address))
		f.wait(cart, "it is not listed", pair.AreJust(pair.Ready, blue.Address))
	})
	f.step("probe: off, and it serves whatever it answers", func(f *fleet) {
		f.annotate(cart, "probe", "off")
		f.wait(cart, "both serve", both)
	})
	f.step("probe: http, and 500 is no pass", func(f *fleet) {
		f.must(red.Set(backend.Error))
		f.slices("it passes as tcp", both)
		f.annotate(cart, "probe", "http", "probe-path", "/healthz", "list-unready", "")
		f.wait(cart, "it does not pass as http", pair.Are(pair.Out, red.Address))
	})
	for _, wrong := range []struct{ name, value, takes string }{
		{"probe", "icmp", "tcp"},
		{"probe-port", "70000", "65535"},
		{"probe-interval", "often", "200ms"},
		{"node-selector", "pool in blue", "pool=blue"},
		{"list-unready", "no", "false"},
		{"prob", "off", "did you mean slicefeed.dev/probe?"},
	} {
		f.step("a mistake in "+wrong.name+" is told and changes nothing", func(f *fleet) {
			f.annotate(cart, wrong.name, wrong.value)
			f.t.Log(f.tells(cart, "InvalidAnnotation", "slicefeed.dev/"+wrong.name, wrong.takes).Note)
			third := f.told()
			f.wait(cart, "it goes on as before", func(all []*discoveryv1.EndpointSlice) bool {
				return pair.Are(pair.Ready, blue.Address, third.Address)(all) && pair.Are(pair.Out, red.Address)(all)
			})
			f.must(third.Leave(f.ctx()))
			back := ""
			if wrong.name == "probe" {
				back = "http"
			}
			f.annotate(cart, wrong.name, back)
			f.wait(cart, "the third is gone", pair.Are(pair.Absent, third.Address))
		})
	}
	f.must(red.Set(backend.Serve))
	f.wait(cart, "both serve", both)
	f.step("paused: nothing is written, and then all at once", func(f *fleet) {
		f.annotate(cart, "paused", "true")
		f.tells(cart, "Paused", "slicefeed.dev/paused")
		before := f.writesOf(cart)
		slice := f.of(cart)[0].DeepCopy()
		slice.Endpoints = nil // by hand, as somebody may at night
		_, err := f.ConsumingClient().DiscoveryV1().EndpointSlices(slice.Namespace).Update(f.ctx(), slice, metav1.UpdateOptions{})
		f.must(err)
		f.must(red.Leave(f.ctx()))
		third := f.told()
		f.slices("the other Service follows", pair.AreJust(pair.Ready, blue.Address, third.Address))
		if n := f.writesOf(cart) - before; n != 0 {
			f.t.Errorf("%d writes of a paused Service", n)
		}
		if got := pair.Describe(f.of(cart)); got != "no endpoints" {
			f.t.Errorf("what was done by hand is undone: %s", got)
		}
		f.annotate(cart, "paused", "")
		f.wait(cart, "all that happened meanwhile is written", pair.AreJust(pair.Ready, blue.Address, third.Address))
		if n := f.writesOf(cart) - before; n != 1 {
			f.t.Errorf("it took %d writes, want one", n)
		}
	})
}

func TestAShrinkWindowIsEachServicesOwn(t *testing.T) {
	f := enterFleet(t, script{writer: map[string]string{"SHRINK_WINDOW": "1h"}})
	quick := f.make(labelled("quick", annotated("shrink-window", "0s")))
	f.start()
	workers := f.join(3)
	f.wait(quick, "all serve", pair.AreJust(pair.Ready, addresses(workers)...))
	for _, w := range workers[1:] {
		f.must(w.Leave(f.ctx()))
	}
	f.wait(quick, "they leave the one at once", pair.AreJust(pair.Ready, workers[0].Address))
	f.tells(f.service, "ShrinkLimited", "1h0m0s")
	f.wait(f.service, "and stay in the other", pair.AreJust(pair.Ready, addresses(workers)...))
}

func TestOptingOutDeletesOurSlicesAndNothingElse(t *testing.T) {
	f := enterFleet(t, script{})
	cart := f.make(labelled("cart"))
	foreign := sliceOf("cart-of-somebody", "somebody", netip.MustParseAddr("10.0.1.250"))
	foreign.Labels[discoveryv1.LabelServiceName] = "cart"
	foreign = f.put(foreign)
	f.start()
	workers := f.join(2)
	served := func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 2 && pair.Are(pair.Ready, addresses(workers)...)(all)
	}
	alone := func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && all[0].Name == foreign.Name && all[0].ResourceVersion == foreign.ResourceVersion
	}
	f.wait(cart, "it is served", served)
	others := f.versions(f.service)
	if len(others) != 1 {
		t.Fatalf("the other Service's slices are %v", others)
	}

	for _, way := range []struct {
		name string
		out  func(*fleet)
	}{
		{"with class none", func(f *fleet) { f.label(cart, "none") }},
		{"with class none, while the writer is away", func(f *fleet) {
			f.must(f.writers[0].Terminate(patience))
			f.label(cart, "none")
			f.startWriters()
		}},
		{"without the label, while the writer is away: it asks whether that is meant", func(f *fleet) {
			f.must(f.writers[0].Terminate(patience))
			f.label(cart, "")
			f.startWriters()
			f.tells(cart, "OrphanedSlices", "cart-slicefeed", "slicefeed.dev/class")
			if !served(f.of(cart)) {
				f.t.Errorf("its slices were touched: %s", pair.Describe(f.of(cart)))
			}
			f.label(cart, "none")
		}},
	} {
		f.step(way.name, func(f *fleet) {
			way.out(f)
			f.wait(cart, "only the foreign slice is left", alone)
			f.label(cart, "default")
			f.wait(cart, "it is served again", served)
		})
	}
	f.step("paused, it goes when that is over", func(f *fleet) {
		f.annotate(cart, "paused", "true")
		f.tells(cart, "Paused")
		f.label(cart, "none")
		f.must(f.told().Leave(f.ctx()))
		if !served(f.of(cart)) {
			f.t.Errorf("a paused Service's slices were touched: %s", pair.Describe(f.of(cart)))
		}
		f.annotate(cart, "paused", "")
		f.wait(cart, "only the foreign slice is left", alone)
	})
	f.slices("the other Service is as it was", pair.AreJust(pair.Ready, addresses(workers)...))
	if diff := cmp.Diff(slices.Collect(maps.Keys(others)), slices.Collect(maps.Keys(f.versions(f.service)))); diff != "" {
		t.Errorf("its slices are others (-before +after):\n%s", diff)
	}
}

func TestRemovedLabelOptsOutAfterAMinute(t *testing.T) {
	f := enterFleet(t, script{writer: map[string]string{"HEALTH_CHECK_INTERVAL": "1s"}})
	f.patience = 2 * time.Minute
	cart := f.make(labelled("cart", annotated("list-unready", "false")))
	moved := f.make(labelled("moved"))
	f.start()
	workers := f.join(2)
	f.wait(cart, "it is served", pair.AreJust(pair.Ready, addresses(workers)...))
	f.wait(moved, "it is served", pair.AreJust(pair.Ready, addresses(workers)...))
	f.step("a label that is put back has changed nothing", func(f *fleet) {
		f.quiet(func() {
			f.label(cart, "")
			f.tells(cart, "LabelRemoved", "slicefeed.dev/class=default", "slicefeed.dev/class=none")
			f.label(cart, "default")
		})
	})
	f.step("until the minute is over it is managed as before", func(f *fleet) {
		begun := time.Now()
		// As kubectl replace of an old manifest does it: annotations go as well.
		f.patch(cart, `{"metadata":{"labels":null,"annotations":null}}`)
		f.label(moved, "nobodys")
		f.t.Log(f.tells(moved, "ClassChanged", "nobodys").Note)
		f.must(workers[0].Set(backend.Refuse))
		f.wait(cart, "one that is out is not listed, as the annotation said", pair.AreJust(pair.Ready, workers[1].Address))
		f.wait(moved, "it follows the probes too", pair.Are(pair.Out, workers[0].Address))
		f.wait(cart, "its slices are gone", none)
		f.wait(moved, "and those of the class that no writer serves", none)
		if took := time.Since(begun); took < 55*time.Second || took > 75*time.Second {
			f.t.Errorf("that took %s", took)
		}
	})
}

func anyReady(all []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(all, func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready })
	})
}

func TestHandOverToAnotherClassIsNeverEmpty(t *testing.T) {
	f := enterFleet(t, script{writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	f.must(f.OpenNamespace(f.ctx(), pair.OtherNamespace))
	blue, err := f.AddRival(f.ctx(), "blue", pair.OtherNamespace)
	f.must(err)
	blue.Set("WATCH_NAMESPACES", pair.OtherNamespace)
	blue.Set("CLASS", "blue")
	t.Cleanup(func() {
		f.must(blue.Kill())
		f.readLog(blue)
		f.must(
			f.ConsumingClient().
				CoordinationV1().
				Leases("rival").
				DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}),
		)
	})
	cart := f.make(labelled("cart", inNamespace(pair.OtherNamespace)))
	f.start()
	workers := f.join(2)
	ready := pair.Are(pair.Ready, addresses(workers)...)
	only := func(class string) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 1 && all[0].Labels[discoveryv1.LabelManagedBy] == "slicefeed-"+class && ready(all)
		}
	}
	f.wait(cart, "it is served", only("default"))
	f.must(blue.Start(f.ctx()))
	f.metric(blue, leads, equals(1))
	for _, to := range []string{"blue", "default", "blue"} {
		f.step("to "+to, func(f *fleet) {
			begun := time.Now()
			f.label(cart, to)
			f.t.Logf("handed over within %s", f.wait(cart, "the other class serves alone", only(to)))
			if f.seen.Saw(begun, nameOf(cart), func(all []*discoveryv1.EndpointSlice) bool { return !anyReady(all) }) {
				f.t.Error("nothing was ready for a moment")
			}
		})
	}
}

func TestRejectedServiceLosesItsDeadEndpointsAndGainsNone(t *testing.T) {
	f := enterFleet(t, script{})
	cart := f.make(labelled("cart"))
	f.start()
	workers := f.join(2)
	both := pair.AreJust(pair.Ready, addresses(workers)...)
	f.wait(cart, "it is served", both)
	f.patch(cart, `{"spec":{"selector":{"app":"cart"}}}`)
	f.tells(cart, "ServiceHasSelector", "the Endpoints object cart")
	f.must(workers[0].Set(backend.Refuse))
	f.wait(cart, "what is dead is out", func(all []*discoveryv1.EndpointSlice) bool {
		return pair.Are(pair.Out, workers[0].Address)(all) && pair.Are(pair.Ready, workers[1].Address)(all)
	})
	third := f.told()
	f.slices("the other Service follows", pair.Are(pair.Ready, third.Address))
	f.must(workers[0].Set(backend.Serve))
	f.wait(cart, "what answers again is ready, and nothing is added", both)
	f.patch(cart, `{"spec":{"selector":null}}`)
	f.wait(cart, "it is served again", pair.Are(pair.Ready, third.Address))
}

func TestAServiceMadeAnewAtOnceIsServedThroughout(t *testing.T) {
	f := enterFleet(t, script{})
	f.start()
	workers := f.join(2)
	services := f.ConsumingClient().CoreV1().Services(pair.Namespace)
	ready := pair.AreJust(pair.Ready, addresses(workers)...)
	again := func(f *fleet, between func()) {
		f.t.Helper()
		start := time.Now()
		f.must(services.Delete(f.ctx(), pair.Service, metav1.DeleteOptions{}))
		between()
		f.createService(inClass)
		f.t.Logf("made anew within %s", time.Since(start))
		f.slices("its slices are the new one's", owned(f.stage))
		f.slices("both serve", ready)
	}
	f.step("before the garbage collector comes", func(f *fleet) {
		before, start := f.slice().UID, time.Now()
		again(f, func() {})
		if f.slice().UID != before {
			f.t.Error("the slice was made anew, though an update would have done")
		}
		if f.seen.Saw(start, nameOf(f.service), func(all []*discoveryv1.EndpointSlice) bool { return !ready(all) }) {
			f.t.Error("the endpoints were away for a moment")
		}
	})
	f.step("after it", func(f *fleet) { // there is none here: its part is done by hand
		again(f, func() {
			f.must(f.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Delete(f.ctx(), f.slice().Name, metav1.DeleteOptions{}))
		})
	})
}

func TestANamespaceGoesAndComesBackAndHarmsNoOther(t *testing.T) {
	f := enterFleet(t, script{writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	f.removeNamespace(pair.OtherNamespace) // of a test before
	f.must(f.Inventory.Start(f.ctx()))
	f.must(f.writers[0].Launch()) // it cannot be ready yet
	f.step("that may not be read", func(f *fleet) {
		f.join(1)
		if err := f.writers[0].Check(f.ctx(), "/readyz"); err == nil || !containsAll(err.Error(), pair.OtherNamespace) {
			f.t.Errorf("the writer says of its readiness: %v", err)
		}
	})
	serve := func(f *fleet) {
		f.must(f.OpenNamespace(f.ctx(), pair.OtherNamespace))
		cart := f.make(labelled("cart", inNamespace(pair.OtherNamespace)))
		f.wait(cart, "it is served", pair.Are(pair.Ready, f.told().Address))
		if got := f.of(cart)[0].OwnerReferences; len(got) != 1 || got[0].UID != cart.UID {
			f.t.Errorf("its slice's owners are %v", got)
		}
	}
	f.step("that is opened", serve)
	f.must(f.writers[0].Ready(f.ctx()))
	f.step("that goes", func(f *fleet) {
		f.removeNamespace(pair.OtherNamespace)
		f.told()
	})
	f.step("that is there again", serve)
}

// removeNamespace deletes a namespace, and does by hand what the controller manager would,
// which is not there: it deletes what is in it, roles included, and takes the finalizer away.
func (f *fleet) removeNamespace(name string) {
	f.t.Helper()
	ctx, client, at, all := f.ctx(), f.ConsumingClient(), metav1.DeleteOptions{}, metav1.ListOptions{}
	namespaces := client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, name, at); apierrors.IsNotFound(err) {
		return
	} else if err != nil {
		f.t.Fatal(err)
	}
	f.must(client.DiscoveryV1().EndpointSlices(name).DeleteCollection(ctx, at, all))
	services, err := client.CoreV1().Services(name).List(ctx, all)
	f.must(err)
	for _, service := range services.Items {
		f.must(client.CoreV1().Services(name).Delete(ctx, service.Name, at))
	}
	f.must(client.RbacV1().RoleBindings(name).DeleteCollection(ctx, at, all))
	f.must(client.RbacV1().Roles(name).DeleteCollection(ctx, at, all))
	f.must(client.EventsV1().Events(name).DeleteCollection(ctx, at, all))
	namespace, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	f.must(err)
	namespace.Spec.Finalizers = nil
	_, err = namespaces.Finalize(ctx, namespace, metav1.UpdateOptions{})
	f.must(err)
	f.until("the namespace is gone", func() bool {
		_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestServicesOfAllNamespacesAreServedWhereThePolicyLetsThem(t *testing.T) {
	f := enterFleet(t, script{writer: map[string]string{"WATCH_NAMESPACES": "*"}})
	undo, err := f.OpenEverywhere(f.ctx())
	t.Cleanup(func() {
		if err := undo(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	f.must(err)
	f.must(f.Consuming.ApplyYAML(f.ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+pair.OtherNamespace+"}}")))
	f.must(f.Consuming.ApplyYAML(f.ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+elsewhere+"}}")))
	there := f.make(labelled("there", inNamespace(pair.OtherNamespace)))
	beyond := f.make(labelled("beyond", inNamespace(elsewhere)))
	t.Cleanup(func() {
		if err := f.ConsumingClient().
			CoreV1().
			Services(elsewhere).
			Delete(context.WithoutCancel(t.Context()), beyond.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	f.start()
	workers := f.join(2)
	ready := pair.AreJust(pair.Ready, addresses(workers)...)
	f.wait(there, "it is served", ready)
	t.Log(f.tells(beyond, "WriteRejected", "namespace "+elsewhere).Note)
	f.must(workers[1].Leave(f.ctx()))
	f.wait(there, "it follows", pair.AreJust(pair.Ready, workers[0].Address))
	if !none(f.of(beyond)) {
		t.Errorf("it has slices: %s", pair.Describe(f.of(beyond)))
	}
}

package services

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestOptingOutDeletesOurSlicesAndNothingElse(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	cart := f.CreateService(e2e.NewLabeledService("cart"))
	foreign := e2e.NewSlice("cart-of-somebody", "somebody", netip.MustParseAddr("10.0.1.250"))
	foreign.Labels[discoveryv1.LabelServiceName] = "cart"
	foreign = f.CreateSlice(foreign)
	f.StartAll()
	workers := f.Join(2)
	served := func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 2 && pair.Are(pair.Ready, e2e.Addresses(workers)...)(all)
	}
	alone := func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && all[0].Name == foreign.Name && all[0].ResourceVersion == foreign.ResourceVersion
	}
	f.AwaitOf(cart, "it is served", served)
	others := f.VersionsOf(f.Service)
	if len(others) != 1 {
		t.Fatalf("the other Service's slices are %v", others)
	}

	for _, way := range []struct {
		name string
		out  func(*e2e.Setup)
	}{
		{"with class none", func(f *e2e.Setup) { f.SetClass(cart, "none") }},
		{"with class none, when the writer has listed all slices and nothing has changed since", func(f *e2e.Setup) {
			f.Must(f.Writers[0].Terminate(e2e.Patience))
			f.StartWriters()
			f.AwaitMetric(f.Writers[0], e2e.Leads, e2e.Equals(1))
			f.AwaitMetric(f.Writers[0], `slicefeed_writer_endpoints{namespace="web",service="cart",state="ready"}`, e2e.Equals(2))
			f.SetClass(cart, "none")
		}},
		{"with class none, while the writer is away", func(f *e2e.Setup) {
			f.Must(f.Writers[0].Terminate(e2e.Patience))
			f.SetClass(cart, "none")
			f.StartWriters()
		}},
		{"without the label, while the writer is away: it asks whether that is meant", func(f *e2e.Setup) {
			f.Must(f.Writers[0].Terminate(e2e.Patience))
			f.SetClass(cart, "")
			f.StartWriters()
			f.AwaitEventOn(cart, "OrphanedSlices", "cart-slicefeed", "slicefeed.dev/class")
			if !served(f.SlicesOf(cart)) {
				f.T.Errorf("its slices were touched: %s", pair.Describe(f.SlicesOf(cart)))
			}
			f.SetClass(cart, "none")
		}},
	} {
		f.Step(way.name, func(f *e2e.Setup) {
			way.out(f)
			f.AwaitOf(cart, "only the foreign slice is left", alone)
			f.SetClass(cart, "default")
			f.AwaitOf(cart, "it is served again", served)
		})
	}
	f.Step("paused, it goes when that is over", func(f *e2e.Setup) {
		f.Annotate(cart, "paused", "true")
		f.AwaitEventOn(cart, "Paused")
		f.SetClass(cart, "none")
		f.Must(f.CatchUp().Leave(f.Ctx()))
		if !served(f.SlicesOf(cart)) {
			f.T.Errorf("a paused Service's slices were touched: %s", pair.Describe(f.SlicesOf(cart)))
		}
		f.Annotate(cart, "paused", "")
		f.AwaitOf(cart, "only the foreign slice is left", alone)
	})
	f.Await("the other Service is as it was", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	if diff := cmp.Diff(slices.Collect(maps.Keys(others)), slices.Collect(maps.Keys(f.VersionsOf(f.Service)))); diff != "" {
		t.Errorf("its slices are others (-before +after):\n%s", diff)
	}
}

func TestHandOverToAnotherClassIsNeverEmpty(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{Writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	f.Must(f.OpenNamespace(f.Ctx(), pair.OtherNamespace))
	blue, err := f.AddRival(f.Ctx(), "blue", pair.OtherNamespace)
	f.Must(err)
	blue.Set("WATCH_NAMESPACES", pair.OtherNamespace)
	blue.Set("CLASS", "blue")
	t.Cleanup(func() {
		f.Must(blue.Kill())
		f.CheckLog(blue)
		f.Must(f.ConsumingClient().CoordinationV1().Leases("rival").
			DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	cart := f.CreateService(e2e.NewLabeledService("cart", e2e.InNamespace(pair.OtherNamespace)))
	f.StartAll()
	workers := f.Join(2)
	ready := pair.Are(pair.Ready, e2e.Addresses(workers)...)
	only := func(class string) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 1 && all[0].Labels[discoveryv1.LabelManagedBy] == "slicefeed-"+class && ready(all)
		}
	}
	f.AwaitOf(cart, "it is served", only("default"))
	f.Must(blue.Start(f.Ctx()))
	f.AwaitMetric(blue, e2e.Leads, e2e.Equals(1))
	for _, to := range []string{"blue", "default", "blue"} {
		f.Step("to "+to, func(f *e2e.Setup) {
			begun := time.Now()
			f.SetClass(cart, to)
			f.T.Logf("handed over within %s", f.AwaitOf(cart, "the other class serves alone", only(to)))
			if f.Saw(begun, e2e.NameOf(cart), func(all []*discoveryv1.EndpointSlice) bool { return !e2e.AnyReady(all) }) {
				f.T.Error("nothing was ready for a moment")
			}
		})
	}
	f.Step("to blue, which can only write after an outage of more than a minute", func(f *e2e.Setup) {
		e2e.Long(f.T)
		f.SetClass(cart, "default")
		f.AwaitOf(cart, "the other class serves alone", only("default"))
		f.Must(blue.Signal(syscall.SIGSTOP))
		begun := time.Now()
		f.SetClass(cart, "blue")
		f.AwaitEventOn(cart, "ClassChanged")
		f.StopAPIServer(f.Consuming)
		f.Must(blue.Signal(syscall.SIGCONT))
		f.Until("the minute would be over", func() bool { return time.Since(begun) > 75*time.Second })
		f.Must(f.Consuming.StartAPIServer(f.Ctx()))
		f.AwaitOf(cart, "the other class serves alone", only("blue"))
		// The watch is no proof: after a relist it may report a deletion before what was created earlier.
		if created, deleted := lastWrite(f, blue, "create"), lastWrite(f, f.Writers[0], "delete"); deleted.Before(created) {
			f.T.Errorf("deleted at %s, and created at %s", deleted, created)
		}
	})
}

// lastWrite returns when a writer last logged a write.
func lastWrite(f *e2e.Setup, writer *pair.Component, verb string) time.Time {
	f.T.Helper()
	var last struct{ Time time.Time }
	for line := range strings.Lines(f.LogOf(writer)) {
		if strings.Contains(line, `"msg":"slice written","verb":"`+verb+`"`) {
			f.Must(json.Unmarshal([]byte(line), &last))
		}
	}
	return last.Time
}

func TestRejectedServiceLosesItsDeadEndpointsAndGainsNone(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	cart := f.CreateService(e2e.NewLabeledService("cart"))
	f.StartAll()
	workers := f.Join(2)
	both := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	f.AwaitOf(cart, "it is served", both)
	f.PatchService(cart, `{"spec":{"selector":{"app":"cart"}}}`)
	f.AwaitEventOn(cart, "ServiceHasSelector", "the Endpoints object of its name")
	f.Must(workers[0].Set(backend.Refuse))
	f.AwaitOf(cart, "what is dead is out", func(all []*discoveryv1.EndpointSlice) bool {
		return pair.Are(pair.Out, workers[0].Address)(all) && pair.Are(pair.Ready, workers[1].Address)(all)
	})
	third := f.CatchUp()
	f.Await("the other Service follows", pair.Are(pair.Ready, third.Address))
	f.Must(workers[0].Set(backend.Serve))
	f.AwaitOf(cart, "what answers again is ready, and nothing is added", both)
	f.PatchService(cart, `{"spec":{"selector":null}}`)
	f.AwaitOf(cart, "it is served again", pair.Are(pair.Ready, third.Address))
}

func TestAPausedServiceIsNotWritten(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	cart := f.CreateService(e2e.NewLabeledService("cart"))
	f.StartAll()
	workers := f.Join(2)
	f.AwaitOf(cart, "it is served", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	f.Annotate(cart, "paused", "true")
	f.AwaitEventOn(cart, "Paused", "slicefeed.dev/paused")
	before := f.WriteCountOf(cart)
	slice := f.SlicesOf(cart)[0].DeepCopy()
	slice.Endpoints = nil // by hand
	f.UpdateSlice(slice)
	f.Must(workers[1].Leave(f.Ctx()))
	third := f.CatchUp()
	now := pair.AreJust(pair.Ready, workers[0].Address, third.Address)
	f.Await("the other Service follows", now)
	if n := f.WriteCountOf(cart) - before; n != 0 {
		t.Errorf("%d writes of a paused Service", n)
	}
	if got := pair.Describe(f.SlicesOf(cart)); got != "no endpoints" {
		t.Errorf("what was done by hand is undone: %s", got)
	}
	f.Annotate(cart, "paused", "")
	f.AwaitOf(cart, "all that happened meanwhile is written", now)
	if n := f.WriteCountOf(cart) - before; n != 1 {
		t.Errorf("that took %d writes, want one", n)
	}
}

func TestTheProxyThatAServiceNamesFindsItsSlices(t *testing.T) {
	const label = "service.kubernetes.io/service-proxy-name"
	f := e2e.NewLabeled(t, e2e.Options{Service: func(service *corev1.Service) { service.Labels[label] = "other-proxy" }})
	f.StartAll()
	f.Join(1)
	has := func(want string) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 1 && all[0].Labels[label] == want }
	}
	f.Await("the slice has its label", has("other-proxy"))
	f.PatchService(f.Service, `{"metadata":{"labels":{"`+label+`":null}}}`)
	f.Await("the label goes with that of the Service", has(""))
}

package targets

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestANewcomersServiceIsServedForItsLabelAndAsItsAnnotationsSay(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{Inventory: map[string]string{"EXPORT_LABELS": "pool"}})
	f.StartAll()
	blue, red := f.Machine(
		pair.WorkerOptions{Labels: map[string]string{"pool": "blue"}},
	), f.Machine(pair.WorkerOptions{Labels: map[string]string{"pool": "red"}})
	f.Must(blue.Join(f.Ctx()))
	f.Must(red.Join(f.Ctx()))
	both := pair.AreJust(pair.Ready, blue.Address, red.Address)
	f.Await("both serve", both)

	cart := f.CreateService(e2e.NewService("cart"))
	f.Step("without the label nothing happens, with it the Service is served", func(f *e2e.Setup) {
		f.Must(f.CatchUp().Leave(f.Ctx()))
		if !e2e.None(f.SlicesOf(cart)) {
			f.T.Fatalf("it has slices: %s", pair.Describe(f.SlicesOf(cart)))
		}
		f.Await("only the two are left", both)
		f.SetClass(cart, "default")
		f.T.Logf("served %s after the label", f.AwaitOf(cart, "both serve", both))
		slice := f.SlicesOf(cart)[0]
		want := map[string]string{
			discoveryv1.LabelServiceName: "cart",
			discoveryv1.LabelManagedBy:   "slicefeed-default",
			"slicefeed.dev/source":       "default",
			"slicefeed.dev/writer":       pair.Namespace,
		}
		if diff := cmp.Diff(want, slice.Labels); diff != "" {
			f.T.Errorf("the slice's labels (-want +got):\n%s", diff)
		}
		if got := slice.OwnerReferences; slice.Name != "cart-slicefeed" || len(got) != 1 || got[0].UID != cart.UID {
			f.T.Errorf("it is named %s and owned by %v", slice.Name, got)
		}
	})
	f.Step("node-selector: only the blue one", func(f *e2e.Setup) {
		f.Annotate(cart, "node-selector", "pool=blue")
		f.AwaitOf(cart, "the blue one serves alone", pair.AreJust(pair.Ready, blue.Address))
		f.Annotate(cart, "node-selector", "")
		f.AwaitOf(cart, "both serve", both)
	})
	f.Step("list-unready: one that is out is not listed", func(f *e2e.Setup) {
		f.Annotate(cart, "list-unready", "false")
		f.Must(red.Set(backend.Refuse))
		f.Await("it is out where nothing is said of it", pair.Are(pair.Out, red.Address))
		f.AwaitOf(cart, "it is not listed", pair.AreJust(pair.Ready, blue.Address))
	})
	f.Step("probe: off, and it serves whatever it answers", func(f *e2e.Setup) {
		f.Annotate(cart, "probe", "off")
		f.AwaitOf(cart, "both serve", both)
	})
	f.Step("probe: http, and 500 is no pass", func(f *e2e.Setup) {
		f.Must(red.Set(backend.Error))
		f.Await("it passes as tcp", both)
		f.Annotate(cart, "probe", "http", "probe-path", "/healthz", "list-unready", "")
		f.AwaitOf(cart, "it does not pass as http", pair.Are(pair.Out, red.Address))
	})
	for _, wrong := range []struct{ name, value, takes string }{
		{"probe", "icmp", "tcp"},
		{"probe-port", "70000", "65535"},
		{"probe-interval", "often", "200ms"},
		{"node-selector", "pool in blue", "pool=blue"},
		{"list-unready", "no", "false"},
		{"prob", "off", "unknown annotation"},
	} {
		f.Step("a mistake in "+wrong.name+" is told and changes nothing", func(f *e2e.Setup) {
			f.Annotate(cart, wrong.name, wrong.value)
			f.T.Log(f.AwaitEventOn(cart, "InvalidAnnotation", "slicefeed.dev/"+wrong.name, wrong.takes).Note)
			third := f.CatchUp()
			f.AwaitOf(cart, "it goes on as before", func(all []*discoveryv1.EndpointSlice) bool {
				return pair.Are(pair.Ready, blue.Address, third.Address)(all) && pair.Are(pair.Out, red.Address)(all)
			})
			f.Must(third.Leave(f.Ctx()))
			back := ""
			if wrong.name == "probe" {
				back = "http"
			}
			f.Annotate(cart, wrong.name, back)
			f.AwaitOf(cart, "the third is gone", pair.Are(pair.Absent, third.Address))
		})
	}
	f.Must(red.Set(backend.Serve))
	f.AwaitOf(cart, "both serve", both)
}

func TestRemovedLabelOptsOutAfterAMinute(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{Writer: map[string]string{"HEALTH_CHECK_INTERVAL": "1s"}})
	f.Patience = 2 * time.Minute
	cart := f.CreateService(e2e.NewLabeledService("cart", e2e.Annotated("list-unready", "false")))
	moved := f.CreateService(e2e.NewLabeledService("moved"))
	f.StartAll()
	workers := f.Join(2)
	f.AwaitOf(cart, "it is served", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	f.AwaitOf(moved, "it is served", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	f.Step("a label that is put back has changed nothing", func(f *e2e.Setup) {
		f.ExpectNoWrites(func() {
			f.SetClass(cart, "")
			f.AwaitEventOn(cart, "LabelRemoved", "slicefeed.dev/class=CLASS", "slicefeed.dev/class=none")
			f.SetClass(cart, "default")
		})
	})
	f.Step("until the minute is over it is managed as before", func(f *e2e.Setup) {
		begun := time.Now()
		// As kubectl replace of an old manifest does it: annotations go as well.
		f.PatchService(cart, `{"metadata":{"labels":null,"annotations":null}}`)
		f.SetClass(moved, "nobodys")
		f.T.Log(f.AwaitEventOn(moved, "ClassChanged", "nobodys").Note)
		f.Must(workers[0].Set(backend.Refuse))
		f.AwaitOf(cart, "one that is out is not listed, as the annotation said", pair.AreJust(pair.Ready, workers[1].Address))
		f.AwaitOf(moved, "it follows the probes too", pair.Are(pair.Out, workers[0].Address))
		f.AwaitOf(cart, "its slices are gone", e2e.None)
		f.AwaitOf(moved, "and those of the class that no writer serves", e2e.None)
		if took := time.Since(begun); took < 55*time.Second {
			f.T.Errorf("that took %s", took)
		}
	})
}

// elsewhere is a namespace that the policy does not allow.
const elsewhere = "elsewhere"

func TestServicesOfAllNamespacesAreServedWhereThePolicyLetsThem(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{Writer: map[string]string{"WATCH_NAMESPACES": "*"}})
	undo, err := f.OpenEverywhere(f.Ctx())
	t.Cleanup(func() {
		if err := undo(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	f.Must(err)
	f.Must(f.Consuming.ApplyYAML(f.Ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+pair.OtherNamespace+"}}")))
	f.Must(f.Consuming.ApplyYAML(f.Ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+elsewhere+"}}")))
	there := f.CreateService(e2e.NewLabeledService("there", e2e.InNamespace(pair.OtherNamespace)))
	beyond := f.CreateService(e2e.NewLabeledService("beyond", e2e.InNamespace(elsewhere)))
	t.Cleanup(func() {
		if err := f.ConsumingClient().
			CoreV1().
			Services(elsewhere).
			Delete(context.WithoutCancel(t.Context()), beyond.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	f.StartAll()
	workers := f.Join(2)
	ready := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	f.AwaitOf(there, "it is served", ready)
	t.Log(f.AwaitEventOn(beyond, "WriteRejected", "namespace "+elsewhere).Note)
	f.Must(workers[1].Leave(f.Ctx()))
	f.AwaitOf(there, "it follows", pair.AreJust(pair.Ready, workers[0].Address))
	if !e2e.None(f.SlicesOf(beyond)) {
		t.Errorf("it has slices: %s", pair.Describe(f.SlicesOf(beyond)))
	}
}

package services

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

func TestRepeatedEditsAreRepairedLaterAndLaterAndTheirEditorIsNamed(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	f.StartAll()
	workers := f.Join(2)
	ready := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	edit := func(f *e2e.Setup) *discoveryv1.EndpointSlice {
		slice := f.Slice().DeepCopy()
		slice.Endpoints = slice.Endpoints[:1]
		all := f.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
		edited, err := all.Update(f.Ctx(), slice, metav1.UpdateOptions{FieldManager: "meddler"})
		f.Must(err)
		return edited
	}
	repaired := func(f *e2e.Setup, edited *discoveryv1.EndpointSlice) {
		f.Await("it is repaired", func(all []*discoveryv1.EndpointSlice) bool {
			return ready(all) && all[0].Generation > edited.Generation
		})
	}
	f.Step("five times it is repaired at once", func(f *e2e.Setup) {
		for range 5 {
			repaired(f, edit(f))
		}
		// The Event comes before a repair that waits, which is for a second at least.
		if events := f.DescribeEvents(f.Service); strings.Contains(events, "RepairsBackedOff") {
			f.T.Errorf("a repair had to wait: %s", events)
		}
	})
	f.Step("then later and later", func(f *e2e.Setup) {
		for range 3 {
			repaired(f, edit(f))
		}
		f.AwaitEventOn(f.Service, "RepairsBackedOff", "meddler")
		var repairs []audit.Write
		for _, write := range f.WritesSince(0) {
			if write.Verb == "update" {
				repairs = append(repairs, write)
			}
		}
		repairs = repairs[len(repairs)-4:]
		for i, least := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			const rounded = 100 * time.Millisecond // the log has the time of the answer
			if pause := repairs[i+1].At.Sub(repairs[i].At); pause < least-rounded {
				f.T.Errorf("repair %d came %s after the last one, want %s at least", 6+i, pause, least)
			}
		}
	})
	f.Step("a change of the source is written without such a pause", func(f *e2e.Setup) {
		edit(f) // its repair would come 8 s after the last one
		third := f.Machine(pair.WorkerOptions{})
		f.Must(third.Join(f.Ctx()))
		f.Await("all serve", pair.Are(pair.Ready, append(e2e.Addresses(workers), third.Address)...))
		all := f.WritesSince(0)
		if pause := all[len(all)-1].At.Sub(all[len(all)-2].At); pause > 7*time.Second {
			f.T.Errorf("it was written %s after the last repair", pause)
		}
	})
}

const mutating = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: add-cost-center}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [discovery.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [endpointslices]}
  reinvocationPolicy: Never
  failurePolicy: Ignore
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels/example.com~1cost-center', value: 'c42'}]"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: add-cost-center}
spec: {policyName: add-cost-center}
`

func TestWhatAdmissionChangesIsWrittenOnceAndReported(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	client := f.ConsumingClient()
	served, err := client.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	f.Must(err)
	if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == "MutatingAdmissionPolicy" }) {
		t.Skip("the oldest Kubernetes does not serve MutatingAdmissionPolicy")
	}
	f.Must(f.Consuming.ApplyYAML(f.Ctx(), []byte(mutating)))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		policies := client.AdmissionregistrationV1().MutatingAdmissionPolicies()
		if err := policies.Delete(ctx, "add-cost-center", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	f.Until("the policy works", func() bool {
		all := client.DiscoveryV1().EndpointSlices(pair.Namespace)
		tried, err := all.Create(f.Ctx(), e2e.NewSlice("tried", "nobody"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		f.Must(err)
		return tried.Labels["example.com/cost-center"] == "c42"
	})
	earlier := f.WriteCountOf(f.Service)
	f.StartAll()
	for range 3 {
		f.Join(1)
		f.AwaitEventOn(f.Service, "ChangedByAdmission", "label example.com/cost-center of shop-slicefeed")
	}
	if n := f.WriteCountOf(f.Service) - earlier; n != 3 { // a repair would follow each at once
		t.Errorf("%d writes of three changes", n)
	}
	if events := f.DescribeEvents(f.Service); strings.Contains(events, "RepairsBackedOff") {
		t.Errorf("another writer is blamed: %s", events)
	}
}

func TestSliceThatWaitsForAFinalizerIsReplacedAndEmptied(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	f.StartAll()
	workers := f.Join(3)
	held, all := f.Slice().Name, f.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	patch := func(finalizers string) {
		text := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
		_, err := all.Patch(f.Ctx(), held, types.MergePatchType, text, metav1.PatchOptions{})
		f.Must(err)
	}
	patch(`["example.com/hold"]`)
	began := time.Now()
	f.Must(all.Delete(f.Ctx(), held, metav1.DeleteOptions{}))
	f.Until("it is empty", func() bool { return len(f.GetSlice(held).Endpoints) == 0 })
	f.ExpectAlways(began, "all serve", e2e.Serves(e2e.Addresses(workers)...))
	f.Must(workers[0].Leave(f.Ctx()))
	f.Await("the others serve", pair.AreJust(pair.Ready, e2e.Addresses(workers[1:])...))
	f.ExpectNoWrites(func() { patch("null") })
}

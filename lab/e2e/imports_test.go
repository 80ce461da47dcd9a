package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/lab/charts"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const importLabel = "multicluster.kubernetes.io/service-name"

// imports are the ServiceImports of the writers' namespace.
type imports struct {
	dynamic.ResourceInterface

	*stage
}

func openImports(s *stage) *imports {
	s.t.Helper()
	undo, err := s.OpenImports(s.ctx())
	s.must(err)
	s.t.Cleanup(func() {
		if err := undo(context.WithoutCancel(s.t.Context())); err != nil {
			s.t.Error(err)
		}
	})
	client, err := dynamic.NewForConfig(s.Consuming.AdminConfig())
	s.must(err)
	resource := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"}
	return &imports{client.Resource(resource).Namespace(pair.Namespace), s}
}

// define has the API server serve ServiceImports, by the real definition, until the test ends.
func (i *imports) define() {
	i.t.Helper()
	file, err := charts.ServiceImports(i.ctx())
	i.must(err)
	definition, err := os.ReadFile(file)
	i.must(err)
	i.must(i.Consuming.ApplyYAML(i.ctx(), definition))
	admin, err := dynamic.NewForConfig(i.Consuming.AdminConfig())
	i.must(err)
	definitions := admin.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	)
	i.t.Cleanup(func() {
		if err := definitions.Delete(
			context.WithoutCancel(i.t.Context()),
			"serviceimports.multicluster.x-k8s.io",
			metav1.DeleteOptions{},
		); err != nil {
			i.t.Error(err)
		}
	})
	i.until("the API server serves ServiceImports", func() bool {
		_, err := i.List(i.ctx(), metav1.ListOptions{})
		return err == nil
	})
}

// newImport is a ServiceImport with one port.
func newImport(name string, labels, annotations map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1beta1",
		"kind":       "ServiceImport",
		"metadata":   map[string]any{"name": name, "labels": labels, "annotations": annotations},
		"spec": map[string]any{
			"type":  "ClusterSetIP",
			"ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}},
		},
	}}
}

// make makes a ServiceImport.
func (i *imports) make(object *unstructured.Unstructured) *unstructured.Unstructured {
	i.t.Helper()
	var made *unstructured.Unstructured
	i.until("the ServiceImport "+object.GetName()+" is made", func() bool { // a definition takes a moment at each endpoint of the API
		var err error
		made, err = i.Create(i.ctx(), object, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			i.t.Fatal(err)
		}
		return err == nil
	})
	return made
}

func (i *imports) patch(name, patch string) {
	i.t.Helper()
	_, err := i.Patch(i.ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	i.must(err)
}

// of are the slices of a ServiceImport.
func (i *imports) of(name string) (all []*discoveryv1.EndpointSlice) {
	i.t.Helper()
	list, err := i.ConsumingClient().
		DiscoveryV1().
		EndpointSlices(pair.Namespace).
		List(i.ctx(), metav1.ListOptions{LabelSelector: importLabel + "=" + name})
	i.must(err)
	for n := range list.Items {
		all = append(all, &list.Items[n])
	}
	return all
}

// wait waits until the slices of a ServiceImport are as told.
func (i *imports) wait(name, what string, are func([]*discoveryv1.EndpointSlice) bool) {
	i.t.Helper()
	defer func() {
		if i.t.Failed() {
			i.t.Logf("the slices of ServiceImport %s: %s", name, pair.Describe(i.of(name)))
		}
	}()
	i.until(what, func() bool { return are(i.of(name)) })
}

// tells waits for an Event on a ServiceImport.
func (i *imports) tells(object *unstructured.Unstructured, reason string, parts ...string) {
	i.t.Helper()
	var notes []string
	i.until("an Event "+reason+" on the ServiceImport "+object.GetName(), func() bool {
		list, err := i.ConsumingClient().EventsV1().Events(pair.Namespace).List(i.ctx(), metav1.ListOptions{})
		i.must(err)
		for _, e := range list.Items {
			if isAbout(&e, object) && e.Reason == reason && containsAll(e.Note, parts...) {
				return true
			}
			notes = append(notes, fmt.Sprintf("%s %s/%s: %s", e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
		return false
	})
	if i.t.Failed() {
		i.t.Log(strings.Join(notes, "\n"))
	}
}

func isAbout(e *eventsv1.Event, object *unstructured.Unstructured) bool {
	return e.Regarding.Kind == "ServiceImport" && e.Regarding.APIVersion == object.GetAPIVersion() && e.Regarding.UID == object.GetUID()
}

func TestAServiceImportIsATargetLikeAService(t *testing.T) {
	s := enter(t, script{writer: map[string]string{"SERVICE_IMPORTS": "true"}})
	d := s.open(s.writers[0])
	i := openImports(s)
	s.must(s.Inventory.Start(s.ctx()))
	s.must(s.writers[0].Launch())
	_, err := s.WaitLeading(s.ctx())
	s.must(err)
	workers := s.join(2)
	both := pair.AreJust(pair.Ready, addresses(workers)...)
	s.step("without the definition Services are served, and the writer is not ready", func(s *stage) {
		s.slices("both serve", both)
		s.until("readiness says why", func() bool {
			err := s.writers[0].Check(s.ctx(), "/readyz")
			return err != nil &&
				containsAll(err.Error(), "service-imports", "serviceimports.multicluster.x-k8s.io", "unset SERVICE_IMPORTS")
		})
		code, text := run(s.t, "slicefeed-writer", s.writers[0].Env(), "preflight")
		if code != 1 ||
			!inOrder(text, "FAIL ServiceImports", "does not serve serviceimports.multicluster.x-k8s.io", "sigs.k8s.io/mcs-api") {
			s.t.Errorf("preflight, exit code %d:\n%s", code, text)
		}
	})
	i.define()
	s.must(s.writers[0].Ready(s.ctx()))

	class, ports := map[string]any{
		"slicefeed.dev/class": "default",
	}, map[string]any{
		"slicefeed.dev/ports.default": fmt.Sprint(pair.NodePort),
	}
	object := i.make(newImport(pair.Service, class, ports))
	i.make(newImport("stranger", nil, ports))
	s.step("it gets slices of its own, with the labels of the multi-cluster API", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		i.wait(pair.Service, "both serve", both)
		slice := i.of(pair.Service)[0]
		want := map[string]string{
			importLabel: pair.Service,
			"multicluster.kubernetes.io/source-cluster": "default",
			discoveryv1.LabelManagedBy:                  "slicefeed-default",
			"slicefeed.dev/source":                      "default",
			"slicefeed.dev/writer":                      pair.Namespace,
		}
		if diff := cmp.Diff(want, slice.Labels); diff != "" {
			s.t.Errorf("the slice's labels (-want +got):\n%s", diff)
		}
		owners := slice.OwnerReferences
		if len(owners) != 1 || owners[0].Kind != "ServiceImport" || owners[0].UID != object.GetUID() ||
			*slice.Ports[0].Port != pair.NodePort ||
			*slice.Ports[0].Name != "http" {
			s.t.Errorf("slice %s is owned by %v and has the ports %v", slice.Name, owners, slice.Ports)
		}
		if of := s.slice(); of.Labels[importLabel] != "" || of.OwnerReferences[0].Kind != "Service" {
			s.t.Errorf("the Service of the same name: labels %v, owners %v", of.Labels, of.OwnerReferences)
		}
	})
	s.step("people see it beside the Service of its name", func(s *stage) {
		address, name := workers[0].Address.String(), "web/"+pair.Service+".serviceimport"
		d.answers(s, s.writers[0], personSAN, 0, []string{"explain", name, address}, address+" of "+name, "ready")
		d.answers(s, s.writers[0], personSAN, 0, []string{"endpoints", name}, name+": managed", "2 ready")
		d.answers(s, s.writers[0], personSAN, 0, []string{"endpoints", "web/" + pair.Service}, "web/"+pair.Service+": managed", "2 ready")
		s.metric(s.writers[0], `slicefeed_writer_target_managed{namespace="web",service="`+pair.Service+`.serviceimport"}`, equals(1))
		s.metric(s.writers[0], managed, equals(1))
		s.until("the status page shows it alone, with what was written for it", func() bool {
			code, text := run(s.t, "slicefeed-writer", nil, "status", name, "--debug-address", s.writers[0].DebugAddress())
			return code == 0 && containsAll(text, name, address, pair.Service+".serviceimport-slicefeed") &&
				!strings.Contains(text, "web/"+pair.Service+" ")
		})
		code, text := run(s.t, "slicefeed-writer", s.writers[0].Env(), "preflight")
		if code != 0 ||
			!inOrder(text, "ok ServiceImports the API server serves them", "2 of 2 can be managed", pair.Service+".serviceimport") {
			s.t.Errorf("preflight, exit code %d:\n%s", code, text)
		}
	})
	s.step("the admission policy takes no other kind of that name for a target", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		config := s.Consuming.AdminConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: pair.WriterUser}
		writer, err := kubernetes.NewForConfig(config)
		s.must(err)
		slice := i.of(pair.Service)[0]
		for version, refused := range map[string]bool{"multicluster.x-k8s.io/v1alpha1": false, "example.org/v1": true} {
			slice.OwnerReferences[0].APIVersion = version
			_, err := writer.DiscoveryV1().
				EndpointSlices(pair.Namespace).
				Update(s.ctx(), slice, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only add a Service or ServiceImport as owner")) ||
				!refused && err != nil {
				s.t.Errorf("an owner of %s: %v", version, err)
			}
		}
	})
	s.step("a node that leaves is gone from both", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		s.must(workers[1].Leave(s.ctx()))
		i.wait(pair.Service, "one serves", pair.AreJust(pair.Ready, workers[0].Address))
		s.slices("one serves", pair.AreJust(pair.Ready, workers[0].Address))
		if all := i.of("stranger"); len(all) != 0 {
			s.t.Errorf("one without our label has slices: %s", pair.Describe(all))
		}
	})
	s.step("a mistake is told and changes nothing", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		before := i.of(pair.Service)[0].ResourceVersion
		i.patch(pair.Service, `{"spec": {"ports": [{"name": "HTTP port", "port": 80}]}}`)
		i.tells(object, "InvalidServiceImport", "Port name", "HTTP port")
		third := s.join(1)[0]
		if slice := i.of(pair.Service)[0]; slice.ResourceVersion != before {
			s.t.Errorf("it was written: %s", pair.Describe(i.of(pair.Service)))
		}
		i.patch(pair.Service, `{"spec": {"ports": [{"name": "http", "port": 80}]}}`)
		i.wait(pair.Service, "it is as the Service again", pair.AreJust(pair.Ready, workers[0].Address, third.Address))
		s.must(third.Leave(s.ctx()))
		i.wait(pair.Service, "one serves", pair.AreJust(pair.Ready, workers[0].Address))
	})
	s.step("a label that others take for a Service's is taken back", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		slice := i.of(pair.Service)[0]
		slice.Labels[discoveryv1.LabelServiceName] = pair.Service
		_, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Update(s.ctx(), slice, metav1.UpdateOptions{})
		s.must(err)
		s.slices("the Service has its own slice alone", func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 1 && all[0].OwnerReferences[0].Kind == "Service"
		})
		i.wait(pair.Service, "one serves", pair.AreJust(pair.Ready, workers[0].Address))
	})
	s.step("without the label it is left, and the Service of its name is not", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		i.patch(pair.Service, `{"metadata": {"labels": {"slicefeed.dev/class": null}}}`)
		i.tells(object, "LabelRemoved", "kubectl label serviceimport -n web "+pair.Service)
		i.wait(pair.Service, "it stays for a minute", pair.AreJust(pair.Ready, workers[0].Address))
		i.patch(pair.Service, `{"metadata": {"labels": {"slicefeed.dev/class": "none"}}}`)
		i.wait(pair.Service, "its slices are deleted", func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 0 })
		s.slices("the Service is served", pair.AreJust(pair.Ready, workers[0].Address))
		i.patch(pair.Service, `{"metadata": {"labels": {"slicefeed.dev/class": "default"}}}`)
		i.wait(pair.Service, "it is served again", pair.AreJust(pair.Ready, workers[0].Address))
	})
	s.step("deleted, it is written no more: its slices go with their owner", func(s *stage) {
		i := &imports{i.ResourceInterface, s}
		s.must(i.Delete(s.ctx(), pair.Service, metav1.DeleteOptions{}))
		s.metric(s.writers[0], `slicefeed_writer_target_managed{namespace="web",service="shop"}`, equals(1))
		d.answers(
			s,
			s.writers[0],
			personSAN,
			1,
			[]string{"endpoints", "web/" + pair.Service + ".serviceimport"},
			"is not a target of this writer",
		)
		before := i.of(pair.Service)[0].ResourceVersion
		s.told()
		if slice := i.of(pair.Service)[0]; slice.ResourceVersion != before || len(slice.OwnerReferences) != 1 {
			s.t.Errorf("the slice of a ServiceImport that is gone was written: %v", slice)
		}
	})
}

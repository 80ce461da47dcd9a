package kubernetes

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
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const importLabel = "multicluster.kubernetes.io/service-name"

// imports are the ServiceImports of the writers' namespace.
type imports struct {
	dynamic.ResourceInterface

	*e2e.Setup
}

func openImports(s *e2e.Setup) *imports {
	s.T.Helper()
	undo, err := s.OpenImports(s.Ctx())
	s.Must(err)
	s.T.Cleanup(func() {
		if err := undo(context.WithoutCancel(s.T.Context())); err != nil {
			s.T.Error(err)
		}
	})
	client, err := dynamic.NewForConfig(s.Consuming.AdminConfig())
	s.Must(err)
	resource := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"}
	return &imports{client.Resource(resource).Namespace(pair.Namespace), s}
}

// define has the API server serve ServiceImports, by the real definition, until the test ends.
func (i *imports) define() {
	i.T.Helper()
	file, err := charts.ServiceImports(i.Ctx())
	i.Must(err)
	definition, err := os.ReadFile(file)
	i.Must(err)
	i.Must(i.Consuming.ApplyYAML(i.Ctx(), definition))
	admin, err := dynamic.NewForConfig(i.Consuming.AdminConfig())
	i.Must(err)
	definitions := admin.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	)
	i.T.Cleanup(func() {
		if err := definitions.Delete(
			context.WithoutCancel(i.T.Context()),
			"serviceimports.multicluster.x-k8s.io",
			metav1.DeleteOptions{},
		); err != nil {
			i.T.Error(err)
		}
	})
	i.Until("the API server serves ServiceImports", func() bool {
		_, err := i.List(i.Ctx(), metav1.ListOptions{})
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
	i.T.Helper()
	var made *unstructured.Unstructured
	i.Until("the ServiceImport "+object.GetName()+" is made", func() bool { // a definition takes a moment at each endpoint of the API
		var err error
		made, err = i.Create(i.Ctx(), object, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			i.T.Fatal(err)
		}
		return err == nil
	})
	return made
}

func (i *imports) patch(name, patch string) {
	i.T.Helper()
	_, err := i.Patch(i.Ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	i.Must(err)
}

// of are the slices of a ServiceImport.
func (i *imports) of(name string) (all []*discoveryv1.EndpointSlice) {
	i.T.Helper()
	list, err := i.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).
		List(i.Ctx(), metav1.ListOptions{LabelSelector: importLabel + "=" + name})
	i.Must(err)
	for n := range list.Items {
		all = append(all, &list.Items[n])
	}
	return all
}

// wait waits until the slices of a ServiceImport are as told.
func (i *imports) wait(name, what string, are func([]*discoveryv1.EndpointSlice) bool) {
	i.T.Helper()
	defer func() {
		if i.T.Failed() {
			i.T.Logf("the slices of ServiceImport %s: %s", name, pair.Describe(i.of(name)))
		}
	}()
	i.Until(what, func() bool { return are(i.of(name)) })
}

// tells waits for an Event on a ServiceImport.
func (i *imports) tells(object *unstructured.Unstructured, reason string, parts ...string) {
	i.T.Helper()
	var notes []string
	i.Until("an Event "+reason+" on the ServiceImport "+object.GetName(), func() bool {
		list, err := i.ConsumingClient().EventsV1().Events(pair.Namespace).List(i.Ctx(), metav1.ListOptions{})
		i.Must(err)
		for _, e := range list.Items {
			if isAbout(&e, object) && e.Reason == reason && e2e.ContainsAll(e.Note, parts...) {
				return true
			}
			notes = append(notes, fmt.Sprintf("%s %s/%s: %s", e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
		return false
	})
	if i.T.Failed() {
		i.T.Log(strings.Join(notes, "\n"))
	}
}

func isAbout(e *eventsv1.Event, object *unstructured.Unstructured) bool {
	return e.Regarding.Kind == "ServiceImport" && e.Regarding.APIVersion == object.GetAPIVersion() && e.Regarding.UID == object.GetUID()
}

func TestAServiceImportIsATargetLikeAService(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"SERVICE_IMPORTS": "true"}})
	i := openImports(s)
	s.Must(s.Inventory.Start(s.Ctx()))
	s.Must(s.Writers[0].Launch())
	_, err := s.WaitLeading(s.Ctx())
	s.Must(err)
	workers := s.Join(2)
	both := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	s.Step("without the definition Services are served, and the writer is not ready", func(s *e2e.Setup) {
		s.Await("both serve", both)
		s.Until("readiness says why", func() bool {
			err := s.Writers[0].Check(s.Ctx(), "/readyz")
			return err != nil &&
				e2e.ContainsAll(err.Error(), "serviceimports.multicluster.x-k8s.io", "unset SERVICE_IMPORTS")
		})
	})
	i.define()
	s.Must(s.Writers[0].Ready(s.Ctx()))

	class, ports := map[string]any{"slicefeed.dev/class": "default"}, map[string]any{
		"slicefeed.dev/ports.default": fmt.Sprint(pair.NodePort),
	}
	object := i.make(newImport(pair.Service, class, ports))
	i.make(newImport("stranger", nil, ports))
	s.Step("it gets slices of its own, with the labels of the multi-cluster API", func(s *e2e.Setup) {
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
			s.T.Errorf("the slice's labels (-want +got):\n%s", diff)
		}
		owners := slice.OwnerReferences
		if len(owners) != 1 || owners[0].Kind != "ServiceImport" || owners[0].UID != object.GetUID() ||
			*slice.Ports[0].Port != pair.NodePort ||
			*slice.Ports[0].Name != "http" {
			s.T.Errorf("slice %s is owned by %v and has the ports %v", slice.Name, owners, slice.Ports)
		}
		if of := s.Slice(); of.Labels[importLabel] != "" || of.OwnerReferences[0].Kind != "Service" {
			s.T.Errorf("the Service of the same name: labels %v, owners %v", of.Labels, of.OwnerReferences)
		}
	})
	s.Step("people see it beside the Service of its name", func(s *e2e.Setup) {
		address, name := workers[0].Address.String(), "web/"+pair.Service+".serviceimport"
		s.AwaitMetric(s.Writers[0], `slicefeed_writer_target_managed{namespace="web",service="`+pair.Service+`.serviceimport"}`,
			e2e.Equals(1))
		s.AwaitMetric(s.Writers[0], e2e.Managed, e2e.Equals(1))
		s.Until("the status page shows it alone, with what was written for it", func() bool {
			code, text := e2e.Run(s.T, "slicefeed-writer", nil, "status", name, "--debug-address", s.Writers[0].DebugAddress())
			return code == 0 && e2e.ContainsAll(text, name, address, pair.Service+".serviceimport-slicefeed") &&
				!strings.Contains(text, "web/"+pair.Service+" ")
		})
		code, text := e2e.Run(s.T, "slicefeed-writer", s.Writers[0].Env(), "preflight")
		if code != 0 || !e2e.InOrder(text, "serviceimports ok may list serviceimports in web, watch serviceimports in web") {
			s.T.Errorf("preflight, exit code %d:\n%s", code, text)
		}
	})
	s.Step("the admission policy takes no other kind of that name for a target", func(s *e2e.Setup) {
		i := &imports{i.ResourceInterface, s}
		config := s.Consuming.AdminConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: pair.WriterUser}
		writer, err := kubernetes.NewForConfig(config)
		s.Must(err)
		slice := i.of(pair.Service)[0]
		for version, refused := range map[string]bool{"multicluster.x-k8s.io/v1alpha1": false, "example.org/v1": true} {
			slice.OwnerReferences[0].APIVersion = version
			_, err := writer.DiscoveryV1().EndpointSlices(pair.Namespace).
				Update(s.Ctx(), slice, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only add a Service or ServiceImport as owner")) ||
				!refused && err != nil {
				s.T.Errorf("an owner of %s: %v", version, err)
			}
		}
	})
	s.Step("a node that leaves is gone from both", func(s *e2e.Setup) {
		i := &imports{i.ResourceInterface, s}
		s.Must(workers[1].Leave(s.Ctx()))
		i.wait(pair.Service, "one serves", pair.AreJust(pair.Ready, workers[0].Address))
		s.Await("one serves", pair.AreJust(pair.Ready, workers[0].Address))
		if all := i.of("stranger"); len(all) != 0 {
			s.T.Errorf("one without our label has slices: %s", pair.Describe(all))
		}
	})
	s.Step("a mistake is told and changes nothing", func(s *e2e.Setup) {
		i := &imports{i.ResourceInterface, s}
		before := i.of(pair.Service)[0].ResourceVersion
		i.patch(pair.Service, `{"spec": {"ports": [{"name": "HTTP port", "port": 80}]}}`)
		i.tells(object, "InvalidServiceImport", "Port name", "HTTP port")
		third := s.Join(1)[0]
		if slice := i.of(pair.Service)[0]; slice.ResourceVersion != before {
			s.T.Errorf("it was written: %s", pair.Describe(i.of(pair.Service)))
		}
		i.patch(pair.Service, `{"spec": {"ports": [{"name": "http", "port": 80}]}}`)
		i.wait(pair.Service, "it is as the Service again", pair.AreJust(pair.Ready, workers[0].Address, third.Address))
		s.Must(third.Leave(s.Ctx()))
		i.wait(pair.Service, "one serves", pair.AreJust(pair.Ready, workers[0].Address))
	})
	s.Step("a label that others take for a Service's is taken back", func(s *e2e.Setup) {
		i := &imports{i.ResourceInterface, s}
		slice := i.of(pair.Service)[0]
		slice.Labels[discoveryv1.LabelServiceName] = pair.Service
		s.UpdateSlice(slice)
		s.Await("the Service has its own slice alone", func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 1 && all[0].OwnerReferences[0].Kind == "Service"
		})
		i.wait(pair.Service, "one serves", pair.AreJust(pair.Ready, workers[0].Address))
	})
	s.Step("without the label it is left, and the Service of its name is not", func(s *e2e.Setup) {
		i := &imports{i.ResourceInterface, s}
		i.patch(pair.Service, `{"metadata": {"labels": {"slicefeed.dev/class": null}}}`)
		i.tells(object, "LabelRemoved", "kubectl label serviceimport -n web "+pair.Service)
		i.wait(pair.Service, "it stays for a minute", pair.AreJust(pair.Ready, workers[0].Address))
		i.patch(pair.Service, `{"metadata": {"labels": {"slicefeed.dev/class": "none"}}}`)
		i.wait(pair.Service, "its slices are deleted", func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 0 })
		s.Await("the Service is served", pair.AreJust(pair.Ready, workers[0].Address))
		i.patch(pair.Service, `{"metadata": {"labels": {"slicefeed.dev/class": "default"}}}`)
		i.wait(pair.Service, "it is served again", pair.AreJust(pair.Ready, workers[0].Address))
	})
	s.Step("deleted, it is written no more: its slices go with their owner", func(s *e2e.Setup) {
		i := &imports{i.ResourceInterface, s}
		s.Must(i.Delete(s.Ctx(), pair.Service, metav1.DeleteOptions{}))
		s.AwaitMetric(s.Writers[0], `slicefeed_writer_target_managed{namespace="web",service="shop"}`, e2e.Equals(1))
		before := i.of(pair.Service)[0].ResourceVersion
		s.CatchUp()
		if slice := i.of(pair.Service)[0]; slice.ResourceVersion != before || len(slice.OwnerReferences) != 1 {
			s.T.Errorf("the slice of a ServiceImport that is gone was written: %v", slice)
		}
	})
}

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// adopt runs the command as a person who may do everything, unless the settings say otherwise.
func (s *stage) adopt(settings ...string) (int, string) {
	s.t.Helper()
	env := []string{
		"KUBECONFIG=" + s.Consuming.AdminKubeconfig(),
		"TARGET_NAMESPACE=" + pair.Namespace,
		"TARGET_SERVICE_NAME=" + pair.Service,
	}
	return run(s.t, "slicefeed-writer", append(env, settings...), "adopt", pair.Namespace+"/by-hand")
}

// applyByHand applies a slice as kubectl would on the server's side: conditions are left to
// what the API says of them.
func (s *stage) applyByHand(all ...netip.Addr) *discoveryv1.EndpointSlice {
	s.t.Helper()
	manifest := fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: by-hand
  namespace: %s
  labels: {kubernetes.io/service-name: %s}
  annotations: {example.org/note: keep}
addressType: IPv4
ports: [{name: http, port: %d, protocol: TCP}]
endpoints:
`, pair.Namespace, pair.Service, pair.NodePort)
	for _, a := range all {
		manifest += "- addresses: [" + a.String() + "]\n"
	}
	s.must(s.Consuming.ApplyYAML(s.ctx(), []byte(manifest)))
	return s.get("by-hand")
}

// get reads a slice from the API server itself: the watch may be behind.
func (s *stage) get(name string) *discoveryv1.EndpointSlice {
	s.t.Helper()
	slice, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Get(s.ctx(), name, metav1.GetOptions{})
	s.must(err)
	return slice
}

// serves tells slices in which all these addresses get traffic, however their conditions are
// written.
func serves(addresses ...netip.Addr) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		ready := map[string]bool{}
		for _, slice := range all {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					ready[e.Addresses[0]] = true
				}
			}
		}
		for _, a := range addresses {
			if !ready[a.String()] {
				return false
			}
		}
		return true
	}
}

// always wants each single state of the slices since then to be as told.
func (s *stage) always(since time.Time, what string, are func([]*discoveryv1.EndpointSlice) bool) {
	s.t.Helper()
	past, cancel := context.WithCancel(s.t.Context())
	cancel() // of what has been, not of what may come
	var bad string
	_, err := s.WaitSlicesSince(past, since, func(all []*discoveryv1.EndpointSlice) bool {
		bad = pair.Describe(all)
		return !are(all)
	})
	if err == nil {
		s.t.Errorf("there was a moment without it: %s; the slices said: %s", what, bad)
	}
}

// What kubectl needs to look a Service up by its name, and kubectl apply to change a slice.
var (
	getServices = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}}
	patchSlices = rbacv1.PolicyRule{
		APIGroups: []string{"discovery.k8s.io"},
		Resources: []string{"endpointslices"},
		Verbs:     []string{"patch"},
	}
)

// may gives the writer's account rights that it does not have by its Role, until the test ends.
func (s *stage) may(rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	roles, bindings := s.ConsumingClient().RbacV1().Roles(pair.Namespace), s.ConsumingClient().RbacV1().RoleBindings(pair.Namespace)
	meta := metav1.ObjectMeta{Namespace: pair.Namespace, Name: "besides"}
	_, err := roles.Create(s.ctx(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	s.must(err)
	_, err = bindings.Create(s.ctx(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: pair.Namespace, Name: "slicefeed-writer"}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(s.t.Context())
		if err := bindings.Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
		if err := roles.Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
}

func TestAdoptsASliceAppliedByHandInPlace(t *testing.T) {
	s := enter(t, script{writer: map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}})
	writer := s.writers[0]
	var workers []netip.Addr
	for range 2 {
		w := s.machine(pair.WorkerOptions{})
		s.must(w.Join(s.ctx()))
		workers = append(workers, w.Address)
	}
	before := s.applyByHand(workers...)
	s.slices("it serves", serves(workers...))
	since := time.Now()
	s.start()
	earlier := s.writes()

	// refused wants the command to say this, and the slice to stay as it is.
	refused := func(s *stage, says string, settings ...string) {
		s.t.Helper()
		code, text := s.adopt(settings...)
		if code != 1 || !strings.Contains(text, says) {
			s.t.Errorf("exit code %d, want 1 and %q:\n%s", code, says, text)
		}
		if now := s.get("by-hand"); now.ResourceVersion != before.ResourceVersion {
			s.t.Errorf("it was written: %+v", now)
		}
	}
	s.step("not for a Service that is not the writer's", func(s *stage) {
		refused(s, "is not of class default", "TARGET_NAMESPACE=", "TARGET_SERVICE_NAME=")
	})
	s.step("not with the writer's credential, which may neither read the Service nor patch", func(s *stage) {
		refused(s, "a credential of your own", "KUBECONFIG="+s.writersKubeconfig())
	})
	s.step("and which could not label it if it might: the policy forbids it", func(s *stage) {
		s.may(getServices, patchSlices)
		s.until("the authorizer knows it", func() bool {
			_, text := s.adopt("KUBECONFIG=" + s.writersKubeconfig())
			return strings.Contains(text, "ValidatingAdmissionPolicy")
		})
		refused(s, `managed by ""; if the writer should take it over, a person has to label it`, "KUBECONFIG="+s.writersKubeconfig())
	})
	s.step("a dry run says what would be, and changes nothing", func(s *stage) {
		code, text := s.adopt("DRY_RUN=true")
		if code != 0 || !containsAll(text, "would be adopted", "+ label endpointslice.kubernetes.io/managed-by slicefeed-default") {
			s.t.Errorf("exit code %d:\n%s", code, text)
		}
		if now := s.get("by-hand"); now.ResourceVersion != before.ResourceVersion {
			s.t.Errorf("it was written: %+v", now)
		}
	})
	m := s.migrate()
	m.says("kubectl -n web annotate service shop slicefeed.dev/paused=true")
	s.metric(writer, `slicefeed_writer_target_paused{namespace="web",service="shop"}`, equals(1))
	s.step("one label changes, by the page's command and in its words, and who applied it is named", func(s *stage) {
		code, text := m.shell("slicefeed-writer adopt")
		_, want, _ := strings.Cut(m.page, m.command("slicefeed-writer adopt")+"\nat ")
		want, _, _ = strings.Cut("at "+want, "```")
		text = strings.Replace(text, `"slicefeed-lab"`, `"kubectl"`, 1) // who applies in the lab
		if diff := cmp.Diff(want, text); code != 0 || diff != "" {
			s.t.Errorf("exit code %d (-documented +said):\n%s", code, diff)
		}
		was, now := before.DeepCopy(), s.get("by-hand")
		was.Labels[discoveryv1.LabelManagedBy] = "slicefeed-default"
		was.ResourceVersion, was.ManagedFields, was.Generation = now.ResourceVersion, now.ManagedFields, now.Generation
		if diff := cmp.Diff(was, now); diff != "" {
			s.t.Errorf("(-want +got):\n%s", diff)
		}
	})
	s.step("a second time there is nothing to do", func(s *stage) {
		if code, text := s.adopt(); code != 0 || !strings.Contains(text, "nothing to do") {
			s.t.Errorf("exit code %d:\n%s", code, text)
		}
	})
	all, err := s.Writes(s.ctx())
	s.must(err)
	for _, write := range all[earlier:] {
		if write.Verb != "patch" { // those were adopt's, with the writer's credential
			t.Errorf("the writer wrote while it was paused: %+v", write)
		}
	}
	s.step("unpaused, the writer takes it over with one write of its metadata", func(s *stage) {
		earlier := s.writes()
		m.says("kubectl -n web annotate service shop slicefeed.dev/paused-")
		s.slices("it belongs to the Service", owned(s))
		s.metric(writer, `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, equals(2))
		after := s.slice()
		if diff := cmp.Diff(
			[]any{before.UID, before.Endpoints, before.Ports, before.Annotations},
			[]any{after.UID, after.Endpoints, after.Ports, after.Annotations},
		); diff != "" {
			s.t.Errorf("more than its metadata changed (-before +after):\n%s", diff)
		}
		all, err := s.Writes(s.ctx())
		s.must(err)
		if all = all[earlier:]; len(all) != 1 || all[0].Verb != "update" || all[0].Code != 200 {
			s.t.Errorf("the writes were %+v, want one update", all)
		}
	})
	s.step("and it is the writer's from then on", func(s *stage) {
		third := s.join(1)[0]
		if now := s.slice(); now.UID != before.UID || !serves(append(workers, third.Address)...)([]*discoveryv1.EndpointSlice{now}) {
			s.t.Errorf("the new worker is not in it: %+v", now)
		}
	})
	s.always(since, "both workers", serves(workers...))
}

func TestAdoptingBesideARunningWriterNeverTakesAnEndpointAway(t *testing.T) {
	s := enter(t, script{})
	s.start()
	workers := s.join(2)
	all := addresses(workers)
	since := time.Now()
	s.applyByHand(all...)
	s.event("ForeignSlices")
	if code, text := s.adopt(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, text)
	}
	s.slices("the two have become one", pair.AreJust(pair.Ready, all...))
	s.slice()
	s.always(since, "both workers", serves(all...))
}

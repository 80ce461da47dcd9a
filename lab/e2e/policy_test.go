package e2e

import (
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestAttackPolicyLetsPassWhatTheWriterMayWrite(t *testing.T) {
	s := enter(t, script{})
	writer := s.as(s.writersKubeconfig())
	template := sliceOf("allowed", "slicefeed-default", netip.MustParseAddr("10.0.1.66"))
	service := metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: s.service.Name, UID: s.service.UID}
	other := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "polling-controller", UID: "1"}
	for _, one := range []struct {
		name string
		is   *discoveryv1.EndpointSlice // as somebody else left it; nil: it is new
		how  func(*discoveryv1.EndpointSlice)
	}{
		{name: "no endpoints and no ports", how: func(slice *discoveryv1.EndpointSlice) { slice.Endpoints, slice.Ports = nil, nil }},
		{name: "a hundred endpoints at a hundred ports", how: full},
		{name: "an endpoint that is out", how: func(slice *discoveryv1.EndpointSlice) { slice.Endpoints[0].Conditions.Ready = new(false) }},
		{name: "the ends of the range of ports", how: func(slice *discoveryv1.EndpointSlice) {
			first, last := slice.Ports[0], slice.Ports[0]
			first.Port, last.Port, last.Name = new(int32(30000)), new(int32(32767)), new("last")
			slice.Ports = []discoveryv1.EndpointPort{first, last}
		}},
		{name: "the label of the target given by name", how: managedBy("endpoint-updater")},
		{name: "the owner of a slice from before beside the Service", is: changed(template, withOwner(other)), how: withOwner(service)},
		{name: "a slice whose finalizer is there already", is: changed(template, func(slice *discoveryv1.EndpointSlice) {
			slice.Finalizers = []string{"example.org/theirs"}
		}), how: withOwner(service)},
		{name: "a slice that kubectl applied, which notes all of it", is: changed(template, bigAnnotation(100_000)), how: func(slice *discoveryv1.EndpointSlice) {
			bigAnnotation(100_000)(slice)
			withOwner(service)(slice)
		}},
		{name: "the largest slice that the writer makes", how: largest},
		{name: "an address outside put right", is: changed(template, pointTo("10.0.2.66")), how: pointTo("10.0.1.67")},
		{name: "the name of a Service put right", is: changed(template, func(slice *discoveryv1.EndpointSlice) {
			slice.Labels[discoveryv1.LabelServiceName] = "another"
		}), how: func(slice *discoveryv1.EndpointSlice) { slice.Labels[discoveryv1.LabelServiceName] = pair.Service }},
	} {
		s.step(one.name, func(s *stage) {
			if one.is != nil {
				s.put(one.is)
			} else {
				s.must(create(changed(template, one.how))(s.ctx(), writer, nil))
			}
			start := time.Now()
			s.must(change(pair.Namespace, template.Name, func(slice *discoveryv1.EndpointSlice) {
				slice.Annotations = map[string]string{"changed": "yes"}
			}, one.how)(s.ctx(), writer, nil))
			s.t.Logf("changed within %s", time.Since(start))
			s.must(remove(pair.Namespace, template.Name)(s.ctx(), writer, nil))
			if one.is != nil && len(one.is.Finalizers) > 0 {
				s.must(change(pair.Namespace, template.Name, func(slice *discoveryv1.EndpointSlice) {
					slice.Finalizers = nil
				})(s.ctx(), s.ConsumingClient(), nil))
			}
		})
	}
}

func TestAttackPolicyIsNotInTheWayOfTheWritersLife(t *testing.T) {
	const manager = "endpoint-updater"
	s := enter(t, script{writer: map[string]string{"TARGET_ENDPOINTSLICE_NAME": "from-before", "TARGET_MANAGED_BY": manager}})
	earlier := s.writes()
	first := s.machine(pair.WorkerOptions{})
	s.must(first.Join(s.ctx()))
	s.put(sliceOf("from-before", manager, first.Address))
	services := s.ConsumingClient().CoreV1().Services(pair.Namespace)

	s.start()
	s.slices("the slice from before is taken over", owned(s))
	second := s.join(1)[0]
	s.must(second.Set(backend.Refuse))
	s.slices("the dead backend is out", pair.Are(pair.Out, second.Address))
	s.must(second.Set(backend.Serve))
	s.slices("it serves again", pair.AreJust(pair.Ready, first.Address, second.Address))
	s.must(second.Drain(s.ctx(), true))
	s.slices("the second drains", pair.Are(pair.Draining, second.Address))
	s.must(second.Leave(s.ctx()))
	s.slices("the second is gone", pair.AreJust(pair.Ready, first.Address))
	gone := s.slice().UID
	s.must(s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Delete(s.ctx(), "from-before", metav1.DeleteOptions{}))
	s.slices("the slice that somebody deleted is back", func(all []*discoveryv1.EndpointSlice) bool {
		return pair.AreJust(pair.Ready, first.Address)(all) && all[0].UID != gone
	})
	s.must(services.Delete(s.ctx(), pair.Service, metav1.DeleteOptions{}))
	s.metric(s.writers[0], managed, equals(0))
	s.createService(nil)
	s.slices("the slice belongs to the Service made anew", owned(s))

	all, err := s.Writes(s.ctx())
	s.must(err)
	verbs := map[string]bool{}
	for _, write := range all[earlier:] {
		if verbs[write.Verb] = true; write.Code >= 400 {
			t.Errorf("%s of %s was answered with %d", write.Verb, write.Name, write.Code)
		}
	}
	if !verbs["create"] || !verbs["update"] {
		t.Errorf("the writer has only used %v", slices.Collect(maps.Keys(verbs)))
	}
}

// owned tells one slice that belongs to this test's Service alone.
func owned(s *stage) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && len(all[0].OwnerReferences) == 1 && all[0].OwnerReferences[0].UID == s.service.UID
	}
}

// The commands of docs/design/policy.md, run as they are written there.
func TestAttackPolicyCanBeSeenToWork(t *testing.T) {
	s := enter(t, script{})
	root, err := pair.Root()
	s.must(err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "policy.md"))
	s.must(err)
	programs, err := controlplane.Build(s.ctx(), os.Stderr)
	s.must(err)
	_, rest, _ := strings.Cut(string(page), "```console\n$ ")
	command, rest, ok := strings.Cut(rest, "\nEOF\n")
	want, _, ends := strings.Cut(rest, "\n```")
	if !ok || !ends || !strings.Contains(command, "10.99.99.99") {
		t.Fatal("docs/design/policy.md shows no command")
	}
	run := func(command string) string {
		cmd := exec.CommandContext(s.ctx(), "sh", "-c", command+"\nEOF\n")
		cmd.Env = []string{
			"PATH=" + filepath.Dir(programs.Kubectl) + ":" + os.Getenv("PATH"),
			"KUBECONFIG=" + s.Consuming.AdminKubeconfig(),
			"HOME=" + t.TempDir(),
		}
		said, _ := cmd.CombinedOutput()
		return strings.TrimSpace(string(said))
	}
	if diff := cmp.Diff(want, run(command)); diff != "" {
		t.Errorf("an address outside (-documented +said):\n%s", diff)
	}
	if got := run(strings.Replace(command, "10.99.99.99", "10.0.1.99", 1)); !strings.HasSuffix(got, "created (server dry run)") {
		t.Errorf("an address inside: %s", got)
	}
}

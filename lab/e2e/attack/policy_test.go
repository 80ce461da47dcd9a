package attack

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
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestAttackPolicyLetsPassWhatTheWriterMayWrite(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	writer := s.ClientWith(s.WriterKubeconfig())
	template := e2e.NewSlice("allowed", "slicefeed-default", netip.MustParseAddr("10.0.1.66"))
	service := metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: s.Service.Name, UID: s.Service.UID}
	other := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "polling-controller", UID: "1"}
	for _, one := range []struct {
		name string
		is   *discoveryv1.EndpointSlice // as somebody else left it; nil: it is new
		how  func(*discoveryv1.EndpointSlice)
	}{
		{name: "no endpoints and no ports", how: func(slice *discoveryv1.EndpointSlice) { slice.Endpoints, slice.Ports = nil, nil }},
		{name: "a hundred endpoints at a hundred ports", how: full},
		{name: "an adopted slice with more than a hundred", is: changed(template, full, oneMore), how: func(slice *discoveryv1.EndpointSlice) {
			full(slice)
			oneMore(slice)
			slice.Endpoints[0].Conditions.Ready = new(false)
		}},
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
		s.Step(one.name, func(s *e2e.Setup) {
			if one.is != nil {
				s.CreateSlice(one.is)
			} else {
				s.Must(create(changed(template, one.how))(s.Ctx(), writer, nil))
			}
			start := time.Now()
			s.Must(change(pair.Namespace, template.Name, func(slice *discoveryv1.EndpointSlice) {
				slice.Annotations = map[string]string{"changed": "yes"}
			}, one.how)(s.Ctx(), writer, nil))
			s.T.Logf("changed within %s", time.Since(start))
			s.Must(remove(pair.Namespace, template.Name)(s.Ctx(), writer, nil))
			if one.is != nil && len(one.is.Finalizers) > 0 {
				s.Must(change(pair.Namespace, template.Name, func(slice *discoveryv1.EndpointSlice) {
					slice.Finalizers = nil
				})(s.Ctx(), s.ConsumingClient(), nil))
			}
		})
	}
}

func TestAttackPolicyIsNotInTheWayOfTheWritersLife(t *testing.T) {
	e2e.Long(t)
	const manager = "endpoint-updater"
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"TARGET_ENDPOINTSLICE_NAME": "from-before", "TARGET_MANAGED_BY": manager}})
	earlier := s.WriteCount()
	first := s.Machine(pair.WorkerOptions{})
	s.Must(first.Join(s.Ctx()))
	s.CreateSlice(e2e.NewSlice("from-before", manager, first.Address))
	services := s.ConsumingClient().CoreV1().Services(pair.Namespace)

	s.StartAll()
	s.Await("the slice from before is taken over", e2e.Owned(s))
	second := s.Join(1)[0]
	s.Must(second.Set(backend.Refuse))
	s.Await("the dead backend is out", pair.Are(pair.Out, second.Address))
	s.Must(second.Set(backend.Serve))
	s.Await("it serves again", pair.AreJust(pair.Ready, first.Address, second.Address))
	s.Must(second.Drain(s.Ctx(), true))
	s.Await("the second drains", pair.Are(pair.Draining, second.Address))
	s.Must(second.Leave(s.Ctx()))
	s.Await("the second is gone", pair.AreJust(pair.Ready, first.Address))
	gone := s.Slice().UID
	s.Must(s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Delete(s.Ctx(), "from-before", metav1.DeleteOptions{}))
	s.Await("the slice that somebody deleted is back", func(all []*discoveryv1.EndpointSlice) bool {
		return pair.AreJust(pair.Ready, first.Address)(all) && all[0].UID != gone
	})
	s.Must(services.Delete(s.Ctx(), pair.Service, metav1.DeleteOptions{}))
	s.AwaitMetric(s.Writers[0], e2e.Managed, e2e.Equals(0))
	s.RecreateService(nil)
	s.Await("the slice belongs to the Service that was created again", e2e.Owned(s))

	all, err := s.Writes(s.Ctx())
	s.Must(err)
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

// The commands of docs/design/policy.md, run as they are written there.
func TestAttackPolicyCanBeSeenToWork(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	root, err := pair.Root()
	s.Must(err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "policy.md"))
	s.Must(err)
	programs, err := controlplane.Build(s.Ctx(), os.Stderr)
	s.Must(err)
	_, rest, _ := strings.Cut(string(page), "```console\n$ ")
	command, rest, ok := strings.Cut(rest, "\nEOF\n")
	want, _, ends := strings.Cut(rest, "\n```")
	if !ok || !ends || !strings.Contains(command, "10.99.99.99") {
		t.Fatal("docs/design/policy.md shows no command")
	}
	run := func(command string) string {
		cmd := exec.CommandContext(s.Ctx(), "sh", "-c", command+"\nEOF\n")
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

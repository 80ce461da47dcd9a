package preflight

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ktesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

func newService(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

func newSlice(name, service, managedBy string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: managedBy, planner.LabelWriter: "slicefeed",
	}}}
}

func withAnnotation(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{"slicefeed.dev/" + name: value} }
}

// labeled gives a Service a name and the class label.
func labeled(namespace, name string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Namespace, s.Name, s.UID = namespace, name, types.UID(namespace+name)
		s.Labels = map[string]string{targets.LabelClass: "default"}
	}
}

func TestServicesCheckOfOneService(t *testing.T) {
	foreign := newSlice("theirs", "shop", "them")
	for _, tt := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"it can be managed", []runtime.Object{newService(nil), newSlice("owned", "shop", "slicefeed-default")}, "ok|web/shop can be managed, port 30080/TCP; owned slices: 1"},
		{"it does not exist", nil, "FAIL|Service shop does not exist in namespace web"},
		{"a selector", []runtime.Object{newService(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "shop"} })}, "FAIL|web/shop: |Remove spec.selector"},
		{"a port that is not allowed", []runtime.Object{newService(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(22) })}, "FAIL|ALLOWED_PORTS"},
		{"others' slices", []runtime.Object{newService(nil), foreign}, "WARN|web/shop: |theirs|delete them unless this is intended"},
		{"paused", []runtime.Object{newService(withAnnotation("paused", "true"))}, "WARN|web/shop: |paused"},
		{"a Service in another namespace that is not watched", []runtime.Object{newService(nil), newService(labeled("other", "shop"))}, "ok|web/shop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, _ := newTestChecker(t, nil, tt.objects...)
			detail, err := pc.findCheck(servicesCheckName).Run(t.Context())
			wantOutcome(t, tt.want, detail, err)
		})
	}
}

func TestServicesCheckSummarizesManyServices(t *testing.T) {
	withAll := func(changes ...func(*corev1.Service)) *corev1.Service {
		return newService(func(s *corev1.Service) {
			for _, change := range changes {
				change(s)
			}
		})
	}
	rejected := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }
	otherClass := func(s *corev1.Service) { s.Labels[targets.LabelClass] = "another" }
	for _, tt := range []struct {
		name    string
		set     map[string]string
		objects []runtime.Object
		want    []string
	}{
		{"none", labeledOnly("web,depot"), []runtime.Object{newService(nil)}, []string{"WARN Services no Service of depot, web is labeled slicefeed.dev/class: default, and TARGET_SERVICE_NAME is not set"}},
		{"none in any namespace", labeledOnly("*"), nil, []string{"WARN Services no Service of any namespace is"}},
		{"all can be managed", labeledOnly("*"), []runtime.Object{newService(labeled("web", "a")), newService(labeled("web", "b")), newService(labeled("depot", "c"))}, []string{"ok Services 3 of 3 can be managed: depot/c, web/a, web/b"}},
		{
			"more than are listed", labeledOnly("*"),
			[]runtime.Object{newService(labeled("web", "a")), newService(labeled("web", "b")), newService(labeled("web", "c")), newService(labeled("web", "d")), newService(labeled("web", "e"))},
			[]string{"ok Services 5 of 5 can be managed: web/a, web/b, web/c and 2 more"},
		},
		{"with a named target", nil, []runtime.Object{newService(nil), newService(labeled("web", "a"))}, []string{"ok Services 2 of 2 can be managed: web/a, web/shop"}},
		{"another class", labeledOnly("web"), []runtime.Object{withAll(labeled("web", "a"), otherClass), newService(labeled("web", "b"))}, []string{"ok Services web/b can be managed, port 30080/TCP; owned slices: 0"}},
		{"failures come first", labeledOnly("web"), []runtime.Object{
			withAll(labeled("web", "a"), withAnnotation("paused", "true")), withAll(labeled("web", "b"), rejected), newService(labeled("web", "c")), withAll(labeled("web", "d"), withAnnotation("probe", "icmp")),
		}, []string{
			"ok Services 2 of 4 can be managed: web/a, web/c", "FAIL Service web/b Services of type ExternalName",
			"FAIL Service web/d Service is not managed because of invalid annotations", "WARN Service web/a paused by annotation",
		}},
		{"none can be managed", labeledOnly("web"), []runtime.Object{withAll(labeled("web", "a"), rejected), withAll(labeled("web", "b"), rejected)}, []string{
			"FAIL Services none of 2 can be managed", "FAIL Service web/a", "FAIL Service web/b",
		}},
		{"owned slices of other Services", labeledOnly("web"), []runtime.Object{
			newService(labeled("web", "a")), newService(nil), newSlice("orphaned", "shop", "slicefeed-default"), withAll(labeled("web", "b"), otherClass), newSlice("opted-out", "b", "slicefeed-default"), newSlice("theirs", "c", "them"),
			newSlice("orphan", "gone", "slicefeed-default"), newService(func(s *corev1.Service) { s.Name = "unlabeled" }),
		}, []string{"ok Services 2 of 3 can be managed: web/a, web/b", "FAIL Service web/shop Owned slices remain", "WARN Service web/b opted out; its slices will be deleted: 1"}},
		{"no source annotation", twoSources(t, labeledOnly("web")), []runtime.Object{
			newService(labeled("web", "a")), withAll(labeled("web", "b"), withAnnotation("source", "blue")), withAll(labeled("web", "c"), withAnnotation("source", "red")),
		}, []string{"ok Services 1 of 3 can be managed: web/b", "FAIL Service web/a Several sources are configured", "FAIL Service web/c Source \"red\" does not exist"}},
		{"a source that this namespace may not use", twoSources(t, labeledOnly("depot")), []runtime.Object{withAll(labeled("depot", "a"), withAnnotation("source", "green"))}, []string{"FAIL Services depot/a: Services in namespace depot may not use source green"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, _ := newTestChecker(t, tt.set, tt.objects...)
			wantPrefixes(t, tt.want, runCheck(t, pc.findCheck(servicesCheckName)))
		})
	}
}

func TestServicesCheckLimitsLines(t *testing.T) {
	var objects []runtime.Object
	for i := range 3000 {
		s := newService(labeled("web", fmt.Sprintf("s%04d", i)))
		if i%2 == 1 {
			s.Spec.Type = corev1.ServiceTypeExternalName
		}
		objects = append(objects, s)
	}
	pc, _ := newTestChecker(t, labeledOnly("*"), objects...)
	got := runCheck(t, pc.findCheck(servicesCheckName))
	if len(got) != 22 {
		t.Fatalf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
	wantPrefixes(
		t,
		[]string{"ok Services 1500 of 3000 can be managed: web/s0000, web/s0002, web/s0004 and 1497 more", "FAIL Service web/s0001"},
		got[:2],
	)
	wantPrefixes(t, []string{"FAIL Service others 1480 more with problems"}, got[21:])
}

func TestServicesCheckReportsListErrors(t *testing.T) {
	for _, resource := range []string{"services", "endpointslices"} {
		pc, client := newTestChecker(t, nil, newService(nil))
		client.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("etcd is down"))
		})
		detail, err := pc.findCheck(servicesCheckName).Run(t.Context())
		wantOutcome(t, "FAIL|etcd is down", detail, err)
	}
}

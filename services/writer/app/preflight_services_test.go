package app

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

func shop(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

func slice(name, service, managedBy string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: managedBy, planner.LabelWriter: "slicefeed",
	}}}
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{"slicefeed.dev/" + name: value} }
}

// in puts a Service of that name there, with our label.
func in(namespace, name string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Namespace, s.Name, s.UID = namespace, name, types.UID(namespace+name)
		s.Labels = map[string]string{targets.LabelClass: "default"}
	}
}

func TestSaysWhetherTheServiceCanBeServed(t *testing.T) {
	foreign := slice("theirs", "shop", "them")
	for _, tt := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"yes", []runtime.Object{shop(nil), slice("ours", "shop", "slicefeed-default")}, "ok|web/shop can be served, at port 30080/TCP; slices of ours: 1"},
		{"there is none", nil, "FAIL|There is no Service shop in the namespace web"},
		{"a selector", []runtime.Object{shop(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "shop"} })}, "FAIL|web/shop: |remove spec.selector"},
		{"a port outside of the fence", []runtime.Object{shop(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(22) })}, "FAIL|ALLOWED_PORTS"},
		{"others' slices", []runtime.Object{shop(nil), foreign}, "WARN|web/shop: |theirs|delete them unless that is meant"},
		{"paused", []runtime.Object{shop(annotated("paused", "true"))}, "WARN|web/shop: |paused"},
		{"one of another namespace is not asked for", []runtime.Object{shop(nil), shop(in("other", "shop"))}, "ok|web/shop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := ground(t, nil, tt.objects...)
			saw, err := f.services().Run(t.Context())
			agrees(t, tt.want, saw, err)
		})
	}
}

func TestManyServicesShareALineAndThoseThatAreNotFineHaveTheirOwn(t *testing.T) {
	both := func(changes ...func(*corev1.Service)) *corev1.Service {
		return shop(func(s *corev1.Service) {
			for _, change := range changes {
				change(s)
			}
		})
	}
	refused := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }
	another := func(s *corev1.Service) { s.Labels[targets.LabelClass] = "another" }
	for _, tt := range []struct {
		name    string
		set     map[string]string
		objects []runtime.Object
		want    []string
	}{
		{"none", many("web,depot"), []runtime.Object{shop(nil)}, []string{"WARN Services no Service of depot, web is labelled slicefeed.dev/class: default, and TARGET_SERVICE_NAME is not set"}},
		{"none anywhere", many("*"), nil, []string{"WARN Services no Service of any namespace is"}},
		{"all are fine", many("*"), []runtime.Object{shop(in("web", "a")), shop(in("web", "b")), shop(in("depot", "c"))}, []string{"ok Services 3 of 3 can be served: depot/c, web/a, web/b"}},
		{
			"so many that not all are named", many("*"),
			[]runtime.Object{shop(in("web", "a")), shop(in("web", "b")), shop(in("web", "c")), shop(in("web", "d")), shop(in("web", "e"))},
			[]string{"ok Services 5 of 5 can be served: web/a, web/b, web/c and 2 more"},
		},
		{"the one by name is among them", nil, []runtime.Object{shop(nil), shop(in("web", "a"))}, []string{"ok Services 2 of 2 can be served: web/a, web/shop"}},
		{"those of another class are not", many("web"), []runtime.Object{both(in("web", "a"), another), shop(in("web", "b"))}, []string{"ok Services web/b can be served, at port 30080/TCP; slices of ours: 0"}},
		{"what fails comes first", many("web"), []runtime.Object{
			both(in("web", "a"), annotated("paused", "true")), both(in("web", "b"), refused), shop(in("web", "c")), both(in("web", "d"), annotated("probe", "icmp")),
		}, []string{
			"ok Services 2 of 4 can be served: web/a, web/c", "FAIL Service web/b A Service of type ExternalName",
			"FAIL Service web/d The Service is not served, since annotations cannot be read", "WARN Service web/a it is paused",
		}},
		{"none can be served", many("web"), []runtime.Object{both(in("web", "a"), refused), both(in("web", "b"), refused)}, []string{
			"FAIL Services none of 2 can be served", "FAIL Service web/a", "FAIL Service web/b",
		}},
		{"slices of ours are left of others", many("web"), []runtime.Object{
			shop(in("web", "a")), shop(nil), slice("left", "shop", "slicefeed-default"), both(in("web", "b"), another), slice("leaving", "b", "slicefeed-default"), slice("theirs", "c", "them"),
			slice("orphan", "gone", "slicefeed-default"), shop(func(s *corev1.Service) { s.Name = "nobodys" }),
		}, []string{"ok Services 2 of 3 can be served: web/a, web/b", "FAIL Service web/shop Slices of ours are left", "WARN Service web/b it has left this writer, which deletes its slices of it: 1"}},
		{"which source is not said", twoSources(t, many("web")), []runtime.Object{
			shop(in("web", "a")), both(in("web", "b"), annotated("source", "blue")), both(in("web", "c"), annotated("source", "red")),
		}, []string{"ok Services 1 of 3 can be served: web/b", "FAIL Service web/a There are several sources", "FAIL Service web/c There is no source \"red\""}},
		{"a source is not for this namespace", twoSources(t, many("depot")), []runtime.Object{both(in("depot", "a"), annotated("source", "green"))}, []string{"FAIL Services depot/a: Services of the namespace depot may not point to source green"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := ground(t, tt.set, tt.objects...)
			begins(t, tt.want, told(t, f.services()))
		})
	}
}

func TestThousandsOfServicesTakeTwentyLines(t *testing.T) {
	var objects []runtime.Object
	for i := range 3000 {
		s := shop(in("web", fmt.Sprintf("s%04d", i)))
		if i%2 == 1 {
			s.Spec.Type = corev1.ServiceTypeExternalName
		}
		objects = append(objects, s)
	}
	f, _ := ground(t, many("*"), objects...)
	got := told(t, f.services())
	if len(got) != 22 {
		t.Fatalf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
	begins(t, []string{"ok Services 1500 of 3000 can be served: web/s0000, web/s0002, web/s0004 and 1497 more", "FAIL Service web/s0001"}, got[:2])
	begins(t, []string{"FAIL Service others 1480 more are not fine"}, got[21:])
}

func TestAClusterThatCannotBeReadIsSaid(t *testing.T) {
	for _, resource := range []string{"services", "endpointslices"} {
		f, client := ground(t, nil, shop(nil))
		client.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
		})
		saw, err := f.services().Run(t.Context())
		agrees(t, "FAIL|etcd is away", saw, err)
	}
}

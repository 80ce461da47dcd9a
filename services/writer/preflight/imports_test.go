package preflight

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/targets/targetstest"
)

// newImportChecker returns a checker with SERVICE_IMPORTS, of a cluster with the ServiceImport web/shop.
func newImportChecker(
	t *testing.T,
	alter func(object map[string]any),
	objects ...runtime.Object,
) (*checker, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	set := labeledOnly("web")
	set["SERVICE_IMPORTS"] = "true"
	pc, _ := newTestChecker(t, set, objects...)
	object := targetstest.NewImport()
	if alter != nil {
		alter(object.Object)
	}
	client := targetstest.NewImportClient(object)
	pc.imports = client
	return pc, client
}

func TestServicesCheckFindsServiceImports(t *testing.T) {
	mine := targetstest.OwnedImportSlice("shop.serviceimport-slicefeed", "import-1")
	for _, tt := range []struct {
		name                string
		alter               func(map[string]any)
		objects             []runtime.Object
		imports, allTargets string
	}{
		{
			"it can be managed", nil,
			[]runtime.Object{mine},
			"ok|serves them; labeled slicefeed.dev/class=default: 1",
			"ok|web/shop.serviceimport can be managed, port 80/TCP; owned slices: 1",
		},
		{
			"beside a Service of its name", nil,
			[]runtime.Object{newService(labeled("web", "shop"))},
			"ok",
			"ok|2 of 2 can be managed: web/shop, web/shop.serviceimport",
		},
		{
			"it is not valid", func(o map[string]any) { o["spec"].(map[string]any)["type"] = "ClusterIP" }, nil, "ok|: 1",
			"FAIL|web/shop.serviceimport: spec.type of the ServiceImport",
		},
		{
			"it has no label", func(o map[string]any) { delete(o["metadata"].(map[string]any), "labels") }, nil, "ok|: 0",
			"WARN|no Service of web is labeled",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, _ := newImportChecker(t, tt.alter, tt.objects...)
			for check, want := range map[string]string{importsCheckName: tt.imports, servicesCheckName: tt.allTargets} {
				detail, err := pc.findCheck(check).Run(t.Context())
				wantOutcome(t, want, detail, err)
			}
		})
	}
}

func TestMissingServiceImportsFailTheirOwnCheck(t *testing.T) {
	pc, client := newImportChecker(t, nil, newService(labeled("web", "shop")))
	client.PrependReactor("list", "serviceimports", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	detail, err := pc.findCheck(importsCheckName).Run(t.Context())
	wantOutcome(
		t,
		"FAIL|does not serve serviceimports.multicluster.x-k8s.io|install the CustomResourceDefinition of sigs.k8s.io/mcs-api, or unset SERVICE_IMPORTS",
		detail,
		err,
	)
	detail, err = pc.findCheck(servicesCheckName).Run(t.Context())
	wantOutcome(t, "ok|web/shop can be managed", detail, err)
}

func TestPermissionsCoverServiceImportsOnlyIfTheyAreTargets(t *testing.T) {
	texts := func(all []preflight.Permission) (of []string) {
		for _, p := range all {
			if p.Resource == "serviceimports" {
				of = append(of, p.String())
			}
		}
		return of
	}
	pc, _ := newImportChecker(t, nil)
	if d := cmp.Diff([]string{"list serviceimports in web", "watch serviceimports in web"}, texts(pc.requiredPermissions())); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"update serviceimports in web"}, texts(pc.excessPermissions())); d != "" {
		t.Error(d)
	}
	pc, _ = newTestChecker(t, labeledOnly("web"))
	if all := texts(
		slices.Concat(pc.requiredPermissions(), pc.excessPermissions()),
	); len(all) > 0 ||
		slices.ContainsFunc(pc.checks(), func(c preflight.Check) bool { return c.Name == importsCheckName }) {
		t.Errorf("without SERVICE_IMPORTS: %v", all)
	}
}

func TestPolicyCheckTriesASliceOfAServiceImport(t *testing.T) {
	for _, tt := range []struct {
		allowed bool
		want    string
	}{{true, "ok"}, {false, "FAIL|denied too|only a Service"}} {
		pc, _ := newImportChecker(t, nil)
		tried := false
		denied := func(why string) error {
			return apierrors.NewForbidden(
				discoveryv1.Resource("endpointslices"),
				"it",
				errors.New("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "+why),
			)
		}
		admit := func(s *discoveryv1.EndpointSlice) error {
			switch {
			case s.Endpoints[0].Addresses[0] == "192.0.2.1":
				return denied("outside")
			case len(s.OwnerReferences) == 0:
				return nil
			}
			tried = s.OwnerReferences[0].Kind == "ServiceImport" && s.Labels["multicluster.kubernetes.io/service-name"] != "" &&
				s.Labels[discoveryv1.LabelServiceName] == ""
			if !tt.allowed {
				return denied("only a Service")
			}
			return nil
		}
		pc.client.(*fake.Clientset).PrependReactor("create", "endpointslices", func(a ktesting.Action) (bool, runtime.Object, error) {
			slice := a.(ktesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
			return true, slice, admit(slice)
		})
		if _, err := pc.findServices(t.Context()); err != nil {
			t.Fatal(err)
		}
		detail, err := pc.checkPolicy(t.Context())
		wantOutcome(t, tt.want, detail, err)
		if !tried {
			t.Error("no slice of a ServiceImport was tried")
		}
	}
}

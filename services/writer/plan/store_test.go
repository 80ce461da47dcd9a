package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slicefeed/slicefeed/services/writer/applier"
)

func TestDryRunPrintsWritesAndRemembersThem(t *testing.T) {
	client := fake.NewClientset(ownedSlice("10.0.1.1", "10.0.1.2"))
	var out strings.Builder
	dryRun := NewStore(&out, applier.Kubernetes(client, ""))
	current, err := dryRun.Get(t.Context(), "web", "shop-slicefeed")
	if err != nil {
		t.Fatal(err)
	}
	changed := current.DeepCopy()
	changed.Endpoints = append(changed.Endpoints[:1], ownedSlice("10.0.1.3").Endpoints...)
	answer, err := dryRun.Update(t.Context(), changed)
	if err != nil || answer.ResourceVersion == "" {
		t.Fatalf("got version %q, error %v", answer.ResourceVersion, err)
	}
	current, err = dryRun.Get(t.Context(), "web", "shop-slicefeed")
	if diff := cmp.Diff(answer, current); diff != "" || err != nil {
		t.Errorf("an update is forgotten: %v\n%s", err, diff)
	}
	if err := dryRun.Delete(t.Context(), current); err != nil {
		t.Error(err)
	}
	if _, err := dryRun.Get(t.Context(), "web", "shop-slicefeed"); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted slice is read as %v", err)
	}
	created, err := dryRun.Create(t.Context(), ownedSlice())
	if err != nil || created.UID == "" {
		t.Errorf("created %v, %v", created, err)
	}
	printed, _, _ := strings.Cut(out.String(), "would create ")
	want := `would update EndpointSlice web/shop-slicefeed
  - endpoint 10.0.1.2 ready
  + endpoint 10.0.1.3 ready
would delete EndpointSlice web/shop-slicefeed
  - label endpointslice.kubernetes.io/managed-by slicefeed-default
  - label kubernetes.io/service-name shop
  - label slicefeed.dev/source default
  - label slicefeed.dev/writer web
  - owner Service shop 1
  - port http 30080/TCP
  - endpoint 10.0.1.1 ready
  - endpoint 10.0.1.3 ready
`
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Error(diff)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("sent a write: %v", action)
		}
	}
}

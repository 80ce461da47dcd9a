package applier

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/writer/history"
)

// sliceOf is a slice of ours with these addresses, all ready.
func sliceOf(all ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-slicefeed", Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", "slicefeed.dev/source": "default",
		}, OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "shop", UID: "1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
	}
	for _, a := range all {
		slice.Endpoints = append(slice.Endpoints, endpoint(a))
	}
	return slice
}

func TestADiffShowsWhatComesGoesAndChanges(t *testing.T) {
	was, now := sliceOf("10.0.1.9", "10.0.1.10", "10.0.1.100"), sliceOf("10.0.1.9", "10.0.1.10", "10.0.1.11", "10.0.1.12")
	was.Endpoints[0].NodeName = new("node\x1b[2J")
	was.Labels["slicefeed.dev/source"], was.OwnerReferences = "other", nil
	was.Ports[0].Port = new(int32(30081))
	was.Endpoints[1].Conditions = discoveryv1.EndpointConditions{}
	now.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	now.Endpoints[3].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
	now.Endpoints[2].Conditions.Serving, now.Endpoints[2].Zone = new(false), new("eu-1")
	want := `  ~ label slicefeed.dev/source other -> default
  + owner Service shop 1
  ~ port http 30081/TCP -> 30080/TCP
  ~ endpoint 10.0.1.9 ready, node node [2J -> ready
  ~ endpoint 10.0.1.10 ready -> draining
  + endpoint 10.0.1.11 ready=true serving=false terminating=false, zone eu-1
  + endpoint 10.0.1.12 not ready
  - endpoint 10.0.1.100 ready
`
	if d := cmp.Diff(want, Lines(Diff(was, now))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := Lines(Diff(now, now)); d != "" {
		t.Errorf("of nothing: %s", d)
	}
	for line := range strings.Lines(Lines(Diff(was, nil))) {
		if !strings.HasPrefix(line, "  - ") {
			t.Errorf("of a deletion: %s", line)
		}
	}
}

func TestAWriteIsRememberedWithWhatItChangedAndWhy(t *testing.T) {
	w := newWriter(t, nil)
	w.history = &history.Log{}
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	d := desired("10.0.0.2")
	why := map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "feed: absent", netip.MustParseAddr("10.0.0.2"): "feed: ready"}
	order := Order{Service: shop, Desired: d, Current: w.Current(w.api.cache()), Why: func(a netip.Addr) string { return why[a] }}
	if _, err := w.Apply(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	w.api.setFault(false, answers(http.StatusForbidden, nil))
	if err := w.apply(t, desired("10.0.0.3")); err == nil {
		t.Fatal("no error")
	}
	w.api.setFault(false, nil)
	list, _ := w.api.cache()
	if err := w.Withdraw(context.Background(), shop, list); err != nil {
		t.Fatal(err)
	}
	writes, _ := w.history.Recent(nil)
	var said []string
	for _, one := range writes {
		text := one.Verb + " " + one.Slice + " of " + one.Namespace + "/" + one.Service + ": " + one.Result + "\n"
		for _, c := range one.Changes {
			if strings.HasPrefix(c.Field, "endpoint ") {
				text += c.String() + " (" + c.Reason + ")\n"
			}
		}
		said = append(said, text)
		if (one.Message == "") != (one.Result == "ok") {
			t.Errorf("%s: the answer is %q", text, one.Message)
		}
	}
	want := []string{
		"delete shop-nodes of web/shop: ok\n- endpoint 10.0.0.2 ready ()\n",
		"update shop-nodes of web/shop: rejected\n- endpoint 10.0.0.2 ready ()\n+ endpoint 10.0.0.3 ready ()\n",
		"update shop-nodes of web/shop: ok\n- endpoint 10.0.0.1 ready (feed: absent)\n",
		"create shop-nodes of web/shop: ok\n+ endpoint 10.0.0.1 ready ()\n+ endpoint 10.0.0.2 ready ()\n",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

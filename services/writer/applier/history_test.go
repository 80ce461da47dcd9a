package applier

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/writer/history"
)

func TestAddsWritesToHistoryWithChangesAndReasons(t *testing.T) {
	w := newWriter(t, nil)
	w.cfg.History = &history.Log{}
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	d := desired("10.0.0.2")
	why := map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "feed: absent", netip.MustParseAddr("10.0.0.2"): "feed: ready"}
	order := Order{Service: shop, Desired: d, Current: w.Observed(w.api.cache()), ReasonFor: func(a netip.Addr) string { return why[a] }}
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
	writes, _ := w.cfg.History.Recent(nil)
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

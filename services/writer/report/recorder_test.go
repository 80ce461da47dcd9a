package report

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

var shop = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "web", Name: "shop", UID: "svc-1"}

// memoryStore is an API server, as far as one slice goes.
type memoryStore struct {
	slice   *discoveryv1.EndpointSlice
	version int
	rejects bool
}

func (s *memoryStore) put(slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if s.rejects {
		return nil, apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), slice.Name, errors.New("denied by policy"))
	}
	s.version++
	s.slice = slice.DeepCopy()
	s.slice.UID, s.slice.ResourceVersion = types.UID("uid"), strconv.Itoa(s.version)
	return s.slice.DeepCopy(), nil
}

func (s *memoryStore) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.put(slice)
}

func (s *memoryStore) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.put(slice)
}

func (s *memoryStore) Delete(context.Context, *discoveryv1.EndpointSlice) error {
	s.slice = nil
	return nil
}

func (s *memoryStore) Get(context.Context, string, string) (*discoveryv1.EndpointSlice, error) {
	return s.slice.DeepCopy(), nil
}

func (s *memoryStore) List(context.Context, string, map[string]string) (all []*discoveryv1.EndpointSlice, version string, err error) {
	if s.slice != nil {
		all = append(all, s.slice.DeepCopy())
	}
	return all, strconv.Itoa(s.version), nil
}

// recorded is an Applier whose work is recorded.
type recorded struct {
	*applier.Applier
	*recorder

	store *memoryStore
	kept  *Writes
	log   *bytes.Buffer
}

func newRecorded() *recorded {
	r := &recorded{store: &memoryStore{}, kept: &Writes{}, log: &bytes.Buffer{}}
	reporter := events.NewReporter(events.Config{Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	r.recorder = newRecorder(prometheus.NewRegistry(), reporter, r.kept)
	r.Applier = applier.New(applier.Config{Store: r.store, FieldManager: targets.FieldManager, Hooks: r.hooks()})
	return r
}

func (r *recorded) order(t *testing.T, why map[string]string, addrs ...string) applier.Order {
	t.Helper()
	all, version, _ := r.store.List(t.Context(), "", nil)
	desired := planner.Desired{
		Namespace: "web", Service: "shop", FirstName: "shop-nodes", ManagedBy: "slicefeed-default",
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
	}
	for _, addr := range addrs {
		desired.Endpoints = append(desired.Endpoints, planner.Endpoint{Address: netip.MustParseAddr(addr), Ready: true, Serving: true})
	}
	return applier.Order{
		Service: shop, Desired: desired, Current: r.Observed(all, version),
		ReasonFor: func(a netip.Addr) string { return why[a.String()] },
	}
}

func (r *recorded) apply(t *testing.T, why map[string]string, addrs ...string) error {
	t.Helper()
	_, err := r.Apply(t.Context(), r.order(t, why, addrs...))
	return err
}

func TestReportsTheFirstSliceOfAService(t *testing.T) {
	r := newRecorded()
	for _, addresses := range [][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.1"}, {}} {
		if err := r.apply(t, nil, addresses...); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.log.String(); strings.Count(got, "reason=SliceCreated") != 1 ||
		!strings.Contains(got, "EndpointSlice shop-nodes has 2 endpoints.") {
		t.Errorf("recorded\n%s", got)
	}
}

func TestAddsWritesToHistoryWithChangesAndReasons(t *testing.T) {
	r := newRecorded()
	if err := r.apply(t, nil, "10.0.0.1", "10.0.0.2"); err != nil {
		t.Fatal(err)
	}
	if err := r.apply(t, map[string]string{"10.0.0.1": "feed: absent", "10.0.0.2": "feed: ready"}, "10.0.0.2"); err != nil {
		t.Fatal(err)
	}
	r.store.rejects = true
	if err := r.apply(t, nil, "10.0.0.3"); err == nil {
		t.Fatal("no error")
	}
	withdrawal := r.order(t, nil)
	withdrawal.Withdraw = true
	if _, err := r.Apply(t.Context(), withdrawal); err != nil {
		t.Fatal(err)
	}
	writes := r.kept.Of("web", "shop")
	var described []string
	for _, write := range writes {
		text := write.Verb + " " + write.Slice + " of " + write.Namespace + "/" + write.Service + ": " + write.Result + "\n"
		for _, change := range write.GetChanges() {
			if strings.Contains(change, " endpoint ") {
				text += change + "\n"
			}
		}
		described = append(described, text)
		if (write.Message == "") != (write.Result == "ok") {
			t.Errorf("%s: the answer is %q", text, write.Message)
		}
	}
	want := []string{
		"delete shop-nodes of web/shop: ok\n- endpoint 10.0.0.2 ready\n",
		"update shop-nodes of web/shop: rejected\n- endpoint 10.0.0.2 ready\n+ endpoint 10.0.0.3 ready\n",
		"update shop-nodes of web/shop: ok\n- endpoint 10.0.0.1 ready (feed: absent)\n",
		"create shop-nodes of web/shop: ok\n+ endpoint 10.0.0.1 ready\n+ endpoint 10.0.0.2 ready\n",
	}
	if diff := cmp.Diff(want, described); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCountsWritesAndRepairs(t *testing.T) {
	r := newRecorded()
	for range 2 {
		if err := r.apply(t, nil, "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	edited := r.store.slice.DeepCopy()
	edited.Endpoints = nil
	if _, err := r.store.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	if err := r.apply(t, nil, "10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	for verb, want := range map[string]float64{"create": 1, "update": 1, "delete": 0} {
		if got := testutil.ToFloat64(r.writes.WithLabelValues(verb, "ok")); got != want {
			t.Errorf("%v requests to %s counted, want %v", got, verb, want)
		}
	}
	if got := testutil.ToFloat64(r.repairs); got != 1 {
		t.Errorf("%v repairs counted, want 1", got)
	}
	if got := testutil.CollectAndCount(r.writes); got != 18 {
		t.Errorf("%d series of writes, want each verb with each result", got)
	}
}

func TestReportsRejectionsAndTheirEnd(t *testing.T) {
	r := newRecorded()
	r.store.rejects = true
	for range 2 {
		if err := r.apply(t, nil, "10.0.0.1"); err == nil {
			t.Fatal("no error")
		}
	}
	r.store.rejects = false
	for range 2 {
		if err := r.apply(t, nil, "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]int{
		"reason=WriteRejected": 1, "create of EndpointSlice shop-nodes: ": 1, "denied by policy": 1,
		"reason=WritesInSync": 1, "Over after ": 1, "keeps its current endpoints": 1,
	} {
		if got := strings.Count(r.log.String(), text); got != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, got, want, r.log.String())
		}
	}
}

func TestReportsDelayedRepairs(t *testing.T) {
	r := newRecorded()
	r.hooks().
		RepairDelayed(shop, applier.RepairDelay{Slice: "shop-nodes", Editor: `field manager "kubectl-edit"`, Budget: 5, At: time.Unix(0, 0)})
	for _, want := range []string{"reason=RepairsBackedOff", "shop-nodes was changed by field manager", "kubectl-edit", "over 5 times a minute"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, r.log.String())
		}
	}
}

package applier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// api answers like an API server, as far as EndpointSlices go. It is a transport rather than a
// listener, so that it can be used where time is fake.
type api struct {
	t testing.TB

	mu      sync.Mutex
	slices  map[string]*discoveryv1.EndpointSlice
	version int
	log     []string // the requests that change something, as they were sent

	// fault may answer in the server's place: a response, or an error for none at all. With
	// after set the request takes place first.
	fault func(r *http.Request) (answer *http.Response, err error)
	after bool

	admit func(*discoveryv1.EndpointSlice) // mutating admission; nil: none
}

func newAPI(t testing.TB) *api {
	return &api{t: t, slices: map[string]*discoveryv1.EndpointSlice{}, version: 100}
}

func (a *api) client(wrap func(http.RoundTripper) http.RoundTripper) kubernetes.Interface {
	config := &rest.Config{Host: "http://api", Transport: a, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	if wrap != nil {
		config.Wrap(wrap)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	fault, after := a.fault, a.after
	if r.Method != http.MethodGet {
		a.log = append(a.log, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	}
	a.mu.Unlock()
	if fault != nil && !after {
		if answer, err := fault(r); answer != nil || err != nil {
			return answer, err
		}
	}
	w := httptest.NewRecorder()
	a.serve(w, r)
	if fault != nil && after {
		if answer, err := fault(r); answer != nil || err != nil {
			return answer, err
		}
	}
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.Method == http.MethodGet && name == "endpointslices" {
		a.list(w, r.URL.Query().Get("labelSelector"))
		return
	}
	slice := a.slices[name]
	if slice == nil && r.Method != http.MethodPost {
		status(w, 404, metav1.StatusReasonNotFound)
		return
	}
	switch r.Method {
	case http.MethodPost:
		sent := &discoveryv1.EndpointSlice{}
		a.read(r, sent)
		if a.slices[sent.Name] != nil {
			status(w, 409, metav1.StatusReasonAlreadyExists)
			return
		}
		sent.UID = types.UID(fmt.Sprint("uid-", a.version))
		a.admitted(sent)
		slice = sent
	case http.MethodPut:
		sent := &discoveryv1.EndpointSlice{}
		a.read(r, sent)
		if sent.ResourceVersion != slice.ResourceVersion {
			status(w, 409, metav1.StatusReasonConflict)
			return
		}
		a.admitted(sent)
		slice = sent
	case http.MethodDelete:
		options := &metav1.DeleteOptions{}
		a.read(r, options)
		if p := options.Preconditions; p == nil || p.UID == nil || *p.UID != slice.UID || *p.ResourceVersion != slice.ResourceVersion {
			status(w, 409, metav1.StatusReasonConflict)
			return
		}
		delete(a.slices, name)
		a.version++
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(slice); err != nil {
		a.t.Error(err)
	}
}

func (a *api) list(w http.ResponseWriter, selector string) {
	list := discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	matches, err := labels.Parse(selector)
	if err != nil {
		a.t.Error(err)
	}
	for _, slice := range a.slices {
		if matches.Matches(labels.Set(slice.Labels)) {
			list.Items = append(list.Items, *slice)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		a.t.Error(err)
	}
}

func (a *api) read(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		a.t.Error(err)
	}
}

func (a *api) admitted(sent *discoveryv1.EndpointSlice) {
	if a.admit != nil {
		a.admit(sent)
	}
	a.put(sent)
}

func (a *api) put(slice *discoveryv1.EndpointSlice) {
	a.version++
	slice.ResourceVersion = strconv.Itoa(a.version)
	a.slices[slice.Name] = slice.DeepCopy()
}

// edit is someone else's hand.
func (a *api) edit(name string, change func(*discoveryv1.EndpointSlice)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if change == nil {
		delete(a.slices, name)
		a.version++
		return
	}
	slice := a.slices[name]
	if slice == nil {
		slice = &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(fmt.Sprint("theirs-", a.version))},
			AddressType: "IPv4",
		}
	}
	slice = slice.DeepCopy()
	change(slice)
	slice.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: fieldManager},
		{Manager: "kubectl-edit", Time: &metav1.Time{Time: time.Now()}},
	}
	a.put(slice)
}

// cache is what an informer that is up to date shows.
func (a *api) cache() ([]*discoveryv1.EndpointSlice, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*discoveryv1.EndpointSlice
	for _, slice := range a.slices {
		out = append(out, slice.DeepCopy())
	}
	return out, strconv.Itoa(a.version)
}

func (a *api) sent() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.log
	a.log = nil
	return out
}

func (a *api) setFault(after bool, fault func(*http.Request) (*http.Response, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault, a.after = fault, after
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason),
	})
}

// answers is a fault on requests that change something.
func answers(code int, header http.Header) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, nil
		}
		w := httptest.NewRecorder()
		maps.Copy(w.Header(), header)
		reason := metav1.StatusReasonInternalError
		switch code {
		case http.StatusTooManyRequests:
			reason = metav1.StatusReasonTooManyRequests
		case http.StatusForbidden:
			reason = metav1.StatusReasonForbidden
		case http.StatusUnprocessableEntity:
			reason = metav1.StatusReasonInvalid
		case http.StatusConflict:
			reason = metav1.StatusReasonConflict
		}
		status(w, code, reason)
		answer := w.Result()
		answer.Request = r
		return answer, nil
	}
}

// onWrite is a fault that lets requests take place, and does something with each that changes something.
func onWrite(do func()) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			do()
		}
		return nil, nil
	}
}

// hangs is a fault: no answer to a change, until the caller has had enough.
func hangs(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return nil, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

var errCut = errors.New("connection reset by peer")

func cut(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return nil, nil
	}
	return nil, errCut
}

const (
	labelGroup    = "example.com/group"
	labelInstance = "example.com/instance"
	defaultGroup  = "default"
)

func instance(name string) map[string]string { return map[string]string{labelInstance: name} }

var ownerKinds = []schema.GroupKind{{Kind: "Service"}, {Group: "multicluster.x-k8s.io", Kind: "ServiceImport"}}

var shop = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "web", Name: "shop", UID: "svc-1"}

func desired(addrs ...string) planner.Desired {
	d := planner.Desired{
		Namespace: "web", Service: "shop", FirstName: "shop-nodes", ManagedBy: "nodes-controller", InstanceLabels: instance("a"),
		GroupLabels: []string{labelGroup}, DefaultGroup: defaultGroup, OwnerKinds: ownerKinds,
		Owner:    metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-1"},
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
	}
	for _, addr := range addrs {
		d.Endpoints = append(d.Endpoints, planner.Endpoint{Address: netip.MustParseAddr(addr), Ready: true, Serving: true})
	}
	return d
}

func endpoint(addr string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{addr}}
}

func listed(list []*discoveryv1.EndpointSlice) string {
	var out []string
	for _, e := range planner.CurrentEndpoints(desired(), list) {
		out = append(out, e.Address.String())
	}
	return strings.Join(out, " ")
}

// writer is an Applier over an api.
type writer struct {
	*Applier

	api     *api
	leading bool
	asked   int   // how often we asked whose the Lease is
	whose   error // the answer

	dropsReports bool // the hook reports no rejection

	// What the hooks were called with.
	wrote      []Write
	repaired   int
	delayed    []RepairDelay
	rejected   []Write
	recoveries []time.Time
}

const fieldManager = "slicefeed"

func newWriter(t testing.TB) *writer {
	w := &writer{api: newAPI(t), leading: true}
	w.Applier = New(Config{
		Store: Kubernetes(w.api.client(nil), fieldManager), FieldManager: fieldManager,
		Leading: func() bool { return w.leading },
		Confirm: func(context.Context) error { w.asked++; return w.whose },
		Hooks: Hooks{
			Wrote:         func(write Write) { w.wrote = append(w.wrote, write) },
			Repaired:      func(_ corev1.ObjectReference, slices int) { w.repaired += slices },
			RepairDelayed: func(_ corev1.ObjectReference, delay RepairDelay) { w.delayed = append(w.delayed, delay) },
			Rejected: func(_ corev1.ObjectReference, write Write) bool {
				w.rejected = append(w.rejected, write)
				return !w.dropsReports
			},
			InSync: func(_ corev1.ObjectReference, rejectedAt time.Time) { w.recoveries = append(w.recoveries, rejectedAt) },
		},
	})
	return w
}

// countWrites returns how many requests of a kind had a result.
func (w *writer) countWrites(verb Verb, result Result) (n int) {
	for _, write := range w.wrote {
		if write.Verb == verb && write.Result == result {
			n++
		}
	}
	return n
}

// apply applies over a cache that is up to date.
func (w *writer) apply(t testing.TB, d planner.Desired) error {
	t.Helper()
	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: d, Current: w.Observed(w.api.cache())})
	return err
}

func (w *writer) must(t testing.TB, d planner.Desired) {
	t.Helper()
	if err := w.apply(t, d); err != nil {
		t.Fatal(err)
	}
}

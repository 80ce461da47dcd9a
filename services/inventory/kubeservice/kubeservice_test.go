package kubeservice

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/kube"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testService is a running source of Service "web" in namespace "shop", and the members reported so far.
type testService struct {
	*Endpoints

	t          *testing.T
	client     *fake.Clientset
	members    map[string]roster.Node
	lastUpdate roster.Update
}

func startService(t *testing.T, slices ...*discoveryv1.EndpointSlice) *testService {
	t.Helper()
	client := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	watching := make(chan struct{}, 10)
	client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		stream, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- struct{}{} // the fake client loses changes between list and watch
		return true, stream, err
	})
	w := &testService{t: t, client: client, members: map[string]roster.Node{}}
	for _, s := range slices {
		w.create(s)
	}
	w.Endpoints = New(Config{
		Client: client, Service: types.NamespacedName{Namespace: "shop", Name: "web"},
		Log: slog.New(slog.DiscardHandler), Metrics: kube.NewMetrics(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-watching
	return w
}

func (w *testService) create(s *discoveryv1.EndpointSlice) {
	w.t.Helper()
	if _, err := w.client.DiscoveryV1().EndpointSlices("shop").Create(w.t.Context(), s, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testService) update(s *discoveryv1.EndpointSlice) {
	w.t.Helper()
	if _, err := w.client.DiscoveryV1().EndpointSlices("shop").Update(w.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testService) remove(name string) {
	w.t.Helper()
	if err := w.client.DiscoveryV1().EndpointSlices("shop").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// awaitMembers takes updates until the members, as described by describeMember, equal want.
func (w *testService) awaitMembers(want map[string]string) {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		got := map[string]string{}
		for name, c := range w.members {
			got[name] = describeMember(c)
		}
		if cmp.Equal(want, got) {
			return
		}
		select {
		case <-w.Changed():
		case <-deadline:
			w.t.Fatal(cmp.Diff(want, got))
		}
		w.lastUpdate = w.Take()
		for _, c := range w.lastUpdate.Changed {
			w.members[c.Name] = c
		}
		for _, name := range w.lastUpdate.Removed {
			delete(w.members, name)
		}
	}
}

func describeMember(c roster.Node) string {
	all := []string{c.State.String()}
	if c.Invalid != "" {
		all = []string{"invalid"}
	}
	for _, a := range c.InternalIPs {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

// newSlice returns an EndpointSlice of the Service.
func newSlice(name string, kind discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: kind, Endpoints: endpoints,
	}
}

func withPort(s *discoveryv1.EndpointSlice, name string, number int32) *discoveryv1.EndpointSlice {
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
	return s
}

// newEndpoint returns an endpoint of a Pod, or of no Pod if pod is empty.
func newEndpoint(pod, address string, state roster.NodeState) discoveryv1.Endpoint {
	ready, terminating := state == roster.Ready, state == roster.Draining
	serving := ready || terminating
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID("uid-of-" + pod)}
	}
	return e
}

const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6

func TestFollowsSlicesOfBothFamilies(t *testing.T) {
	w := startService(t,
		newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready), newEndpoint("", "10.0.0.9", roster.NotReady)),
		newSlice("two", v6, newEndpoint("a", "fd00::1", roster.Ready)),
		newSlice("three", v4, newEndpoint("b", "10.0.0.2", roster.Draining)))
	w.awaitMembers(map[string]string{
		"10.0.0.1": "ready 10.0.0.1", "fd00::1": "ready fd00::1", "10.0.0.2": "draining 10.0.0.2", "10.0.0.9": "not_ready 10.0.0.9",
	})
	w.update(newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready), newEndpoint("c", "10.0.0.3", roster.Ready)))
	w.remove("three")
	w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1", "fd00::1": "ready fd00::1", "10.0.0.3": "ready 10.0.0.3"})
}

func TestKeepsEndpointMovedBetweenSlices(t *testing.T) {
	w := startService(t, newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready)), newSlice("two", v4))
	w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1"})
	w.update(newSlice("two", v4, newEndpoint("a", "10.0.0.1", roster.Ready)))
	w.update(newSlice("one", v4))
	if _, err := w.Verify(t.Context(), roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	if update := w.Take(); len(update.Removed) > 0 {
		t.Errorf("removed %v", update.Removed)
	}
	w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1"})
}

func TestARecreatedPodIsAMemberBesideTheOldOne(t *testing.T) {
	recreated := newEndpoint("a", "10.0.0.2", roster.Ready)
	recreated.TargetRef.UID = "another"
	w := startService(t, newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Draining), recreated))
	w.awaitMembers(map[string]string{"10.0.0.1": "draining 10.0.0.1", "10.0.0.2": "ready 10.0.0.2"})
}

func TestRequestsOnlySlicesOfService(t *testing.T) {
	w := startService(t, newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready)))
	if _, err := w.Verify(t.Context(), roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, action := range w.client.Actions() {
		var selected string
		switch a := action.(type) {
		case clienttesting.ListAction:
			selected = a.GetListRestrictions().Labels.String()
		case clienttesting.WatchAction:
			selected = a.GetWatchRestrictions().Labels.String()
		default:
			continue
		}
		requests++
		if action.GetNamespace() != "shop" || selected != "kubernetes.io/service-name=web" {
			t.Errorf("%s %s of %q, labels %q", action.GetVerb(), action.GetResource().Resource, action.GetNamespace(), selected)
		}
	}
	if requests < 3 {
		t.Errorf("%d lists and watches", requests)
	}
}

// Kubernetes makes a slice for each set of ports: two applications behind one Service must not get each other's.
func TestAnEndpointHasThePortsOfTheSlicesThatListIt(t *testing.T) {
	ported := func(name string, kind discoveryv1.AddressType, port string, number int32, pod, address string) *discoveryv1.EndpointSlice {
		return withPort(newSlice(name, kind, newEndpoint(pod, address, roster.Ready)), port, number)
	}
	w := startService(t, ported("one", v4, "app1", 30100, "a", "10.0.0.1"), ported("two", v4, "app2", 30101, "b", "10.0.0.2"),
		ported("three", v6, "app2", 30101, "b", "fd00::2"))
	w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1", "10.0.0.2": "ready 10.0.0.2", "fd00::2": "ready fd00::2"})
	app1, app2 := contract.Port{Name: "app1", Protocol: "TCP", Number: 30100}, contract.Port{Name: "app2", Protocol: "TCP", Number: 30101}
	want := map[string][]contract.Port{"10.0.0.1": {app1}, "10.0.0.2": {app2}, "fd00::2": {app2}}
	got := map[string][]contract.Port{}
	for name, c := range w.members {
		got[name] = c.Ports
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBadInput(t *testing.T) {
	t.Run("unreachable: the API server rejects requests", func(t *testing.T) {
		w := startService(t, newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready)))
		w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1"})
		w.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, kuberuntime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		for _, mode := range []roster.Verification{roster.LightVerification, roster.FullVerification} {
			if _, err := w.Verify(t.Context(), mode); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%s verification: %v", mode, err)
			}
		}
		if update := w.Take(); len(update.Removed) > 0 {
			t.Errorf("removed %v", update.Removed)
		}
	})
	t.Run("contradictory: the Service does not exist", func(t *testing.T) {
		w := startService(t)
		w.awaitMembers(map[string]string{})
		if err := w.client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []roster.Verification{roster.LightVerification, roster.FullVerification} {
			if _, err := w.Verify(t.Context(), mode); err == nil || !strings.Contains(err.Error(), "service shop/web does not exist") {
				t.Errorf("%s verification: %v", mode, err)
			}
		}
	})
	t.Run("contradictory: the Service is of the type ExternalName", func(t *testing.T) {
		w := startService(t)
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName},
		}
		if _, err := w.client.CoreV1().Services("shop").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Verify(t.Context(), roster.LightVerification); err == nil || !strings.Contains(err.Error(), "ExternalName") {
			t.Error(err)
		}
	})
	t.Run("contradictory: two slices list one endpoint in different states", func(t *testing.T) {
		w := startService(t,
			newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.NotReady), newEndpoint("b", "10.0.0.2", roster.Ready)),
			newSlice("two", v4, newEndpoint("a", "10.0.0.1", roster.Ready), newEndpoint("b", "10.0.0.2", roster.Draining)))
		w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1", "10.0.0.2": "ready 10.0.0.2"})
	})
	t.Run("malformed: a slice of host names", func(t *testing.T) {
		w := startService(t, newSlice("one", discoveryv1.AddressTypeFQDN, newEndpoint("", "web.example.org", roster.Ready)))
		w.awaitMembers(map[string]string{"web.example.org": "invalid"})
		if !strings.HasPrefix(w.lastUpdate.PartialError, "1 invalid endpoint") ||
			!strings.Contains(w.members["web.example.org"].Invalid, "host name") {
			t.Errorf("flaw %q, invalid: %q", w.lastUpdate.PartialError, w.members["web.example.org"].Invalid)
		}
	})
	t.Run("partial: one of several addresses is invalid", func(t *testing.T) {
		w := startService(t, newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready), newEndpoint("b", "10.0.0.300", roster.Ready)))
		w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1", "10.0.0.300": "invalid"})
		w.update(newSlice("one", v4, newEndpoint("a", "10.0.0.400", roster.Ready), newEndpoint("c", "10.0.0.2", roster.Ready)))
		w.awaitMembers(map[string]string{
			"10.0.0.1": "ready 10.0.0.1", "10.0.0.2": "ready 10.0.0.2", "10.0.0.300": "invalid", "10.0.0.400": "invalid",
		})
		w.update(newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready), newEndpoint("b", "10.0.0.3", roster.Ready)))
		w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1", "10.0.0.3": "ready 10.0.0.3"})
		if w.lastUpdate.PartialError != "" {
			t.Errorf("flaw %q", w.lastUpdate.PartialError)
		}
	})
	t.Run("empty: the Service has no endpoint", func(t *testing.T) {
		w := startService(t, newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready)))
		w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1"})
		w.update(newSlice("one", v4))
		w.awaitMembers(map[string]string{})
		if _, err := w.Verify(t.Context(), roster.FullVerification); err != nil {
			t.Errorf("full verification: %v", err) // the set is empty; confirming that is left to the roster
		}
	})
}

func TestEndpointState(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		name       string
		conditions discoveryv1.EndpointConditions
		want       roster.NodeState
	}{
		{"no condition is set", discoveryv1.EndpointConditions{}, roster.Ready},
		{"ready", discoveryv1.EndpointConditions{Ready: &yes}, roster.Ready},
		{"not ready", discoveryv1.EndpointConditions{Ready: &no}, roster.NotReady},
		{"serving while terminating", discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}, roster.Draining},
		{"no longer serving", discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}, roster.NotReady},
		{"ready while terminating, by publishNotReadyAddresses", discoveryv1.EndpointConditions{Ready: &yes, Terminating: &yes}, roster.Ready},
	} {
		if got := endpointState(tc.conditions); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestHostnameIsThatOfTheEndpoint(t *testing.T) {
	for given, want := range map[string]string{"db-0": "db-0", "": "", "DB-0": "", "db.0": "", "-": "", strings.Repeat("d", 64): ""} {
		slice := newSlice("s", discoveryv1.AddressTypeIPv4, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Hostname: &given})
		both := append(readSlice(slice), roster.Node{Name: "10.0.0.1"})
		if got := mergeMembers(both).Hostname; got != want {
			t.Errorf("hostname %q became %q, want %q", given, got, want)
		}
	}
}

func FuzzReadSlice(f *testing.F) {
	f.Add("10.0.0.1", "web-0", "uid", "de/fra", "db-0", "IPv4", int32(8080))
	f.Add("fd00::1%eth0", strings.Repeat("n", 400), strings.Repeat("u", 100), "\xff", "DB.0", "IPv6", int32(-1))
	f.Add("", "", "", "", "", "FQDN", int32(0))
	f.Fuzz(func(t *testing.T, address, name, uid, zone, hostname, kind string, port int32) {
		s := newSlice("s", discoveryv1.AddressType(kind), discoveryv1.Endpoint{
			Addresses: []string{
				address,
			},
			Zone:      &zone,
			Hostname:  &hostname,
			TargetRef: &corev1.ObjectReference{Name: name, UID: types.UID(uid)},
		})
		for _, c := range readSlice(withPort(s, name, port)) {
			if len(c.Ports) > 1 || len(c.Ports) == 1 && !c.Ports[0].IsValid() {
				t.Errorf("ports %v", c.Ports)
			}
			if len(c.Name) == 0 || len(c.Name) > contract.MaxNameLength || len(c.UID) > contract.MaxUIDLength ||
				len(c.Zone) > contract.MaxLabelValueLength {
				t.Errorf("out of bounds: %+v", c)
			}
			if c.Hostname != "" && (c.Hostname != hostname || !contract.IsHostname(c.Hostname)) {
				t.Errorf("hostname %q became %q", hostname, c.Hostname)
			}
			if (c.Invalid == "") != (len(c.InternalIPs) == 1) ||
				c.Invalid == "" && c.InternalIPs[0] != netip.MustParseAddr(c.InternalIPs[0].String()) {
				t.Errorf("%q became %v, %q", address, c.InternalIPs, c.Invalid)
			}
		}
	})
}

// deleteService deletes the Service, or only marks it as deleted, as a foreground deletion does.
func (w *testService) deleteService(marked bool) {
	w.t.Helper()
	services := w.client.CoreV1().Services("shop")
	err := services.Delete(w.t.Context(), "web", metav1.DeleteOptions{})
	if now := metav1.Now(); err == nil && marked {
		_, err = services.Create(w.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerDeleteDependents},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// The garbage collector deletes the slices of a Service after it, or before it if the deletion is a foreground one.
func TestSlicesThatGoWithTheirServiceRemoveNoEndpoint(t *testing.T) {
	for _, marked := range []bool{false, true} {
		w := startService(
			t,
			newSlice("one", v4, newEndpoint("a", "10.0.0.1", roster.Ready)),
			newSlice("two", v6, newEndpoint("a", "fd00::1", roster.Ready)),
		)
		both := map[string]string{"10.0.0.1": "ready 10.0.0.1", "fd00::1": "ready fd00::1"}
		w.awaitMembers(both)
		w.deleteService(marked)
		w.remove("one")
		w.remove("two")
		for w.lastUpdate = (roster.Update{}); !strings.Contains(w.lastUpdate.Failure, "service shop/web does not exist"); {
			<-w.Changed()
			if w.lastUpdate = w.Take(); len(w.lastUpdate.Removed) > 0 {
				t.Fatalf("removed %v", w.lastUpdate.Removed)
			}
		}
		if _, err := w.Verify(t.Context(), roster.FullVerification); err == nil {
			t.Error("the missing Service is verified")
		}
		w.awaitMembers(both)
		if marked {
			w.deleteService(false)
		}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		if _, err := w.client.CoreV1().Services("shop").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Verify(t.Context(), roster.FullVerification); err != nil {
			t.Error(err)
		}
		if update := w.Take(); len(update.Removed) != 2 { // it is there, and has no endpoints
			t.Errorf("removed %v", update.Removed)
		}
	}
}

func TestAnEndpointIsItsAddress(t *testing.T) {
	named := func(name, uid, address string, state roster.NodeState) discoveryv1.Endpoint {
		e := newEndpoint("p", address, state)
		e.TargetRef.Name, e.TargetRef.UID = name, types.UID(uid)
		return e
	}
	w := startService(t, newSlice("one", v4, named("p", "u", "10.0.0.1", roster.Ready), named("p", "u", "10.0.0.2", roster.Ready)))
	both := map[string]string{"10.0.0.1": "ready 10.0.0.1", "10.0.0.2": "ready 10.0.0.2"}
	w.awaitMembers(both) // two addresses of one object
	w.update(newSlice("one", v4, named("renamed", "u", "10.0.0.1", roster.Draining)))
	w.awaitMembers(map[string]string{"10.0.0.1": "draining 10.0.0.1"})
	w.update(newSlice("one", v4, named("p.u", "v", "10.0.0.1", roster.Ready), named("p", "u.v", "10.0.0.2", roster.Ready)))
	w.awaitMembers(both) // objects whose names and UIDs are alike together
	w.update(newSlice("one", v4, named("old", "1", "10.0.0.1", roster.NotReady), named("new", "2", "10.0.0.1", roster.Ready)))
	w.awaitMembers(map[string]string{"10.0.0.1": "ready 10.0.0.1"})
	if uid := w.members["10.0.0.1"].UID; uid != "2" {
		t.Errorf("UID %q, want that of the object that is ready", uid)
	}
}

func TestReportsNothingWhileTheServiceIsNotExported(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	client := fake.NewClientset(service, newSlice("any-name", discoveryv1.AddressTypeIPv4, newEndpoint("a", "10.0.0.1", roster.Ready)))
	e := New(Config{
		Client:   client,
		Service:  types.NamespacedName{Namespace: "shop", Name: "web"},
		Exported: labels.SelectorFromSet(labels.Set{"export": "yes"}),
		Log:      slog.New(slog.DiscardHandler),
		Metrics:  kube.NewMetrics(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	defer func() { cancel(); <-done }()
	label := func(value string) {
		service.Labels = map[string]string{"export": value}
		if _, err := client.CoreV1().Services("shop").Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	verify := func(want string) {
		t.Helper()
		_, err := e.Verify(t.Context(), roster.FullVerification)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Fatalf("%v, want an error with %q", err, want)
		}
	}
	t.Run("contradictory: the Service does not match SOURCE_SERVICE_SELECTOR", func(t *testing.T) {
		verify("service shop/web is not exported; give it the labels export=yes, which SOURCE_SERVICE_SELECTOR requires")
		if update := e.Take(); update.Withheld == "" || len(update.Changed) > 0 {
			t.Errorf("reported %+v", update)
		}
	})
	label("yes")
	verify("")
	if update := e.Take(); len(update.Changed) != 1 {
		t.Errorf("reported %+v, want the endpoint of the exported Service", update)
	}
	label("no")
	verify("is not exported")
	slices := client.DiscoveryV1().EndpointSlices("shop")
	if err := slices.Delete(t.Context(), "any-name", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); e.watch.Number() < 2 && time.Now().Before(deadline); { // its arrival and its end
		<-e.Changed()
	}
	if update := e.Take(); len(update.Changed)+len(update.Removed) > 0 || !strings.Contains(update.Withheld, "is not exported") {
		t.Errorf("reported %+v of a Service that is no longer exported", update)
	}
	label("yes")
	e.Recheck()
	for update := e.Take(); update.Withheld != "" || len(update.Removed) == 0; update = e.Take() {
		<-e.Changed() // it is exported again, and has lost its endpoint
	}
}

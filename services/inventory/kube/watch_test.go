package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newNode returns a Node: the tests need objects of some kind.
func newNode(name string, edit ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-1", ResourceVersion: "1"}}
	for _, e := range edit {
		e(n)
	}
	return n
}

// cordonKind extracts whether a Node is cordoned.
func cordonKind(client kubernetes.Interface) Kind[*corev1.Node, bool] {
	var requests *cache.ListWatch
	if client != nil {
		requests = cluster.NewRequests(client.CoreV1().Nodes(), "", "")
	}
	return Kind[*corev1.Node, bool]{
		Resource: "nodes", Example: &corev1.Node{},
		Requests: requests,
		Extract:  func(n *corev1.Node) bool { return n.Spec.Unschedulable },
		Equal:    func(a, b bool) bool { return a == b },
	}
}

func newTestTracker() *tracker[bool] { return newTracker(cordonKind(nil), make(chan struct{}, 1)) }

// runningWatch is a watch that runs until the end of the test.
type runningWatch struct {
	*Watch[bool]
	*Verifier

	changed chan struct{}
}

func startWatch(t *testing.T, client kubernetes.Interface) *runningWatch {
	t.Helper()
	changed := make(chan struct{}, 1)
	w := NewWatch(cordonKind(client), WatchConfig{
		Client: client, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
		Changed: changed,
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
	return &runningWatch{Watch: w, Verifier: NewVerifier(w), changed: changed}
}

// taken are the changes of a watch, split into those of objects and their removals.
type taken struct {
	Changes[bool]

	Changed []object
	Removed []string
}

type object struct {
	Name  string
	Value bool
}

func split(c Changes[bool]) taken {
	out := taken{Changes: c}
	for _, name := range c.Names {
		if value, ok := c.Objects[name]; ok {
			out.Changed = append(out.Changed, object{name, value})
		} else {
			out.Removed = append(out.Removed, name)
		}
	}
	return out
}

// awaitChanges takes changes and returns their sum once it satisfies ok.
func awaitChanges(t *testing.T, w *runningWatch, what string, ok func(taken) bool) taken {
	t.Helper()
	var all taken
	deadline := time.After(20 * time.Second)
	for {
		select {
		case <-w.changed:
		case <-deadline:
			t.Fatalf("timed out waiting for %s, got %+v", what, all)
		}
		changes := split(w.Take())
		all.Changed = append(all.Changed, changes.Changed...)
		all.Removed = append(all.Removed, changes.Removed...)
		all.Progress = changes.Progress
		if changes.Failure != "" {
			all.Failure = changes.Failure
		}
		if ok(all) {
			return all
		}
	}
}

func TestFollowsObjects(t *testing.T) {
	client := fake.NewClientset(newNode("a"), newNode("b"))
	watching := make(chan struct{}, 10)
	client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		stream, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- struct{}{} // the fake client loses changes between list and watch
		return true, stream, err
	})
	n := startWatch(t, client)
	<-watching
	ctx := t.Context()
	awaitChanges(t, n, "two nodes", func(n taken) bool { return len(n.Changed) == 2 && !n.LastContact.IsZero() })
	if _, err := n.Verify(ctx, roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	if number, err := n.Verify(ctx, roster.LightVerification); err != nil || number != 2 {
		t.Fatal(number, err)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, newNode("c"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Update(ctx, newNode("b", cordoned), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	changes := awaitChanges(t, n, "three changes", func(n taken) bool { return len(n.Changed) >= 2 && len(n.Removed) == 1 })
	if changes.Removed[0] != "a" {
		t.Errorf("removed %v", changes.Removed)
	}
	for _, o := range changes.Changed {
		if want := map[string]bool{"b": true, "c": false}[o.Name]; o.Value != want {
			t.Errorf("%s is %v, want %v", o.Name, o.Value, want)
		}
	}
	if _, err := n.Verify(ctx, roster.FullVerification); err != nil {
		t.Error(err)
	}
}

func TestIrrelevantUpdateOnlyAdvances(t *testing.T) {
	tr := newTestTracker()
	if err := tr.Replace([]any{newNode("a")}, "5"); err != nil {
		t.Fatal(err)
	}
	if changes := split(tr.takeChanges()); len(changes.Changed) != 1 || changes.ResourceVersion != 5 {
		t.Fatalf("got %+v", changes)
	}
	heartbeat := newNode("a", func(n *corev1.Node) { n.ResourceVersion = "9"; n.Annotations = map[string]string{"x": "y"} })
	if err := tr.Update(heartbeat); err != nil {
		t.Fatal(err)
	}
	changes := split(tr.takeChanges())
	if len(changes.Changed) != 0 || changes.ResourceVersion != 9 || changes.LastContact.IsZero() {
		t.Errorf("got %+v", changes)
	}
	if changes = split(tr.takeChanges()); len(changes.Changed) != 0 {
		t.Errorf("reported twice: %+v", changes)
	}
}

func TestRelistReportsMissedChanges(t *testing.T) {
	tr := newTestTracker()
	_ = tr.Replace([]any{newNode("a"), newNode("b")}, "5")
	tr.takeChanges()
	_ = tr.Replace([]any{newNode("b", cordoned), newNode("c"), newNode("")}, "3")
	changes := split(tr.takeChanges())
	if len(changes.Changed) != 2 || changes.Changed[0].Name != "b" || changes.Changed[1].Name != "c" ||
		len(changes.Removed) != 1 || changes.Removed[0] != "a" || changes.ResourceVersion != 3 {
		t.Errorf("got %+v", changes)
	}
}

func TestCoalescesDeleteAndRecreate(t *testing.T) {
	tr := newTestTracker()
	_ = tr.Add(newNode("a"))
	tr.takeChanges()
	_ = tr.Delete(newNode("a"))
	_ = tr.Add(newNode("a", func(n *corev1.Node) { n.UID = "uid-2" }))
	changes := split(tr.takeChanges())
	if len(changes.Changed) != 1 || len(changes.Removed) != 0 {
		t.Errorf("got %+v", changes)
	}
}

func TestFindsMismatchesWithListing(t *testing.T) {
	at := func(name, uid, rv string) *corev1.Node {
		return newNode(name, func(n *corev1.Node) { n.UID, n.ResourceVersion = types.UID(uid), rv })
	}
	for _, tc := range []struct {
		name    string
		deliver func(*tracker[bool])
		equal   bool
	}{
		{"equal", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "1", "10")}, "20") }, true},
		{"changed since", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "1", "21")}, "21") }, true},
		{"recreated since", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "2", "21")}, "21") }, true},
		{"deleted since", func(t *tracker[bool]) {
			_ = t.Replace([]any{at("a", "1", "10")}, "20")
			_ = t.Delete(at("a", "1", "21"))
		}, true},
		{"another object created since", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "1", "10"), at("b", "1", "22")}, "22") }, true},
		{"older than listed", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "1", "9")}, "19") }, false},
		{"another UID", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "2", "10")}, "20") }, false},
		{"missing", func(t *tracker[bool]) { _ = t.Replace(nil, "20") }, false},
		{"deleted before it was listed", func(t *tracker[bool]) {
			_ = t.Replace([]any{at("a", "1", "5")}, "6")
			_ = t.Delete(at("a", "1", "7"))
		}, false},
		{"an object that is not listed", func(t *tracker[bool]) { _ = t.Replace([]any{at("a", "1", "10"), at("b", "1", "12")}, "20") }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := newTestTracker()
			tr.recordDeletions(map[string]uint64{})
			tc.deliver(tr)
			differ := tr.findMismatches(map[string]version{"a": {"1", 10}}, 20, nil)
			if (len(differ) == 0) != tc.equal {
				t.Errorf("mismatches: %v", differ)
			}
		})
	}
	if d := newTestTracker().findMismatches(nil, 1, nil); d != nil {
		t.Errorf("before the first list: %v, want nil", d)
	}
}

// TestBadInput has a subtest for each failure of an API server in docs/use/sources/kubernetes.md,
// which applies to every source that watches.
func TestBadInput(t *testing.T) {
	t.Run("unreachable: the API server rejects requests", testListRejected)
	t.Run("slow: the API server does not answer", testNoResponse)
	t.Run("malformed: an answer that is no list", testMalformedList)
	t.Run("malformed: a Node with invalid values", testMalformedNode)
	t.Run("partial: the pages of a LIST expire between them", testPagesExpire)
	t.Run("partial: the watch expires and changes are missed", testWatchExpires)
	t.Run("empty: all are gone", testEmptyList)
	t.Run("contradictory: a LIST is older than the watch, as after a restore of etcd", testOlderList)
	t.Run("contradictory: the watch is idle while a LIST differs", testIdleWatchMissesChange)
}

func testNoResponse(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"))
	n := startWatch(t, client)
	awaitChanges(t, n, "the list", func(n taken) bool { return len(n.Changed) == 1 })
	hang := make(chan struct{})
	defer close(hang)
	s.locked(func() {
		s.fail = func(string) int {
			<-hang
			return 500
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // instead of requestTimeout
	defer cancel()
	if _, err := n.Verify(ctx, roster.LightVerification); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if changes := split(n.Take()); len(changes.Removed) > 0 {
		t.Errorf("removed %v", changes.Removed)
	}
}

func testMalformedList(t *testing.T) {
	for _, answer := range []string{"", "{}", "<html>", `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"x"}}`, `{"kind":"Status","apiVersion":"v1","status":"Success"}`} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: srv.URL, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		l := NewVerifier(
			NewWatch(
				cordonKind(client),
				WatchConfig{Client: client, Metrics: NewMetrics(prometheus.NewRegistry()), Changed: make(chan struct{}, 1)},
			),
		)
		if number, err := l.Verify(t.Context(), roster.LightVerification); err == nil {
			t.Errorf("%q was accepted, number %d", answer, number)
		}
		srv.Close()
	}
}

func testEmptyList(t *testing.T) {
	w := newTestTracker()
	_ = w.Replace([]any{newNode("a")}, "5")
	w.takeChanges()
	_ = w.Replace(nil, "6")
	if changes := split(w.takeChanges()); len(changes.Removed) != 1 || changes.ResourceVersion != 6 {
		t.Errorf("got %+v", changes)
	}
}

// apiServer implements just enough of the API to inject faults: it lists its nodes and sends
// its events to watches.
type apiServer struct {
	mu     sync.Mutex
	nodes  []corev1.Node
	rv     int
	lists  []string               // query of each LIST
	fail   func(q string) int     // HTTP status of a LIST; 0: success
	events chan metav1.WatchEvent // sent to the watch
	pages  bool
}

func startAPIServer(t *testing.T, nodes ...*corev1.Node) (*apiServer, kubernetes.Interface) {
	t.Helper()
	s := &apiServer{rv: 10, events: make(chan metav1.WatchEvent)}
	for _, n := range nodes {
		s.nodes = append(s.nodes, *n)
	}
	srv := httptest.NewServer(s)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: srv.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return s, client
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") != "" {
		if q.Get("sendInitialEvents") != "" { // an older server
			writeStatus(w, 422, metav1.StatusReasonInvalid)
			return
		}
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-s.events:
				if e.Type == "" {
					return
				}
				_ = json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, r.URL.RawQuery)
	if s.fail != nil {
		if code := s.fail(r.URL.RawQuery); code != 0 {
			reason := metav1.StatusReasonInternalError
			if code == 410 {
				reason = metav1.StatusReasonExpired
			}
			writeStatus(w, code, reason)
			return
		}
	}
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: s.nodes}
	list.ResourceVersion = strconv.Itoa(s.rv)
	if s.pages && q.Get("limit") == "500" && len(s.nodes) > 1 {
		if q.Get("continue") == "" {
			list.Items, list.Continue = s.nodes[:1], "more"
		} else {
			list.Items = s.nodes[1:]
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "no",
	})
}

func watchEvent(t *testing.T, kind string, n *corev1.Node) metav1.WatchEvent {
	t.Helper()
	n.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	raw, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	e := metav1.WatchEvent{Type: kind}
	e.Object.Raw = raw
	return e
}

func setResourceVersion(s string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.ResourceVersion = s }
}

func (s *apiServer) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func TestBookmarkAdvancesResourceVersion(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"))
	n := startWatch(t, client)
	awaitChanges(t, n, "the list", func(n taken) bool { return n.ResourceVersion == 10 && len(n.Changed) == 1 })
	s.events <- watchEvent(t, "BOOKMARK", newNode("", setResourceVersion("77")))
	changes := awaitChanges(t, n, "the bookmark", func(n taken) bool { return n.ResourceVersion == 77 })
	if changes.LastContact.IsZero() || len(changes.Changed) != 0 {
		t.Errorf("got %+v", changes)
	}
}

func testWatchExpires(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"))
	n := startWatch(t, client)
	awaitChanges(t, n, "the list", func(n taken) bool { return len(n.Changed) == 1 })
	s.locked(func() { s.nodes, s.rv = []corev1.Node{*newNode("b", setResourceVersion("19"))}, 20 })
	gone := metav1.WatchEvent{Type: "ERROR"}
	gone.Object.Raw = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old"}`)
	s.events <- gone
	awaitChanges(t, n, "the new list", func(n taken) bool {
		return len(n.Removed) == 1 && n.Removed[0] == "a" && len(n.Changed) == 1 && n.ResourceVersion == 20
	})
}

func testListRejected(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"))
	s.locked(func() { s.fail = func(string) int { return 403 } })
	n := startWatch(t, client)
	changes := awaitChanges(t, n, "the failure", func(n taken) bool { return strings.HasPrefix(n.Failure, "list nodes: ") })
	if !changes.LastContact.IsZero() {
		t.Errorf("got %+v", changes)
	}
	if _, err := n.Verify(t.Context(), roster.LightVerification); err == nil {
		t.Error("a light verification succeeded")
	}
}

func testPagesExpire(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"), newNode("b"))
	n := startWatch(t, client)
	awaitChanges(t, n, "the list", func(n taken) bool { return len(n.Changed) == 2 })
	expired := false
	s.locked(func() {
		s.pages, s.lists = true, nil
		s.fail = func(q string) int {
			if strings.Contains(q, "continue=") && !expired {
				expired = true
				return 410
			}
			return 0
		}
	})
	if _, err := n.Verify(t.Context(), roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	s.locked(func() {
		if got := strings.Join(s.lists, " "); got != "limit=500 continue=more&limit=500 limit=500 continue=more&limit=500" {
			t.Errorf("requested %s", got)
		}
	})
}

func testIdleWatchMissesChange(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"))
	n := startWatch(t, client)
	awaitChanges(t, n, "the list", func(n taken) bool { return len(n.Changed) == 1 })
	s.locked(func() { s.nodes, s.rv = []corev1.Node{*newNode("a"), *newNode("b", setResourceVersion("15"))}, 20 })
	n.minCatchUp = 100 * time.Millisecond // TestFullVerificationWaitsForAllPages has the real one
	_, err := n.Verify(t.Context(), roster.FullVerification)
	n.minCatchUp = minCatchUp
	if !errors.Is(err, errInconsistent) || !strings.Contains(err.Error(), `"b"`) {
		t.Fatalf("got %v", err)
	}
	awaitChanges(t, n, "the missed change", func(n taken) bool { return len(n.Changed) == 1 && n.Changed[0].Name == "b" })
	if _, err = n.Verify(t.Context(), roster.FullVerification); err != nil {
		t.Error(err)
	}
}

func TestRetriesWithinSecondsAfterOutage(t *testing.T) {
	backoff := newBackoff()
	for i := range 50 {
		if pause := backoff.Step(); pause > 10*time.Second {
			t.Fatalf("pause %d is %s: the inventory would lag by as much", i, pause)
		}
	}
}

func TestVerificationWaitsForEveryWatch(t *testing.T) {
	l := &Verifier{pending: []pendingVerification{{1, []uint64{10, 20}}, {2, []uint64{12, 22}}}, lastNumber: 2}
	for _, tc := range []struct {
		name    string
		at      []int // seconds
		rvs     []uint64
		contact int // 0: no new contact
		number  uint64
	}{
		{"one watch is behind", []int{1, 2}, []uint64{11, 19}, 1, 0},
		{"no contact since", []int{1, 2}, []uint64{11, 19}, 0, 0},
		{"both have caught up", []int{1, 3}, []uint64{11, 20}, 1, 1},
		{"the idle one counts", []int{4, 3}, []uint64{12, 20}, 3, 1},
		{"both have reached the second", []int{4, 5}, []uint64{12, 30}, 4, 2},
	} {
		var reached []Progress
		for i, seconds := range tc.at {
			reached = append(reached, Progress{time.Unix(int64(seconds), 0), tc.rvs[i]})
		}
		contact, number := l.Progress(reached...)
		if number != tc.number || contact.IsZero() != (tc.contact == 0) ||
			tc.contact != 0 && !contact.Equal(time.Unix(int64(tc.contact), 0)) {
			t.Errorf("%s: last contact %v, verified %d", tc.name, contact, number)
		}
	}
}

func TestVerificationCompletesAfterRestoreFromBackup(t *testing.T) {
	now := time.Unix(1, 0)
	l := &Verifier{pending: []pendingVerification{{1, []uint64{1000}}, {2, []uint64{8}}}, lastNumber: 2}
	if _, number := l.Progress(Progress{now, 7}); number != 0 {
		t.Errorf("verified %d", number)
	}
	if _, number := l.Progress(Progress{now, 8}); number != 2 || len(l.pending) != 0 {
		t.Errorf("verified %d, pending %v", number, l.pending)
	}
}

func TestPendingVerificationsAreBounded(t *testing.T) {
	client := fake.NewClientset(newNode("a"))
	l := NewVerifier(
		NewWatch(
			cordonKind(client),
			WatchConfig{Client: client, Metrics: NewMetrics(prometheus.NewRegistry()), Changed: make(chan struct{}, 1)},
		),
	)
	for range 3 * maxPending {
		if _, err := l.Verify(t.Context(), roster.LightVerification); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.pending) != maxPending || l.pending[0].number != 1 || l.pending[maxPending-1].number != 3*maxPending {
		t.Errorf("%d pending: %v", len(l.pending), l.pending)
	}
}

func testOlderList(t *testing.T) {
	for _, mode := range []roster.Verification{roster.LightVerification, roster.FullVerification} {
		t.Run(mode.String(), func(t *testing.T) {
			s, client := startAPIServer(t, newNode("a"))
			n := startWatch(t, client)
			awaitChanges(t, n, "the list", func(n taken) bool { return n.ResourceVersion == 10 })
			s.locked(func() { s.nodes, s.rv = []corev1.Node{*newNode("b", setResourceVersion("5"))}, 6 }) // etcd is restored
			if _, err := n.Verify(t.Context(), mode); !errors.Is(err, errInconsistent) {
				t.Errorf("got %v, want %v", err, errInconsistent)
			}
			awaitChanges(t, n, "what was restored", func(n taken) bool {
				return len(n.Removed) == 1 && len(n.Changed) == 1 && n.Changed[0].Name == "b" && n.ResourceVersion == 6
			})
			if _, err := n.Verify(t.Context(), mode); err != nil {
				t.Error(err)
			}
			s.locked(func() {
				if slices.ContainsFunc(s.lists, func(q string) bool { return strings.Contains(q, "resourceVersion=") }) {
					t.Errorf("requested %q, want quorum reads", s.lists)
				}
			})
		})
	}
}

func TestVerificationRefusesAListWithoutResourceVersion(t *testing.T) {
	s, client := startAPIServer(t, newNode("a"))
	n := startWatch(t, client)
	awaitChanges(t, n, "the list", func(n taken) bool { return n.ResourceVersion == 10 })
	s.locked(func() { s.nodes, s.rv = nil, 0 })
	for _, mode := range []roster.Verification{roster.LightVerification, roster.FullVerification} {
		if _, err := n.Verify(t.Context(), mode); err == nil || !strings.Contains(err.Error(), "invalid resourceVersion") {
			t.Errorf("%s: got %v", mode, err)
		}
	}
}

// hangingServer does not answer the first list.
type hangingServer struct{ lists int }

func (s *hangingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		if s.lists++; s.lists > 1 {
			list := `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[{"metadata":{"name":"a"}}]}`
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(list)), Request: r,
			}, nil
		}
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAFirstListThatHangsIsRepeated(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	defer func() { utilruntime.ErrorHandlers = handlers }() //nolint:reassign // it is meant for that
	utilruntime.ErrorHandlers = nil                         //nolint:reassign // one of them waits, by the clock outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{Host: "http://api", QPS: -1, Transport: &hangingServer{}}
		cluster.Observe(config, "inventory", prometheus.NewRegistry())
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		w := NewWatch(cordonKind(client), WatchConfig{
			Client: fake.NewClientset(), // which does not support WatchList
			Log:    slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()), Changed: make(chan struct{}, 1),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(3 * time.Minute)
		if changes := split(w.Take()); len(changes.Changed) != 1 {
			t.Errorf("after three minutes: %+v", changes)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

package sourcetest_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/inventory/kube"
	"github.com/slicefeed/slicefeed/services/inventory/kubeservice"
	"github.com/slicefeed/slicefeed/services/inventory/records"
	"github.com/slicefeed/slicefeed/services/inventory/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discardLogger = slog.New(slog.DiscardHandler)

func TestKubernetes(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, members ...sourcetest.Member) sourcetest.Fixture {
		c := newFakeCluster()
		set := func(t *testing.T, members ...sourcetest.Member) {
			t.Helper()
			nodes := c.CoreV1().Nodes()
			old, err := nodes.List(t.Context(), metav1.ListOptions{})
			must(t, err)
			for _, n := range old.Items {
				must(t, nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
			}
			for _, m := range members {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: types.UID(m.Name)}}
				node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.Address.String()}}
				if m.Ready {
					node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				}
				_, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
				must(t, err)
			}
		}
		set(t, members...)
		return c.fixture(
			kube.New(kube.Config{Client: c.Clientset, Log: discardLogger, Registerer: prometheus.NewRegistry()}),
			set,
		)
	})
}

func TestService(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, members ...sourcetest.Member) sourcetest.Fixture {
		c := newFakeCluster()
		_, err := c.CoreV1().
			Services("shop").
			Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
		must(t, err)
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "any-name", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		_, err = c.DiscoveryV1().EndpointSlices("shop").Create(t.Context(), slice, metav1.CreateOptions{})
		must(t, err)
		set := func(t *testing.T, members ...sourcetest.Member) {
			t.Helper()
			slice.Endpoints = nil
			for _, m := range members {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{m.Address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &m.Ready},
				})
			}
			_, err := c.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice, metav1.UpdateOptions{})
			must(t, err)
		}
		set(t, members...)
		return c.fixture(kubeservice.New(kubeservice.Config{
			Client:  c.Clientset,
			Service: types.NamespacedName{Namespace: "shop", Name: "web"},
			Log:     discardLogger,
			Metrics: kube.NewMetrics(prometheus.NewRegistry()),
		}), set)
	})
}

func TestFile(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, members ...sourcetest.Member) sourcetest.Fixture {
		path := filepath.Join(t.TempDir(), "nodes.json")
		return recordsFixture(t, records.NewFileReader(path), path, members)
	})
}

func TestCommand(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, members ...sourcetest.Member) sourcetest.Fixture {
		path := filepath.Join(t.TempDir(), "nodes.json")
		reader, err := records.NewCommandReader([]string{"cat", path}, discardLogger)
		must(t, err)
		return recordsFixture(t, reader, path, members)
	})
}

func TestStatic(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, members ...sourcetest.Member) sourcetest.Fixture {
		return sourcetest.Fixture{Source: newRecordsSource(records.Text(membersJSON(t, members)))}
	})
}

// recordsFixture returns a source of records that reads the file at path.
func recordsFixture(t *testing.T, reader records.Reader, path string, members []sourcetest.Member) sourcetest.Fixture {
	t.Helper()
	set := func(t *testing.T, members ...sourcetest.Member) {
		t.Helper()
		must(t, os.WriteFile(path+".new", []byte(membersJSON(t, members)), 0o600))
		must(t, os.Rename(path+".new", path))
	}
	set(t, members...)
	return sourcetest.Fixture{
		Source: newRecordsSource(reader), Set: set,
		Break:  func(t *testing.T) { t.Helper(); must(t, os.Remove(path)) },
		Repair: func(*testing.T) {}, // Set creates the file again
	}
}

func newRecordsSource(reader records.Reader) roster.Source {
	return records.New(records.Config{Reader: reader, Name: "the test's records", Log: discardLogger, Registerer: prometheus.NewRegistry()})
}

func membersJSON(t *testing.T, members []sourcetest.Member) string {
	t.Helper()
	type record struct {
		Name      string `json:"name"`
		PrivateIP string `json:"private_ip"`
		Ready     bool   `json:"ready"`
		Worker    bool   `json:"worker"`
	}
	all := []record{}
	for _, m := range members {
		all = append(all, record{m.Name, m.Address.String(), m.Ready, true})
	}
	raw, err := json.Marshal(all)
	must(t, err)
	return string(raw)
}

// fakeCluster is a fake API server that sets resourceVersions and can fail its lists.
type fakeCluster struct {
	*fake.Clientset

	broken   atomic.Bool
	revision atomic.Int64
	watching chan struct{}
}

func newFakeCluster() *fakeCluster {
	c := &fakeCluster{Clientset: fake.NewClientset(), watching: make(chan struct{}, 10)}
	setRevision := func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := a.(interface{ GetObject() runtime.Object }); ok {
			if o, ok := a.GetObject().(metav1.Object); ok {
				o.SetResourceVersion(strconv.FormatInt(c.revision.Add(1), 10))
			}
		}
		return false, nil, nil
	}
	c.PrependReactor("create", "*", setRevision)
	c.PrependReactor("update", "*", setRevision)
	c.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if c.broken.Load() {
			return true, nil, errors.New("API server fault")
		}
		return false, nil, nil
	})
	c.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		stream, err := c.Tracker().Watch(a.GetResource(), a.GetNamespace())
		c.watching <- struct{}{} // the fake client loses changes between list and watch
		return true, stream, err
	})
	return c
}

func (c *fakeCluster) fixture(source roster.Source, set func(*testing.T, ...sourcetest.Member)) sourcetest.Fixture {
	return sourcetest.Fixture{
		Source: source,
		Set: func(t *testing.T, members ...sourcetest.Member) {
			t.Helper()
			<-c.watching
			set(t, members...)
		},
		Break:  func(*testing.T) { c.broken.Store(true) },
		Repair: func(*testing.T) { c.broken.Store(false) },
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

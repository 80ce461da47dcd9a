package targets

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// crowd is how many Services one writer keeps in the test below.
const crowd = 300

func TestHundredsOfServicesShareTheProbesAndAreWrittenEachForItself(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{})
	f.StartAll()
	workers := f.Join(3)
	all := createCrowd(f, crowd)
	names := []types.NamespacedName{e2e.NameOf(f.Service)}
	for _, one := range all {
		names = append(names, e2e.NameOf(one))
	}
	f.Step("all are served", func(f *e2e.Setup) {
		took, err := f.WaitEach(f.Ctx(), time.Now(), names, pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
		f.Must(err)
		f.T.Logf("%d Services served %s after the last was made", crowd, took)
	})
	f.Step("a backend is probed once and not for each Service", func(f *e2e.Setup) {
		f.AwaitMetric(f.Writers[0], `slicefeed_writer_probed_endpoints{health="passing"}`, e2e.Equals(3))
		f.AwaitMetric(f.Writers[0], `slicefeed_writer_probed_endpoints{health="pending"}`, e2e.Equals(0))
	})
	f.Step("a change of one Service writes that one", func(f *e2e.Setup) {
		before := f.WriteCount()
		f.PatchService(all[7], `{"spec":{"ports":[{"name":"web","protocol":"TCP","port":80,"targetPort":30080}]}}`)
		f.AwaitOf(all[7], "the port has its new name", func(slices []*discoveryv1.EndpointSlice) bool {
			return len(slices) == 1 && *slices[0].Ports[0].Name == "web"
		})
		if n := f.WriteCount() - before; n != 1 {
			f.T.Errorf("%d writes", n)
		}
	})
	f.Step("a change of a node writes each Service once", func(f *e2e.Setup) {
		before, start := f.WriteCount(), time.Now()
		f.Must(workers[2].Leave(f.Ctx()))
		took, err := f.WaitEach(f.Ctx(), start, names, pair.AreJust(pair.Ready, e2e.Addresses(workers[:2])...))
		f.Must(err)
		f.T.Logf("%d Services follow within %s", crowd, took)
		if n := f.WriteCount() - before; n != len(names) {
			f.T.Errorf("%d writes for %d Services", n, len(names))
		}
	})
	f.Step("a restart writes nothing", func(f *e2e.Setup) {
		f.ExpectNoWrites(func() {
			f.Must(f.Writers[0].Terminate(20 * time.Second))
			f.StartWriters()
			f.AwaitMetric(f.Writers[0], `slicefeed_writer_probed_endpoints{health="passing"}`, e2e.Equals(2))
			f.AwaitMetric(f.Writers[0], e2e.SourceSynced, e2e.Equals(1))
		})
	})
	f.Step("one that opts out is one less", func(f *e2e.Setup) {
		before := f.WriteCount()
		f.SetClass(all[0], "none")
		f.AwaitOf(all[0], "it has none", e2e.None)
		if n := f.WriteCount() - before; n != 1 {
			f.T.Errorf("%d writes", n)
		}
	})
}

// createCrowd creates so many Services, some at a time.
func createCrowd(f *e2e.Setup, n int) []*corev1.Service {
	f.T.Helper()
	all := make([]*corev1.Service, n)
	group, ctx := errgroup.WithContext(f.Ctx())
	group.SetLimit(8)
	config := f.Consuming.AdminConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	f.Must(err)
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = client.CoreV1().Services(pair.Namespace).
				Create(ctx, e2e.NewLabeledService(fmt.Sprintf("service-%03d", i)), metav1.CreateOptions{})
			return err
		})
	}
	f.Must(group.Wait())
	return all
}

package e2e

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

	"github.com/slicefeed/slicefeed/lab/pair"
)

// crowd is how many Services one writer keeps in the test below, and served within is how long
// that may take with the race detector on.
const (
	crowd        = 300
	servedWithin = 60 * time.Second
)

func TestHundredsOfServicesShareTheProbesAndAreWrittenEachForItself(t *testing.T) {
	f := enterFleet(t, script{})
	f.start()
	workers := f.join(3)
	all := f.crowd(crowd)
	names := []types.NamespacedName{nameOf(f.service)}
	for _, one := range all {
		names = append(names, nameOf(one))
	}
	f.step("all are served", func(f *fleet) {
		took, err := f.seen.WaitEach(f.ctx(), time.Now(), names, pair.AreJust(pair.Ready, addresses(workers)...))
		f.must(err)
		f.t.Logf("%d Services served %s after the last was made", crowd, took)
		if took > servedWithin {
			f.t.Errorf("that took %s", took)
		}
	})
	f.step("a backend is probed once and not for each Service", func(f *fleet) {
		f.metric(f.writers[0], `slicefeed_writer_probed_endpoints{health="passing"}`, equals(3))
		f.metric(f.writers[0], `slicefeed_writer_probed_endpoints{health="pending"}`, equals(0))
	})
	f.step("a change of one Service writes that one", func(f *fleet) {
		before := f.writes()
		f.patch(all[7], `{"spec":{"ports":[{"name":"web","protocol":"TCP","port":80,"targetPort":30080}]}}`)
		f.wait(all[7], "the port has its new name", func(slices []*discoveryv1.EndpointSlice) bool {
			return len(slices) == 1 && *slices[0].Ports[0].Name == "web"
		})
		if n := f.writes() - before; n != 1 {
			f.t.Errorf("%d writes", n)
		}
	})
	f.step("a change of a node writes each Service once", func(f *fleet) {
		before, start := f.writes(), time.Now()
		f.must(workers[2].Leave(f.ctx()))
		took, err := f.seen.WaitEach(f.ctx(), start, names, pair.AreJust(pair.Ready, addresses(workers[:2])...))
		f.must(err)
		f.t.Logf("%d Services follow within %s", crowd, took)
		if n := f.writes() - before; n != len(names) {
			f.t.Errorf("%d writes for %d Services", n, len(names))
		}
		if took > servedWithin/2 {
			f.t.Errorf("that took %s", took)
		}
	})
	f.step("a restart writes nothing", func(f *fleet) {
		f.quiet(func() {
			f.must(f.writers[0].Terminate(20 * time.Second))
			f.startWriters()
			f.metric(f.writers[0], `slicefeed_writer_probed_endpoints{health="passing"}`, equals(2))
			f.metric(f.writers[0], sourceSynced, equals(1))
		})
	})
	f.step("one that opts out is one less", func(f *fleet) {
		before := f.writes()
		f.label(all[0], "none")
		f.wait(all[0], "it has none", none)
		if n := f.writes() - before; n != 1 {
			f.t.Errorf("%d writes", n)
		}
	})
}

// crowd makes so many Services, some at a time.
func (f *fleet) crowd(n int) []*corev1.Service {
	f.t.Helper()
	all := make([]*corev1.Service, n)
	group, ctx := errgroup.WithContext(f.ctx())
	group.SetLimit(8)
	config := f.Consuming.AdminConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	f.must(err)
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = client.CoreV1().
				Services(pair.Namespace).
				Create(ctx, labelled(fmt.Sprintf("service-%03d", i)), metav1.CreateOptions{})
			return err
		})
	}
	f.must(group.Wait())
	return all
}

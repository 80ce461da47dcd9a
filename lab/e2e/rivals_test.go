package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTwoInstallationsOfOneClassDoNotFight(t *testing.T) {
	f := enterFleet(t, script{writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	f.must(f.OpenNamespace(f.ctx(), pair.OtherNamespace))
	rival, err := f.AddRival(f.ctx(), "default", pair.OtherNamespace)
	f.must(err)
	rival.Set("WATCH_NAMESPACES", pair.OtherNamespace)
	t.Cleanup(func() {
		f.must(rival.Kill())
		f.readLog(rival)
		f.must(
			f.ConsumingClient().
				CoordinationV1().
				Leases("rival").
				DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}),
		)
	})
	cart := f.make(labelled("cart", inNamespace(pair.OtherNamespace)))
	f.start()
	workers := f.join(2)
	f.wait(cart, "it is served", pair.AreJust(pair.Ready, addresses(workers)...))
	attempts := func(user string) int {
		all, err := f.WritesBy(f.ctx(), user)
		f.must(err)
		return len(all)
	}
	f.step("the second says so and writes nothing", func(f *fleet) {
		f.must(rival.Start(f.ctx()))
		f.metric(rival, leads, equals(1))
		f.t.Log(f.tells(cart, "OwnedByOtherWriter", "namespace "+pair.Namespace, "CLASS").Note)
		third := f.told()
		f.wait(cart, "the first goes on", pair.Are(pair.Ready, third.Address))
		f.metric(rival, sourceMembers, equals(3)) // it has heard of it too
		if n := attempts(pair.RivalUser); n != 0 {
			f.t.Errorf("the second has sent %d writes", n)
		}
	})
	f.step("neither does so when the first is away", func(f *fleet) {
		f.must(f.writers[0].Terminate(patience))
		before := f.versions(cart)
		fourth := f.machine(pair.WorkerOptions{})
		f.must(fourth.Join(f.ctx()))
		f.metric(rival, sourceMembers, equals(4))
		if diff := cmp.Diff(before, f.versions(cart)); diff != "" || attempts(pair.RivalUser) != 0 {
			f.t.Errorf("the second has written: %s", diff)
		}
		f.startWriters()
		f.wait(cart, "the first is back", pair.Are(pair.Ready, fourth.Address))
	})
	f.step("of a new Service one of them is the first", func(f *fleet) {
		begun := attempts(pair.WriterUser) + attempts(pair.RivalUser)
		novel := f.make(labelled("novel", inNamespace(pair.OtherNamespace)))
		f.wait(novel, "it is served", pair.Are(pair.Ready, addresses(workers)...))
		f.tells(novel, "OwnedByOtherWriter")
		third := f.told()
		f.wait(novel, "it follows", pair.Are(pair.Ready, third.Address))
		if its := f.of(novel); len(its) != 1 {
			f.t.Errorf("it has %d slices: %s", len(its), pair.Describe(its))
		}
		// A create each, of which one is refused; three Services hear of the third worker, and of
		// two that have died with the steps above.
		if n := attempts(pair.WriterUser) + attempts(pair.RivalUser) - begun; n > 2+3*3 {
			f.t.Errorf("%d writes", n)
		}
	})
}

func TestWhoeverKeepsEditingIsAnsweredLessAndLessAndNamed(t *testing.T) {
	f := enterFleet(t, script{})
	f.start()
	workers := f.join(2)
	ready := pair.AreJust(pair.Ready, addresses(workers)...)
	edit := func(f *fleet) {
		slice := f.slice().DeepCopy()
		slice.Endpoints = slice.Endpoints[:1]
		_, err := f.ConsumingClient().
			DiscoveryV1().
			EndpointSlices(pair.Namespace).
			Update(f.ctx(), slice, metav1.UpdateOptions{FieldManager: "meddler"})
		f.must(err)
		f.slices("it is edited", pair.Are(pair.Absent, addressOf(slice.Endpoints, workers)))
	}
	f.step("five times it is put right at once", func(f *fleet) {
		for range 5 {
			edit(f)
			f.slices("it is put right", ready)
		}
		// A repair that waits, waits for a second at least, and its Event comes before it.
		if events := f.events(f.service); strings.Contains(events, "RepairsBackedOff") {
			f.t.Errorf("a repair had to wait: %s", events)
		}
	})
	f.step("then later", func(f *fleet) {
		edit(f)
		took := f.slices("it is put right", ready)
		f.t.Logf("after %s", took)
		edit(f)
		longer := f.slices("it is put right", ready)
		f.t.Logf("after %s", longer)
		if longer < time.Second || longer < took {
			f.t.Errorf("that was not later and later: %s, %s", took, longer)
		}
		f.tells(f.service, "RepairsBackedOff", "meddler")
	})
	f.step("a change of the source's is not held up by it", func(f *fleet) {
		start := time.Now() // just after the last repair: the next may be made 4 s after that one
		edit(f)
		third := f.machine(pair.WorkerOptions{})
		f.must(third.Join(f.ctx()))
		f.slices("all serve", pair.Are(pair.Ready, append(addresses(workers), third.Address)...))
		if took := time.Since(start); took > 3*time.Second {
			f.t.Errorf("that took %s", took)
		}
	})
}

// addressOf is that of the worker who is not in the list any more.
func addressOf(left []discoveryv1.Endpoint, workers []*pair.Worker) netip.Addr {
	for _, w := range workers {
		if left[0].Addresses[0] != w.Address.String() {
			return w.Address
		}
	}
	panic(fmt.Sprintf("nobody is missing in %v", left))
}

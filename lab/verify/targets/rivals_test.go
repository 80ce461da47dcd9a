package targets

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTwoInstallationsOfOneClassDoNotFight(t *testing.T) {
	f := e2e.NewLabeled(t, e2e.Options{Writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	const rivals = "rivals" // only the second watches it
	f.Must(f.OpenNamespace(f.Ctx(), pair.OtherNamespace))
	f.Must(f.OpenNamespace(f.Ctx(), rivals))
	rival, err := f.AddRival(f.Ctx(), "default", pair.OtherNamespace, rivals)
	f.Must(err)
	rival.Set("WATCH_NAMESPACES", pair.OtherNamespace+","+rivals)
	// A writer connects to a source that a Service uses, which a rejected one does not.
	f.CreateService(e2e.NewLabeledService("theirs", e2e.InNamespace(rivals), e2e.Annotated("paused", "true")))
	t.Cleanup(func() {
		f.Must(rival.Kill())
		f.CheckLog(rival)
		f.Must(f.ConsumingClient().CoordinationV1().Leases("rival").
			DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	cart := f.CreateService(e2e.NewLabeledService("cart", e2e.InNamespace(pair.OtherNamespace)))
	f.StartAll()
	workers := f.Join(2)
	f.AwaitOf(cart, "it is served", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	attempts := func(user string) int {
		all, err := f.WritesBy(f.Ctx(), user)
		f.Must(err)
		return len(all)
	}
	f.Step("the second says so and writes nothing", func(f *e2e.Setup) {
		f.Must(rival.Start(f.Ctx()))
		f.AwaitMetric(rival, e2e.Leads, e2e.Equals(1))
		f.T.Log(f.AwaitEventOn(cart, "OwnedByOtherWriter", "namespace "+pair.Namespace, "CLASS").Note)
		third := f.CatchUp()
		f.AwaitOf(cart, "the first goes on", pair.Are(pair.Ready, third.Address))
		f.AwaitMetric(rival, e2e.SourceMembers, e2e.Equals(3)) // it has heard of it too
		if n := attempts(pair.RivalUser); n != 0 {
			f.T.Errorf("the second has sent %d writes", n)
		}
	})
	f.Step("neither does so when the first is away", func(f *e2e.Setup) {
		f.Must(f.Writers[0].Terminate(e2e.Patience))
		before := f.VersionsOf(cart)
		fourth := f.Machine(pair.WorkerOptions{})
		f.Must(fourth.Join(f.Ctx()))
		f.AwaitMetric(rival, e2e.SourceMembers, e2e.Equals(4))
		if diff := cmp.Diff(before, f.VersionsOf(cart)); diff != "" || attempts(pair.RivalUser) != 0 {
			f.T.Errorf("the second has written: %s", diff)
		}
		f.StartWriters()
		f.AwaitOf(cart, "the first is back", pair.Are(pair.Ready, fourth.Address))
	})
	f.Step("of a new Service one of them is the first", func(f *e2e.Setup) {
		begun := attempts(pair.WriterUser) + attempts(pair.RivalUser)
		novel := f.CreateService(e2e.NewLabeledService("novel", e2e.InNamespace(pair.OtherNamespace)))
		f.AwaitOf(novel, "it is served", pair.Are(pair.Ready, e2e.Addresses(workers)...))
		f.AwaitEventOn(novel, "OwnedByOtherWriter")
		third := f.CatchUp()
		f.AwaitOf(novel, "it follows", pair.Are(pair.Ready, third.Address))
		if its := f.SlicesOf(novel); len(its) != 1 {
			f.T.Errorf("it has %d slices: %s", len(its), pair.Describe(its))
		}
		// A create each, of which one is refused; three Services hear of the third worker, and of
		// two that have died with the steps above.
		if n := attempts(pair.WriterUser) + attempts(pair.RivalUser) - begun; n > 2+3*3 {
			f.T.Errorf("%d writes", n)
		}
	})
}

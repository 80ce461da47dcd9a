package control

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestAWriteThatFailsIsTriedAgainLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &control{stages: &stages{log: slog.New(slog.DiscardHandler)}}
		for n, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
			if due := c.learn(errors.New("500")); !due || time.Until(c.retryAt) != want {
				t.Errorf("failure %d: due again: %t, after %s; want true, after %s", n+1, due, time.Until(c.retryAt), want)
			}
		}
		if due := c.learn(nil); due || !c.retryAt.IsZero() {
			t.Errorf("after a success: due again: %t, not before %s", due, c.retryAt)
		}
		if c.learn(errors.New("500")); time.Until(c.retryAt) != time.Second {
			t.Errorf("after a success and a failure: after %s, want 1s", time.Until(c.retryAt))
		}
	})
}

func TestDelayedWriteWaitsAsLongAsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &control{stages: &stages{log: slog.New(slog.DiscardHandler)}}
		at := time.Now().Add(time.Minute)
		if due := c.learn(&applier.RetryLaterError{At: at, Err: errors.New("429")}); !due || !c.retryAt.Equal(at) {
			t.Errorf("put off: due again: %t, not before %s; want true, %s", due, c.retryAt, at)
		}
		if due := c.learn(&applier.RetryLaterError{At: at, Err: errors.New("edited"), Repair: true}); due || !c.repairAt.Equal(at) || !c.retryAt.IsZero() {
			t.Errorf("a repair put off: due again: %t, mended at %s, our own not before %s; want false, %s, never", due, c.repairAt, c.retryAt, at)
		}
		if due := c.learn(&applier.StaleError{Slice: "a", Err: errors.New("409")}); !due || !c.retryAt.IsZero() || !c.repairAt.IsZero() {
			t.Errorf("changed meanwhile: due again: %t, not before %s, mended at %s; want true, at once", due, c.retryAt, c.repairAt)
		}
	})
}

func TestNothingIsWrittenForAServiceThatIsPaused(t *testing.T) {
	o := newOffice(t, &elected{})
	key := targets.Key{Namespace: "web", Name: "blue"}
	for _, paused := range []bool{false, true} {
		view := targets.Resolution{Relevant: true, Paused: paused, Target: targets.Target{Key: key, Settings: targets.Settings{Sources: []string{"default"}}}}
		if write, _, _ := o.control(key, o).judge(view, time.Now()); (write == nil) != paused {
			t.Errorf("paused: %t; there is something to write: %t", paused, write != nil)
		}
	}
}

func TestRecreatedServiceStartsWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, &elected{}, service("blue", "default"))
		o.run(t)
		at := time.Now()
		before, _ := verdict.Decide(verdict.Memory{}, verdict.Input{Sources: []verdict.Source{{
			Name: "default", EverSynced: true, Connected: true, MembershipSynced: true, MembershipSyncedAt: at, Observation: 7, ObservationAt: at,
		}}}, at)
		judged := func(was types.UID, memory verdict.Memory) verdict.Memory {
			c := o.control(targets.Key{Namespace: "web", Name: "blue"}, o)
			c.uid, c.memory = was, memory
			c.step(at)
			return c.memory
		}
		if reflect.DeepEqual(judged("blue", before), judged("blue", verdict.Memory{})) {
			t.Error("what is known of a Service is forgotten while it is the same")
		}
		if !reflect.DeepEqual(judged("the one before", before), judged("the one before", verdict.Memory{})) {
			t.Error("what is known of the Service before it counts for the one that was made anew")
		}
	})
}

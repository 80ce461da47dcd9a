package events

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var shop = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "web", Name: "shop", UID: "svc-1"}

// recorded are the Events that a Reporter has recorded, oldest first, as reason and note.
type recorded struct {
	slog.Handler

	events [][2]string
}

func (r *recorded) Handle(_ context.Context, record slog.Record) error {
	var event [2]string
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "reason":
			event[0] = a.Value.String()
		case "note":
			event[1] = a.Value.String()
		}
		return true
	})
	r.events = append(r.events, event)
	return nil
}

func (r *recorded) Enabled(context.Context, slog.Level) bool { return true }

func newRecorded() (*recorded, *Reporter) {
	r := &recorded{Handler: slog.DiscardHandler}
	return r, NewReporter(Config{Logger: slog.New(r)})
}

// newProblem is a problem of a source, or of the Service itself.
func newProblem(reason, source, message string) *report.Problem {
	p := &report.Problem{Level: report.Warning, Reason: reason, Object: "Service web/shop", Message: message}
	if source != "" {
		p.Object += ", source " + source
	}
	return p
}

func TestReportsWarningThatEndedWhileAnotherReplicaLed(t *testing.T) {
	shrink, trust := newProblem("ShrinkLimited", "blue", ""), newProblem("SourceEmpty", "green", "")
	for name, tt := range map[string]struct {
		standby [][]*report.Problem // in force at each decision while another replica leads
		want    int                 // Events in all, after the first term's two
	}{
		"it went on":                     {[][]*report.Problem{{shrink, trust}}, 0},
		"one ended":                      {[][]*report.Problem{{trust}}, 1},
		"one ended and began again":      {[][]*report.Problem{{trust}, {shrink, trust}}, 1},
		"both ended":                     {[][]*report.Problem{{}, {shrink}}, 2},
		"the same guard, another source": {[][]*report.Problem{{newProblem("ShrinkLimited", "green", ""), trust}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			reported, r := newRecorded()
			r.SetActive(shop, Current{Problems: []*report.Problem{shrink, trust}, Managed: true, Leading: true}, time.Now())
			for _, warnings := range tt.standby {
				r.SetActive(shop, Current{Problems: warnings, Managed: true}, time.Now())
			}
			if events := reported.events; len(events) != 2 {
				t.Errorf("a standby reports: %+v", events)
			}
			r.SetActive(shop, Current{Problems: []*report.Problem{shrink, trust}, Managed: true, Leading: true}, time.Now())
			if events := reported.events; len(events) != 2+tt.want {
				t.Errorf("%d Events in the next term, want %d: %+v", len(events)-2, tt.want, events)
			}
		})
	}
}

func TestReportsAnotherMistakeThatReplacesOne(t *testing.T) {
	mistake := func(message string) *report.Problem { return newProblem("InvalidAnnotation", "", message) }
	guard := func(message string) *report.Problem { return newProblem("ShrinkLimited", "", message) }
	reported, r := newRecorded()
	for _, problems := range [][]*report.Problem{
		{mistake("probe"), guard("1 held")},
		{mistake("probe"), guard("2 held")},
		{mistake("workload"), mistake("port"), guard("3 held")},
		{mistake("workload"), mistake("port"), guard("3 held")},
	} {
		r.SetActive(shop, Current{Problems: problems, Managed: true, Leading: true}, time.Now())
	}
	var notes []string
	for _, e := range reported.events {
		note, _, _ := strings.Cut(e[1], ".")
		notes = append(notes, note)
	}
	slices.Sort(notes)
	if want := []string{"1 held", "port", "probe", "workload"}; !slices.Equal(notes, want) {
		t.Errorf("reported %q, want %q", notes, want)
	}
}

func TestMistakesThatFollowEachOtherAreLimited(t *testing.T) {
	reported, r := newRecorded()
	begin := time.Now()
	set := func(after time.Duration, problems ...*report.Problem) time.Time {
		return r.SetActive(shop, Current{Problems: problems, Managed: true, Leading: true}, begin.Add(after))
	}
	for i := range 1000 {
		set(time.Duration(i)*time.Millisecond, newProblem("InvalidAnnotation", "", strconv.Itoa(i)))
		set(time.Duration(i) * time.Millisecond)
	}
	if n := len(reported.events); n != maxAtOnce {
		t.Errorf("%d Events within a second, want %d", n, maxAtOnce)
	}
	last := newProblem("InvalidAnnotation", "", "last")
	if wake := set(time.Second, last); !wake.Equal(begin.Add(time.Second + calmPeriod)) {
		t.Errorf("decides again at %v", wake)
	}
	if set(time.Second+calmPeriod, last); len(reported.events) != maxAtOnce+1 || !strings.HasPrefix(reported.events[maxAtOnce][1], "last") {
		t.Errorf("%d Events; what lasts is not reported", len(reported.events))
	}
}

func TestReportsTransientWarningsOnlyWhenTheyLast(t *testing.T) {
	reported, r := newRecorded()
	begin := time.Now()
	warnings := []*report.Problem{newProblem("ShrinkLimited", "", ""), newProblem("SourceNotTrusted", "blue", "")}
	for _, step := range []struct {
		after    time.Duration
		warnings []*report.Problem
		leading  bool
		reported int
		wake     time.Duration // 0: none
	}{
		{0, warnings, true, 1, 5 * time.Second},
		{4 * time.Second, warnings, true, 1, 5 * time.Second},
		{5 * time.Second, warnings, true, 2, 0},
		{6 * time.Second, warnings, true, 2, 0},
		{7 * time.Second, warnings[:1], true, 2, 17 * time.Second},
		{8 * time.Second, warnings, true, 2, 13 * time.Second}, // it began again
		{13 * time.Second, warnings, false, 2, 0},
		{14 * time.Second, warnings, true, 3, 0}, // it has lasted, whoever led
	} {
		wake := r.SetActive(shop, Current{Problems: step.warnings, Managed: true, Leading: step.leading}, begin.Add(step.after))
		if want := begin.Add(step.wake); step.wake == 0 && !wake.IsZero() || step.wake != 0 && !wake.Equal(want) {
			t.Errorf("after %s: wake is %v, want %s after the start", step.after, wake, step.wake)
		}
		if events := reported.events; len(events) != step.reported {
			t.Errorf("after %s: %d Events, want %d", step.after, len(events), step.reported)
		}
	}
}

func TestRecordsProblemWithAdviceWithoutClient(t *testing.T) {
	reported, r := newRecorded()
	r.SetActive(shop, Current{Problems: []*report.Problem{newProblem("OutOfSync", "", "")}, Managed: true, Leading: true}, time.Now())
	r.Report(shop, newProblem("ExternalName", "", "It has no endpoints"))
	want := [][2]string{{"ExternalName", "It has no endpoints. Use ClusterIP, NodePort or LoadBalancer."}}
	if !slices.Equal(reported.events, want) {
		t.Errorf("%v", reported.events)
	}
}

func TestAddsReturningWarningToSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		r := NewReporter(Config{Client: client, Instance: "writer-1", Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		events := func() []eventsv1.Event {
			synctest.Wait()
			list, err := client.EventsV1().Events("web").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		outside := newProblem("AddressNotAllowed", "", "10.9.9.9 is outside 10.0.0.0/24")
		r.SetActive(shop, Current{Problems: []*report.Problem{outside, outside}, Managed: true, Leading: true}, time.Now())
		r.SetActive(shop, Current{Problems: []*report.Problem{outside}, Managed: true, Leading: true}, time.Now())
		got := events()
		if len(got) != 1 || got[0].Reason != outside.GetReason() || got[0].Regarding.Name != "shop" || got[0].Series != nil ||
			!strings.HasPrefix(got[0].Note, outside.GetMessage()+". If the addresses are right") {
			t.Fatalf("got Events %+v", got)
		}
		r.SetActive(shop, Current{Managed: true, Leading: true}, time.Now())
		time.Sleep(time.Minute)
		r.SetActive(shop, Current{Problems: []*report.Problem{outside}, Managed: true, Leading: true}, time.Now())
		if got := events(); len(got) != 1 || got[0].Series == nil || got[0].Series.Count != 2 {
			t.Errorf("the second period should join the first Event: %+v", got)
		}
		time.Sleep(time.Hour)
		r.Report(shop, outside)
		if got := events(); len(got) != 2 {
			t.Errorf("an hour later there are %d Events, want 2", len(got))
		}
	})
}

func TestRejectedEventIsLoggedUnlessNamespaceIsBeingDeleted(t *testing.T) {
	terminating := apierrors.NewForbidden(eventsv1.Resource("events"), "shop.1", errors.New("namespace web is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	for name, c := range map[string]struct {
		err  error
		warn bool
	}{
		"the namespace is being deleted": {terminating, false},
		"the namespace is gone":          {apierrors.NewNotFound(corev1.Resource("namespaces"), "web"), false},
		"a Role lacks a verb":            {apierrors.NewForbidden(eventsv1.Resource("events"), "shop.1", errors.New("no")), true},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			client := fake.NewClientset()
			client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			r := NewReporter(Config{Client: client, Logger: slog.New(slog.NewTextHandler(&text, nil))})
			r.Report(shop, newProblem("ShrinkLimited", "", ""))
			r.sendEvent(t.Context(), <-r.queue)
			if got := strings.Contains(text.String(), "event not written"); got != c.warn {
				t.Errorf("warned %t, want %t:\n%s", got, c.warn, text.String())
			}
		})
	}
}

func TestEventThatCouldNotBeSentIsReportedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"no answer":                   {context.DeadlineExceeded, true},
		"the API server is ill":       {apierrors.NewInternalError(errors.New("etcd")), true},
		"the API server is too busy":  {apierrors.NewTooManyRequests("wait", 1), true},
		"a Role lacks a verb":         {apierrors.NewForbidden(eventsv1.Resource("events"), "shop.1", errors.New("no")), false},
		"it is sent, and reported is": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return c.err != nil, nil, c.err
			})
			r := NewReporter(Config{Client: client, Logger: slog.New(slog.DiscardHandler)})
			current := Current{Problems: []*report.Problem{newProblem("ShrinkLimited", "", "")}, Managed: true, Leading: true}
			r.SetActive(shop, current, time.Now())
			r.sendEvent(t.Context(), <-r.queue)
			r.SetActive(shop, current, time.Now())
			if again := len(r.queue) == 1; again != c.again {
				t.Errorf("reported again: %t, want %t", again, c.again)
			}
		})
	}

	t.Run("too many are waiting", func(t *testing.T) {
		r, now := NewReporter(Config{Client: fake.NewClientset(), Logger: slog.New(slog.DiscardHandler)}), time.Now()
		floor := Current{Problems: []*report.Problem{newProblem("LastEndpointsKept", "", "")}, Managed: true, Leading: true}
		r.SetActive(shop, floor, now)
		for len(r.queue) < maxQueue {
			r.Report(shop, newProblem("WriteRejected", "", ""))
		}
		over := Current{Problems: []*report.Problem{newProblem("ShrinkLimited", "", "")}, Managed: true, Leading: true}
		r.SetActive(shop, over, now)
		if wake := r.SetActive(shop, over, now.Add(calmPeriod)); r.Report(shop, over.Problems[0]) || wake.IsZero() {
			t.Errorf("a full queue takes more, or it is decided again at %v", wake)
		}
		for range maxQueue {
			<-r.queue
		}
		r.SetActive(shop, over, now.Add(time.Minute))
		var reasons []string
		for len(r.queue) > 0 {
			reasons = append(reasons, (<-r.queue).event.Reason)
		}
		slices.Sort(reasons)
		if want := []string{"FloorGuardOver", "ShrinkLimited"}; !slices.Equal(reasons, want) {
			t.Errorf("then %v are reported, want %v", reasons, want)
		}
	})
}

// A ServiceImport may have a longer name than its Events have room for.
func TestEventsHaveValidNames(t *testing.T) {
	r := NewReporter(Config{Client: fake.NewClientset(), Logger: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"shop", strings.Repeat("a", 236), strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a"} {
		r.Report(corev1.ObjectReference{Namespace: "web", Name: name, UID: "u"}, newProblem("InvalidServiceImport", "", ""))
		if got := (<-r.queue).event.Name; len(validation.IsDNS1123Subdomain(got)) > 0 ||
			!strings.HasPrefix(got, name[:min(len(name), 200)]) {
			t.Errorf("%s has an Event %s: %v", name, got, validation.IsDNS1123Subdomain(got))
		}
	}
}

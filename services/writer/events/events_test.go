package events

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
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
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/writer/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var shop = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "web", Name: "shop", UID: "svc-1"}

func TestReportsWarningThatEndedWhileAnotherReplicaLed(t *testing.T) {
	shrink, trust := Warning{Reason: "Shrink", Source: "blue"}, Warning{Reason: "Trust", Source: "green"}
	for name, tt := range map[string]struct {
		standby [][]Warning // in force at each decision while another replica leads
		want    int         // Events in all, after the first term's two
	}{
		"it went on":                     {[][]Warning{{shrink, trust}}, 0},
		"one ended":                      {[][]Warning{{trust}}, 1},
		"one ended and began again":      {[][]Warning{{trust}, {shrink, trust}}, 1},
		"both ended":                     {[][]Warning{{}, {shrink}}, 2},
		"the same guard, another source": {[][]Warning{{{Reason: "Shrink", Source: "green"}, trust}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var reported history.Log
			r := NewReporter(Config{Logger: slog.New(slog.DiscardHandler), History: &reported})
			r.SetActive(shop, Current{Warnings: []Warning{shrink, trust}, Managed: true, Leading: true}, time.Now())
			for _, warnings := range tt.standby {
				r.SetActive(shop, Current{Warnings: warnings, Managed: true}, time.Now())
			}
			if _, events := reported.Recent(nil); len(events) != 2 {
				t.Errorf("a standby reports: %+v", events)
			}
			r.SetActive(shop, Current{Warnings: []Warning{shrink, trust}, Managed: true, Leading: true}, time.Now())
			if _, events := reported.Recent(nil); len(events) != 2+tt.want {
				t.Errorf("%d Events in the next term, want %d: %+v", len(events)-2, tt.want, events)
			}
		})
	}
}

func TestReportsAnotherMistakeThatReplacesOne(t *testing.T) {
	mistake := func(note string) Warning {
		return Warning{Reason: "InvalidAnnotation", Note: note, ByNote: true}
	}
	guard := func(note string) Warning { return Warning{Reason: "ShrinkLimited", Note: note} }
	var reported history.Log
	r := NewReporter(Config{Logger: slog.New(slog.DiscardHandler), History: &reported})
	for _, warnings := range [][]Warning{
		{mistake("probe"), guard("1 held")},
		{mistake("probe"), guard("2 held")},
		{mistake("workload"), guard("3 held")},
		{mistake("workload"), guard("3 held")},
	} {
		r.SetActive(shop, Current{Warnings: warnings, Managed: true, Leading: true}, time.Now())
	}
	var notes []string
	_, events := reported.Recent(nil)
	for _, e := range events {
		notes = append(notes, e.Note)
	}
	slices.Sort(notes)
	if want := []string{"1 held", "probe", "workload"}; !slices.Equal(notes, want) {
		t.Errorf("reported %q, want %q", notes, want)
	}
}

func TestReportsTransientWarningsOnlyWhenTheyLast(t *testing.T) {
	var reported history.Log
	r := NewReporter(Config{Logger: slog.New(slog.DiscardHandler), History: &reported})
	begin := time.Now()
	warnings := []Warning{{Reason: "Shrink"}, {Reason: "Trust", Source: "blue", Transient: true}}
	for _, step := range []struct {
		after    time.Duration
		warnings []Warning
		leading  bool
		reported int
		wake     time.Duration // 0: none
	}{
		{0, warnings, true, 1, 5 * time.Second},
		{4 * time.Second, warnings, true, 1, 5 * time.Second},
		{5 * time.Second, warnings, true, 2, 0},
		{6 * time.Second, warnings, true, 2, 0},
		{7 * time.Second, warnings[:1], true, 2, 0},
		{8 * time.Second, warnings, true, 2, 13 * time.Second}, // it began again
		{13 * time.Second, warnings, false, 2, 0},
		{14 * time.Second, warnings, true, 3, 0}, // it has lasted, whoever led
	} {
		wake := r.SetActive(shop, Current{Warnings: step.warnings, Managed: true, Leading: step.leading}, begin.Add(step.after))
		if want := begin.Add(step.wake); step.wake == 0 && !wake.IsZero() || step.wake != 0 && !wake.Equal(want) {
			t.Errorf("after %s: wake is %v, want %s after the start", step.after, wake, step.wake)
		}
		if _, events := reported.Recent(nil); len(events) != step.reported {
			t.Errorf("after %s: %d Events, want %d", step.after, len(events), step.reported)
		}
	}
}

func TestRecordsWarningInHistoryWithoutClient(t *testing.T) {
	var reported history.Log
	r := NewReporter(Config{Logger: slog.New(slog.DiscardHandler), History: &reported})
	r.Report(shop, Warning{Reason: "Shrink", Note: "One stays\nfor now."})
	if _, events := reported.Recent(
		nil,
	); len(events) != 1 || events[0].Reason != "Shrink" || events[0].Note != "One stays for now." || events[0].Service != shop.Name ||
		events[0].At.IsZero() {
		t.Errorf("%+v", events)
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
		outside := Warning{Reason: "AddressNotAllowed", Note: "10.9.9.9 is outside 10.0.0.0/24."}
		r.SetActive(shop, Current{Warnings: []Warning{outside, outside}, Managed: true, Leading: true}, time.Now())
		r.SetActive(shop, Current{Warnings: []Warning{outside}, Managed: true, Leading: true}, time.Now())
		got := events()
		if len(got) != 1 || got[0].Reason != outside.Reason || got[0].Regarding.Name != "shop" || got[0].Series != nil ||
			got[0].Note != outside.Note {
			t.Fatalf("got Events %+v", got)
		}
		r.SetActive(shop, Current{Managed: true, Leading: true}, time.Now())
		time.Sleep(time.Minute)
		r.SetActive(shop, Current{Warnings: []Warning{outside}, Managed: true, Leading: true}, time.Now())
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
			r.Report(shop, Warning{Reason: "Shrink"})
			r.sendEvent(t.Context(), <-r.queue)
			if got := strings.Contains(text.String(), "event not written"); got != c.warn {
				t.Errorf("warned %t, want %t:\n%s", got, c.warn, text.String())
			}
		})
	}
}

package report

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

var testTime = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func TestReturnsWritesOfAServiceNewestFirst(t *testing.T) {
	var l Writes
	for _, slice := range []string{"shop-1", "post-1", "shop-2"} {
		service, _, _ := strings.Cut(slice, "-")
		l.Add(Write{&writerv1.WriteReport{Slice: slice, Verb: "create", Result: "ok"}, testTime, "web", service})
	}
	var slices []string
	for _, w := range l.Of("web", "shop") {
		slices = append(slices, w.Slice)
	}
	if diff := cmp.Diff([]string{"shop-2", "shop-1"}, slices); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMergesFailedRetries(t *testing.T) {
	var l Writes
	l.Add(Write{WriteReport: &writerv1.WriteReport{Slice: "a", Verb: "update", Result: "ok"}})
	for n := range 500 {
		l.Add(
			Write{
				WriteReport: &writerv1.WriteReport{Slice: "b", Verb: "update", Result: "rejected", Message: "quota"},
				At:          testTime.Add(time.Duration(n) * time.Second),
			},
		)
		l.Add(Write{WriteReport: &writerv1.WriteReport{Slice: "b", Verb: "create", Result: "rejected", Message: "quota"}})
	}
	for range 2 {
		l.Add(Write{WriteReport: &writerv1.WriteReport{Slice: "a", Verb: "update", Result: "ok"}})
	}
	writes := l.Of("", "")
	var lines []string
	for _, w := range writes {
		lines = append(lines, fmt.Sprintf("%s %s %s x%d", w.Slice, w.Verb, w.Result, w.Attempts))
	}
	want := []string{"a update ok x1", "a update ok x1", "b create rejected x500", "b update rejected x500", "a update ok x1"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if at := writes[3].At; !at.Equal(testTime.Add(499 * time.Second)) {
		t.Errorf("last attempt at %s", at)
	}
}

func TestLimitsMemory(t *testing.T) {
	var l Writes
	for n := range 2 * maxKept {
		l.Add(Write{
			WriteReport: &writerv1.WriteReport{
				Slice: fmt.Sprint(n), Result: "rejected", Message: strings.Repeat("ä", 1<<15), Changes: make([]string, 1000),
			},
			Service: fmt.Sprint(n / 30),
		})
	}
	if last := l.Of("", "65"); len(last) != maxWrites || last[0].Slice != "1979" || last[maxWrites-1].Slice != "1960" {
		t.Errorf("%d writes of a Service: %+v", len(last), last)
	}
	if len(l.kept) != maxKept {
		t.Errorf("%d writes", len(l.kept))
	}
	if w := l.kept[0]; len(w.Changes) != maxChanges || w.ChangesOmitted != 1000-maxChanges || len(w.Message) > maxText+len("…") ||
		!utf8.ValidString(w.Message) {
		t.Errorf("%d changes, %d omitted, %d bytes", len(w.Changes), w.ChangesOmitted, len(w.Message))
	}
	var none *Writes
	if none.Add(Write{}); none.Of("", "") != nil {
		t.Error("a nil Writes has entries")
	}
}

func TestChangeString(t *testing.T) {
	for want, c := range map[string]Change{
		"+ endpoint 10.0.0.1 ready":        {Field: "endpoint 10.0.0.1", New: "ready"},
		"- endpoint 10.0.0.1 out":          {Field: "endpoint 10.0.0.1", Old: "out"},
		"~ endpoint 10.0.0.1 ready -> out": {Field: "endpoint 10.0.0.1", Old: "ready", New: "out"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

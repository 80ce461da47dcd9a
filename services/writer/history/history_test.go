package history

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var testTime = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func TestReturnsNewestFirstAndFilters(t *testing.T) {
	var l Log
	l.AddWrite(Write{At: testTime, Namespace: "web", Service: "shop", Slice: "shop-1", Verb: "create", Result: "ok"})
	l.AddWrite(Write{At: testTime.Add(time.Second), Namespace: "mail", Service: "post", Slice: "post-1", Verb: "create", Result: "ok"})
	l.AddEvent(Event{Namespace: "web", Service: "shop", Reason: "First"})
	l.AddEvent(Event{Namespace: "mail", Service: "post", Reason: "Second"})
	recent := func(selects func(string, string) bool) (lines []string) {
		writes, events := l.Recent(selects)
		for _, w := range writes {
			lines = append(lines, w.Slice)
		}
		for _, e := range events {
			lines = append(lines, e.Reason)
		}
		return lines
	}
	if diff := cmp.Diff([]string{"post-1", "shop-1", "Second", "First"}, recent(nil)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"shop-1", "First"}, recent(func(ns, _ string) bool { return ns == "web" })); diff != "" {
		t.Errorf("some (-want +got):\n%s", diff)
	}
}

func TestMergesFailedRetries(t *testing.T) {
	var l Log
	l.AddWrite(Write{Slice: "a", Verb: "update", Result: "ok"})
	for n := range 500 {
		l.AddWrite(
			Write{At: testTime.Add(time.Duration(n) * time.Second), Slice: "b", Verb: "update", Result: "rejected", Message: "quota"},
		)
		l.AddWrite(Write{Slice: "b", Verb: "create", Result: "rejected", Message: "quota"})
	}
	for range 2 {
		l.AddWrite(Write{Slice: "a", Verb: "update", Result: "ok"})
	}
	writes, _ := l.Recent(nil)
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
	var l Log
	for n := range 3 * maxWrites {
		l.AddWrite(Write{Slice: fmt.Sprint(n), Result: "rejected", Message: strings.Repeat("a", 1<<16), Changes: make([]Change, 1000)})
		l.AddEvent(Event{Reason: fmt.Sprint(n), Note: strings.Repeat("a", 1<<16)})
	}
	writes, events := l.Recent(nil)
	if len(writes) != maxWrites || len(events) != maxEvents || writes[0].Slice != "299" || events[99].Reason != "200" {
		t.Fatalf("%d writes, %d events, from %s to %s", len(writes), len(events), writes[0].Slice, events[len(events)-1].Reason)
	}
	if w := writes[0]; len(w.Changes) != maxChanges || w.OmittedChanges != 1000-maxChanges || len(w.Message) > maxText+len("…") {
		t.Errorf("%d changes, %d omitted, %d bytes", len(w.Changes), w.OmittedChanges, len(w.Message))
	}
	if len(events[0].Note) > maxText+len("…") {
		t.Errorf("a note of %d bytes", len(events[0].Note))
	}
}

func TestTruncatesBetweenRunes(t *testing.T) {
	l := &Log{}
	l.AddEvent(Event{Note: "a" + strings.Repeat("ä", maxText)})
	_, events := l.Recent(nil)
	if note := events[0].Note; !utf8.ValidString(note) || !strings.HasSuffix(note, "ä…") {
		t.Errorf("note ends with %q", note[len(note)-6:])
	}
}

func TestNilLogDiscards(t *testing.T) {
	var l *Log
	l.AddWrite(Write{})
	l.AddEvent(Event{})
	if writes, events := l.Recent(nil); len(writes)+len(events) > 0 {
		t.Error("a nil Log has entries")
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

package history

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func TestRemembersTheNewestFirstAndSelects(t *testing.T) {
	var l Log
	l.Wrote(Write{At: now, Namespace: "web", Service: "shop", Slice: "shop-1", Verb: "create", Result: "ok"})
	l.Wrote(Write{At: now.Add(time.Second), Namespace: "mail", Service: "post", Slice: "post-1", Verb: "create", Result: "ok"})
	l.Told(Event{Namespace: "web", Service: "shop", Reason: "First"})
	l.Told(Event{Namespace: "mail", Service: "post", Reason: "Second"})
	of := func(selects func(string, string) bool) (said []string) {
		writes, events := l.Last(selects)
		for _, w := range writes {
			said = append(said, w.Slice)
		}
		for _, e := range events {
			said = append(said, e.Reason)
		}
		return said
	}
	if diff := cmp.Diff([]string{"post-1", "shop-1", "Second", "First"}, of(nil)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"shop-1", "First"}, of(func(ns, _ string) bool { return ns == "web" })); diff != "" {
		t.Errorf("some (-want +got):\n%s", diff)
	}
}

func TestWhatIsTriedInVainAgainAndAgainIsRememberedOnce(t *testing.T) {
	var l Log
	l.Wrote(Write{Slice: "a", Verb: "update", Result: "ok"})
	for n := range 500 {
		l.Wrote(Write{At: now.Add(time.Duration(n) * time.Second), Slice: "b", Verb: "update", Result: "refused", Answer: "quota"})
		l.Wrote(Write{Slice: "b", Verb: "create", Result: "refused", Answer: "quota"})
	}
	for range 2 {
		l.Wrote(Write{Slice: "a", Verb: "update", Result: "ok"})
	}
	writes, _ := l.Last(nil)
	var said []string
	for _, w := range writes {
		said = append(said, fmt.Sprintf("%s %s %s x%d", w.Slice, w.Verb, w.Result, w.Times))
	}
	want := []string{"a update ok x1", "a update ok x1", "b create refused x500", "b update refused x500", "a update ok x1"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if at := writes[3].At; !at.Equal(now.Add(499 * time.Second)) {
		t.Errorf("the last time was %s", at)
	}
}

func TestStaysSmall(t *testing.T) {
	var l Log
	for n := range 3 * maxWrites {
		l.Wrote(Write{Slice: fmt.Sprint(n), Result: "refused", Answer: strings.Repeat("a", 1<<16), Changes: make([]Change, 1000)})
		l.Told(Event{Reason: fmt.Sprint(n), Note: strings.Repeat("a", 1<<16)})
	}
	writes, events := l.Last(nil)
	if len(writes) != maxWrites || len(events) != maxEvents || writes[0].Slice != "299" || events[99].Reason != "200" {
		t.Fatalf("%d writes, %d events, from %s to %s", len(writes), len(events), writes[0].Slice, events[len(events)-1].Reason)
	}
	if w := writes[0]; len(w.Changes) != maxChanges || w.LeftOut != 1000-maxChanges || len(w.Answer) > maxText+len("…") {
		t.Errorf("%d changes, %d left out, %d bytes", len(w.Changes), w.LeftOut, len(w.Answer))
	}
	if len(events[0].Note) > maxText+len("…") {
		t.Errorf("a note of %d bytes", len(events[0].Note))
	}
}

func TestATextIsCutBetweenLetters(t *testing.T) {
	l := &Log{}
	l.Told(Event{Note: "a" + strings.Repeat("ä", maxText)})
	_, events := l.Last(nil)
	if note := events[0].Note; !utf8.ValidString(note) || !strings.HasSuffix(note, "ä…") {
		t.Errorf("it ends with %q", note[len(note)-6:])
	}
}

func TestNoLogTakesEverything(t *testing.T) {
	var l *Log
	l.Wrote(Write{})
	l.Told(Event{})
	if writes, events := l.Last(nil); len(writes)+len(events) > 0 {
		t.Error("it remembers")
	}
}

func TestAChangeIsALine(t *testing.T) {
	for want, c := range map[string]Change{
		"+ endpoint 10.0.0.1 ready":        {What: "endpoint 10.0.0.1", Is: "ready"},
		"- endpoint 10.0.0.1 out":          {What: "endpoint 10.0.0.1", Was: "out"},
		"~ endpoint 10.0.0.1 ready -> out": {What: "endpoint 10.0.0.1", Was: "ready", Is: "out"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

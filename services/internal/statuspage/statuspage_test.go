package statuspage

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// fullPage returns a page with every kind of element. All of them have the same text.
func fullPage(text string) Page {
	line := Line{Error, text}
	values := Values{"text": text, "texts": []string{text}, "decoded": []any{text, nil}, "number": 7, "at": now}
	table := &Table{Columns: []string{"a", "b"}, Rows: [][]Line{{line, line}}, Values: []Values{values}}
	item := Item{
		Name: text, Filter: text, Summary: line, Detail: text, Expanded: true, Lines: []Line{line}, Diff: []string{"+ " + text, text},
		Facts: []Fact{{Name: text, Values: []Line{line}}}, Omitted: text, Values: values,
	}
	item.Items = []Item{item, {Name: text, Filter: text, Summary: line}, {Name: text, Summary: line}}
	return Page{
		Component: "slicefeed-writer", Version: text, Instance: text, At: now, Filter: text, Summary: line, Lines: []Line{line},
		Sections: []Section{{Title: "Services", Lines: []Line{line}, Table: table, Items: []Item{item}, Omitted: text}},
	}
}

const evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)></style></details><a href=https://evil.example>`{{.}}\x00\x1b[31m\u202e\xff"

func render(t *testing.T, p Page) string {
	t.Helper()
	var b strings.Builder
	if err := WriteHTML(&b, &p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// countElements parses a page and counts its elements by name. It reports malformed markup, and
// attributes that run or fetch anything.
func countElements(t *testing.T, page string) map[string]int {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var open []string
	count := map[string]int{}
	empty := regexp.MustCompile(`^(meta|link|br)$`)
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			return count
		} else if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !empty.MatchString(token.Name.Local) {
				open = append(open, token.Name.Local)
			}
			count[token.Name.Local]++
			for _, a := range token.Attr {
				href := a.Name.Local == "href" && !regexp.MustCompile(`^(\?|#|data:image/svg)`).MatchString(a.Value)
				if href || strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "style" || a.Name.Local == "src" {
					t.Errorf("<%s> has %s=%q", token.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != token.Name.Local {
				t.Fatalf("</%s> ends one of %v", token.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
}

func TestHTMLEscapesUntrustedText(t *testing.T) {
	page := render(t, fullPage(evil))
	if diff := cmp.Diff(countElements(t, render(t, fullPage("harmless"))), countElements(t, page)); diff != "" {
		t.Errorf("untrusted text changed the elements (-want +got):\n%s", diff)
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 30 {
		t.Errorf("untrusted text occurs %d times, want 30 or more", n)
	}
	if strings.ContainsAny(page, "\x00\x1b\u202e") {
		t.Error("control characters in the page")
	}
}

func TestTerminalSanitizesUntrustedText(t *testing.T) {
	var b strings.Builder
	p := fullPage(evil + "\nERROR forged")
	if err := (Terminal{Width: 80, Color: true}).Write(&b, &p); err != nil {
		t.Fatal(err)
	}
	own := regexp.MustCompile("\x1b\\[[0-9;]+m")
	if text := own.ReplaceAllString(
		b.String(),
		"",
	); strings.ContainsAny(text, "\x00\x1b\u202e") ||
		regexp.MustCompile(`(?m)^ERROR forged`).MatchString(text) {
		t.Errorf("control characters or a forged line: %q", text)
	}
	short := fullPage("\x1b[2J\n")
	b.Reset()
	if err := (Terminal{Width: 200}).Write(&b, &short); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("control characters in a short text: %q", b.String())
	}
	b.Reset()
	if err := (Terminal{Width: 80}).Write(&b, &p); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("escape sequences without color")
	}
}

func TestTextFitsTerminalWidth(t *testing.T) {
	for width := 32; width <= 130; width++ {
		var b strings.Builder
		p := fullPage("many words, and one-" + strings.Repeat("long-", 30))
		if err := (Terminal{Width: width}).Write(&b, &p); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "words") {
			t.Fatalf("width %d: the text is missing: %q", width, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("width %d: %d in %q", width, n, line)
			}
		}
	}
}

// examplePage is the page of the golden files.
func examplePage() Page {
	return Page{
		Component: "slicefeed-writer",
		Version:   "v1.2.3",
		Instance:  "writer-1_x",
		At:        now,
		Summary:   Line{Error, "1 of 2 Services unhealthy."},
		Lines:     []Line{Linef("Leader: decisions are written."), {Warning, "Initial sync incomplete: Services may be missing."}},
		Sections: []Section{
			{Title: "Services", Items: []Item{
				{
					Name:     "web/shop",
					Summary:  Line{Error, "1 address out of sync"},
					Detail:   "2 ready, 0 draining, 1 not ready",
					Expanded: true,
					Lines:    []Line{{Warning, "Guard shrink (source blue) holds 1 address: One stays ready for now."}},
					Facts:    []Fact{{"ports", []Line{Linef("http 30080/TCP"), {Error, "slice ports out of sync"}}}},
					Items: []Item{
						{
							Name:     "10.0.0.2",
							Summary:  Line{Error, "ready, should be not ready"},
							Detail:   "worker-2",
							Expanded: true,
							Diff:     []string{"~ endpoint 10.0.0.2 ready -> not ready", "  probe: failing"},
						},
						{Name: "10.0.0.1", Summary: Line{OK, "ready"}, Detail: "worker-1"},
					},
				},
				{
					Name:    "web/mail",
					Summary: Line{OK, "healthy"},
					Detail:  "1 ready, 0 draining, 0 not ready",
					Lines:   []Line{Linef("collapsed")},
				},
			}, Omitted: "7 more Services omitted."},
			{Title: "Sources", Table: &Table{Columns: []string{"source", "trust", "reason"}, Rows: [][]Line{
				{Linef("blue"), {OK, "trusted"}, Linef("")},
				{
					Linef("green"),
					{Error, "disconnected"},
					Linef("link down; this sentence is longer than the rest of the line, so that it wraps"),
				},
			}}},
			{Title: "Recent events", Lines: []Line{Linef("None.")}},
		},
	}
}

func TestTerminalOutput(t *testing.T) {
	for width, want := range map[int]string{80: `slicefeed-writer
writer-1_x v1.2.3, as of 2026-03-01 03:00:00 UTC

ERROR  1 of 2 Services unhealthy.
       Leader: decisions are written.
       Initial sync incomplete: Services may be missing.

SERVICES
ERROR  web/shop  1 address out of sync  2 ready, 0 draining, 1 not ready
       Guard shrink (source blue) holds 1 address: One stays ready for now.
       ports:
         http 30080/TCP
         slice ports out of sync
       ERROR  10.0.0.2  ready, should be not ready  worker-2
              ~ endpoint 10.0.0.2 ready -> not ready
                probe: failing
       OK     10.0.0.1  ready  worker-1
OK     web/mail  healthy  1 ready, 0 draining, 0 not ready
7 more Services omitted.

SOURCES
source  trust         reason
blue    trusted
green   disconnected  link down; this sentence is longer than the rest of the
  line, so that it wraps

RECENT EVENTS
None.

Show one in full: slicefeed-writer status NAME
`, 40: `slicefeed-writer
writer-1_x v1.2.3, as of 2026-03-01
03:00:00 UTC

ERROR  1 of 2 Services unhealthy.
       Leader: decisions are written.
       Initial sync incomplete: Services
       may be missing.

SERVICES
ERROR  web/shop  1 address out of sync
       2 ready, 0 draining, 1 not ready
       Guard shrink (source blue) holds
       1 address: One stays ready for
       now.
       ports:
         http 30080/TCP
         slice ports out of sync
       ERROR  10.0.0.2  ready, should be
              not ready
              worker-2
              ~ endpoint 10.0.0.2 ready
              -> not ready
                probe: failing
       OK     10.0.0.1  ready  worker-1
OK     web/mail  healthy
       1 ready, 0 draining, 0 not ready
7 more Services omitted.

SOURCES
source  trust         reason
blue    trusted
green   disconnected  link down; this
  sentence is longer than the rest of
  the line, so that it wraps

RECENT EVENTS
None.

Show one in full: slicefeed-writer
status NAME
`} {
		var b strings.Builder
		p := examplePage()
		if err := (Terminal{Width: width}).Write(&b, &p); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}

func TestServesSelfContainedPage(t *testing.T) {
	h := Handler(func(_ time.Time, filter string) Page {
		p := examplePage()
		p.Filter = filter
		return p
	}, slog.New(slog.DiscardHandler))
	get := func(url, accept string) (http.Header, string) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, url, http.NoBody)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", url, w.Code)
		}
		return w.Header(), w.Body.String()
	}
	header, page := get("/statusz", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8")
	_, inside, _ := strings.Cut(page, "<style>")
	inside, _, _ = strings.Cut(inside, "</style>")
	digest := sha256.Sum256([]byte(inside))
	for key, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8",
		"Referrer-Policy": "no-referrer", "Vary": "Accept", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	} {
		if got := header.Get(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if found := regexp.MustCompile(`(?i)https?:|//|<script|@import|url\(`).
		FindString(regexp.MustCompile(`"data:[^"]*"`).ReplaceAllString(page, "")); found != "" {
		t.Errorf("page contains %q", found)
	}
	countElements(t, page)
	for _, want := range []string{"<title>ERROR · slicefeed-writer</title>", `lang="en"`, `<th scope="col">`, `<th scope="row">`, "prefers-color-scheme: dark"} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %s", want)
		}
	}
	if _, page := get("/statusz", ""); !strings.HasPrefix(page, "<!doctype html>") {
		t.Error("no HTML without an Accept header")
	}

	header, text := get("/statusz?filter=web%2Fshop", "application/json")
	if got := header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %s", got)
	}
	var p Page
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	want := examplePage()
	want.Filter = "web/shop"
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestJSONIsSanitized(t *testing.T) {
	h := Handler(func(time.Time, string) Page { return fullPage(evil) }, slog.New(slog.DiscardHandler))
	for _, url := range []string{"/statusz", "/statusz?format=json"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, http.NoBody)
		if !strings.Contains(url, "format") {
			r.Header.Set("Accept", "application/json")
		}
		h.ServeHTTP(w, r)
		var p Page
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		const want = "\"'><script>alert(1)</script><img src=x onerror=alert(2)></style></details><a href=https://evil.example>`{{.}}  [31m ?"
		for name, got := range map[string]any{
			"version": p.Version, "value": p.Sections[0].Items[0].Values["text"], "list": p.Sections[0].Table.Values[0]["texts"].([]any)[0],
			"decoded": p.Sections[0].Items[0].Items[0].Values["decoded"].([]any)[0],
		} {
			if got != want {
				t.Errorf("%s, %s: %q", url, name, got)
			}
		}
		if got := p.Sections[0].Items[0].Values["at"]; got != "2026-03-01T03:00:00Z" {
			t.Errorf("time: %v", got)
		}
	}
}

func TestSectionHoldsAsManyDetailsAsThereIsSpaceFor(t *testing.T) {
	var s Section
	all := []Item{{Name: "a"}, {Name: "b"}, {Name: "large"}, {Name: "c"}, {Name: "d"}}
	s.AddItems(all, 4, "nodes", func(_ int, i *Item) {
		i.Lines = []Line{Linef("details")}
		if i.Name == "large" {
			i.Diff = slices.Repeat([]string{strings.Repeat("<", 1000)}, maxDetails/1000)
		}
	})
	for n, want := range []bool{true, true, false, false} {
		if got := s.Items[n].HasDetails(); got != want {
			t.Errorf("item %d has details: %t, want %t", n, got, want)
		}
	}
	if want := "Details of 2 omitted. Select one to see them. 1 more nodes omitted."; s.Omitted != want {
		t.Errorf("got %q, want %q", s.Omitted, want)
	}
}

func TestFormatsAges(t *testing.T) {
	for then, want := range map[time.Time]string{now.Add(-42 * time.Second): "42s", now.Add(time.Second): "0s", {}: "an unknown time"} {
		if got := FormatAge(now, then); got != want {
			t.Errorf("%s: %s, want %s", then, got, want)
		}
	}
	if got := FormatTime(now, now.Add(-190*time.Second)); got != "02:56:50, 3m10s ago" {
		t.Error(got)
	}
}

func TestMoreSevere(t *testing.T) {
	for _, c := range []struct{ a, b, want Severity }{
		{OK, Warning, Warning}, {Warning, OK, Warning}, {Warning, Error, Error}, {Error, Warning, Error}, {None, OK, OK}, {OK, None, OK}, {None, None, None},
	} {
		if got := MoreSevere(c.a, c.b); got != c.want {
			t.Errorf("MoreSevere(%q, %q) = %q", c.a, c.b, got)
		}
	}
	if fmt.Sprint(OK.Label(), Warning.Label(), None.Label()) != "OKWARN" {
		t.Error("wrong labels")
	}
}

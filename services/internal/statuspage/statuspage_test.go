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
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// fullPage is a page with something of each kind, all of it the same text.
func fullPage(text string) Page {
	line := Line{Error, text}
	table := &Table{Columns: []string{"a", "b"}, Rows: [][]Line{{line, line}}}
	item := Item{
		Name: text, Filter: text, Summary: line, Detail: text, Expanded: true, Lines: []Line{line}, Diff: []string{"+ " + text, text},
		Facts: []Fact{{Name: text, Values: []Line{line}}}, Table: table, Omitted: text,
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

// countElements reads a page as a browser would, and returns how often it has which element. What is
// not well formed is an error, and what runs or fetches anything.
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
	page := render(t, fullPage(SafeText(evil)))
	if diff := cmp.Diff(countElements(t, render(t, fullPage("fine"))), countElements(t, page)); diff != "" {
		t.Errorf("elements came in (-want +got):\n%s", diff)
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 30 {
		t.Errorf("the text is there %d times: does it get through at all?", n)
	}
	if strings.ContainsAny(page, "\x00\x1b\u202e") {
		t.Error("what steers got through")
	}
}

func TestTerminalSanitizesUntrustedText(t *testing.T) {
	var b strings.Builder
	p := fullPage(evil + "\nWRONG forged")
	if err := (Terminal{Width: 80, Color: true}).Write(&b, &p); err != nil {
		t.Fatal(err)
	}
	own := regexp.MustCompile("\x1b\\[[0-9;]+m")
	if text := own.ReplaceAllString(b.String(), ""); strings.ContainsAny(text, "\x00\x1b\u202e") || regexp.MustCompile(`(?m)^WRONG forged`).MatchString(text) {
		t.Errorf("it steers, or begins a line: %q", text)
	}
	short := fullPage("\x1b[2J\n")
	b.Reset()
	if err := (Terminal{Width: 200}).Write(&b, &short); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("what fits in a line steers: %q", b.String())
	}
	b.Reset()
	if err := (Terminal{Width: 80}).Write(&b, &p); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("colour, though none is wanted")
	}
}

func TestTextFitsTerminalWidth(t *testing.T) {
	for width := 32; width <= 130; width++ {
		var b strings.Builder
		p := fullPage("some words of which there are many, and one-" + strings.Repeat("long-", 30))
		if err := (Terminal{Width: width}).Write(&b, &p); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "words") {
			t.Fatalf("width %d: the words are not there: %q", width, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("width %d: %d in %q", width, n, line)
			}
		}
	}
}

// examplePage is what the goldens are of.
func examplePage() Page {
	return Page{
		Component: "slicefeed-writer", Version: "v1.2.3", Instance: "writer-1_x", At: now, Summary: Line{Error, "1 of 2 Services is wrong."},
		Lines: []Line{Linef("This writer leads: what it decides it writes."), {Warning, "It has not decided yet on all Services."}},
		Sections: []Section{
			{Title: "Services", Items: []Item{
				{
					Name: "web/shop", Summary: Line{Error, "1 address is not written as decided"}, Detail: "2 ready, 0 draining, 1 out", Expanded: true,
					Lines: []Line{{Warning, "Held back by the guard shrink, source blue, 1 address: One stays for now."}},
					Facts: []Fact{{"ports", []Line{Linef("http 30080/TCP"), {Error, "its slices list others"}}}},
					Items: []Item{{Name: "10.0.0.2", Summary: Line{Error, "ready, to be out"}, Detail: "worker-2", Expanded: true, Diff: []string{"~ endpoint 10.0.0.2 ready -> out", "  probe: failing"}}, {Name: "10.0.0.1", Summary: Line{OK, "ready"}, Detail: "worker-1"}},
				}, {Name: "web/mail", Summary: Line{OK, "right"}, Detail: "1 ready, 0 draining, 0 out", Lines: []Line{Linef("folded")}},
			}, Omitted: "7 more Services are left out."},
			{Title: "Sources", Table: &Table{Columns: []string{"source", "trust", "why"}, Rows: [][]Line{
				{Linef("blue"), {OK, "believed"}, Linef("")},
				{Linef("green"), {Error, "not heard"}, Linef("its link is down, and this sentence is longer than what is left of the line")},
			}}},
			{Title: "Recent events", Lines: []Line{Linef("There are none.")}},
		},
	}
}

func TestTerminalOutput(t *testing.T) {
	for width, want := range map[int]string{80: `slicefeed-writer
writer-1_x v1.2.3, as of 2026-03-01 03:00:00 UTC

WRONG  1 of 2 Services is wrong.
       This writer leads: what it decides it writes.
       It has not decided yet on all Services.

SERVICES
WRONG  web/shop  1 address is not written as decided
       2 ready, 0 draining, 1 out
       Held back by the guard shrink, source blue, 1 address: One stays for now.
       ports:
         http 30080/TCP
         its slices list others
       WRONG  10.0.0.2  ready, to be out  worker-2
              ~ endpoint 10.0.0.2 ready -> out
                probe: failing
       OK     10.0.0.1  ready  worker-1
OK     web/mail  right  1 ready, 0 draining, 0 out
7 more Services are left out.

SOURCES
source  trust      why
blue    believed
green   not heard  its link is down, and this sentence is longer than what is
                   left of the line

RECENT EVENTS
There are none.

More of one alone: slicefeed-writer status NAME
`, 40: `slicefeed-writer
writer-1_x v1.2.3, as of 2026-03-01
03:00:00 UTC

WRONG 1 of 2 Services is wrong.
      This writer leads: what it decides
      it writes.
      It has not decided yet on all
      Services.

SERVICES
WRONG web/shop  1 address is not written
      as decided
      2 ready, 0 draining, 1 out
      Held back by the guard shrink,
      source blue, 1 address: One stays
      for now.
      ports:
        http 30080/TCP
        its slices list others
      WRONG 10.0.0.2  ready, to be out
            worker-2
            ~ endpoint 10.0.0.2 ready ->
            out
              probe: failing
      OK    10.0.0.1  ready  worker-1
OK    web/mail  right
      1 ready, 0 draining, 0 out
7 more Services are left out.

SOURCES
blue
  trust: believed
green
  trust: not heard
  why: its link is down, and this
  sentence is longer than what is left
  of the line

RECENT EVENTS
There are none.

More of one alone: slicefeed-writer
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
	h := Handler(func(_ time.Time, asked string) Page {
		p := examplePage()
		p.Filter = asked
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
	if found := regexp.MustCompile(`(?i)https?:|//|<script|@import|url\(`).FindString(regexp.MustCompile(`"data:[^"]*"`).ReplaceAllString(page, "")); found != "" {
		t.Errorf("there is %q in the page", found)
	}
	countElements(t, page)
	for _, says := range []string{"<title>wrong · slicefeed-writer</title>", `lang="en"`, `<th scope="col">`, `<th scope="row">`, "prefers-color-scheme: dark"} {
		if !strings.Contains(page, says) {
			t.Errorf("no %s", says)
		}
	}
	if _, page := get("/statusz", ""); !strings.HasPrefix(page, "<!doctype html>") {
		t.Error("who asks for nothing in particular does not get HTML")
	}

	header, text := get("/statusz?only=web%2Fshop", "application/json")
	if got := header.Get("Content-Type"); got != "application/json" {
		t.Errorf("JSON is %s", got)
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

func TestBudgetIsReservedInOrder(t *testing.T) {
	small, large := Item{Name: "a"}, Item{Name: strings.Repeat("<", 10_000)}
	room := Budget{Bytes: 1000}
	for n, want := range []bool{true, true, false, false} {
		i := &small
		if n == 2 {
			i = &large
		}
		if got := room.Reserve(i); got != want {
			t.Errorf("item %d: %t", n, got)
		}
	}
	p := fullPage(SafeText(strings.Repeat(`"`, 1<<16)))
	i := p.Sections[0].Items[0]
	with := len(render(t, p))
	p.Sections[0].Items = nil
	if is := with - len(render(t, p)); i.htmlSize() < is*9/10 {
		t.Errorf("an item of %d bytes is taken for one of %d", is, i.htmlSize())
	}
}

func TestFormatsAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 900 * time.Millisecond: "0s", 42 * time.Second: "42s", 190 * time.Second: "3m10s", 10 * time.Minute: "10m",
		time.Hour: "1h", 5*time.Hour + 2*time.Minute + 3*time.Second: "5h2m", 10*time.Hour + 10*time.Minute: "10h10m", 300 * time.Hour: "12d",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	if got := FormatAge(now, time.Time{}); got != "an unknown time" {
		t.Error(got)
	}
	if got := FormatTime(now, now.Add(-90*time.Second)); got != "02:58:30, 1m30s ago" {
		t.Error(got)
	}
}

func TestMoreSevere(t *testing.T) {
	for _, c := range []struct{ a, b, want Severity }{
		{OK, Warning, Warning}, {Warning, OK, Warning}, {Warning, Error, Error}, {Error, Warning, Error}, {None, OK, OK}, {OK, None, OK}, {None, None, None},
	} {
		if got := MoreSevere(c.a, c.b); got != c.want {
			t.Errorf("of %q and %q: %q", c.a, c.b, got)
		}
	}
	if fmt.Sprint(OK.Label(), Warning.Label(), None.Label()) != "oklook" {
		t.Error("the marks")
	}
}

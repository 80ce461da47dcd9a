package statuspage

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var (
	now      = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	ready    = verdict.Conditions{Ready: true, Serving: true}
	draining = verdict.Conditions{Serving: true, Terminating: true}
	out      = verdict.Conditions{}
)

// shop is a target of which all is well.
func shop(service string, addresses ...string) endpoints.Target {
	t := endpoints.Target{
		Namespace: "web", Service: service, State: endpoints.Managed, Leading: true,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
		Input: verdict.Input{
			Limits:  verdict.Limits{Probing: true},
			Sources: []verdict.Source{{Name: "blue", Heard: true, Alive: true, Observation: 7, ObservationAt: now.Add(-2 * time.Second)}},
			Probes:  map[netip.Addr]verdict.Probe{},
		},
		Decision: verdict.Decision{Write: true},
		Sources:  []subscriber.Snapshot{heard("blue")},
	}
	for i, text := range addresses {
		a := netip.MustParseAddr(text)
		t.Input.Sources[0].Members = append(t.Input.Sources[0].Members, verdict.Member{Address: a, Name: fmt.Sprintf("worker-%d", i+1), State: verdict.Ready, Since: now.Add(-time.Hour)})
		t.Input.Probes[a] = verdict.Probe{Health: verdict.Passing, Since: now.Add(-time.Minute)}
		t.Input.Held = append(t.Input.Held, verdict.Held{Address: a, Conditions: ready, Source: "blue"})
		t.Decision.Endpoints = append(t.Decision.Endpoints, verdict.Endpoint{
			Address: a, Source: "blue", Verdict: verdict.Serve, Conditions: ready, Listed: true, Rule: verdict.RuleTable, Reason: "feed blue: ready, probe: passing",
		})
	}
	return t
}

func heard(name string) subscriber.Snapshot {
	return subscriber.Snapshot{
		Source: name, Synced: true, SyncedEpoch: true, Alive: true, WordAt: now.Add(-5 * time.Second),
		Observation: 7, ObservationReceivedAt: now.Add(-2 * time.Second),
		Membership: subscriber.Part{State: subscriber.Synced}, Addresses: subscriber.Part{State: subscriber.Synced},
	}
}

func model(targets ...endpoints.Target) Model {
	b := endpoints.NewBoard("life")
	for _, t := range targets {
		b.Put(t)
	}
	b.Synced()
	m := Model{At: now, Version: "v1.2.3", Writer: "writer-1_x", Leading: true, Holder: "writer-1_x", Sources: []subscriber.Snapshot{heard("blue")}}
	m.Services, m.Status = b.Look(nil)
	return m
}

func render(t *testing.T, m Model) string {
	t.Helper()
	var b strings.Builder
	if err := Render(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// read reads a page as a browser would: its texts, each with a line of its own, and how often it
// has which element. Whatever is not well formed is an error.
func read(t *testing.T, page string) (texts string, elements map[string]int) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var b strings.Builder
	var open []string
	elements = map[string]int{}
	blocks := regexp.MustCompile(`^(p|h1|h2|tr|summary|dt|dd|title)$`)
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "br" {
				b.WriteString("\n")
			} else if token.Name.Local != "meta" {
				open = append(open, token.Name.Local)
			}
			elements[token.Name.Local]++
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "style" || a.Name.Local == "src" || a.Name.Local == "href" && !strings.HasPrefix(a.Value, "?") {
					t.Errorf("<%s> has %s=%q", token.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != token.Name.Local {
				t.Fatalf("</%s> ends one of %v", token.Name.Local, open)
			}
			open = open[:len(open)-1]
			if blocks.MatchString(token.Name.Local) {
				b.WriteString("\n")
			} else if token.Name.Local == "td" || token.Name.Local == "th" {
				b.WriteString(" | ")
			}
		case xml.CharData:
			if len(open) > 0 && open[len(open)-1] != "style" {
				b.Write(token)
			}
		}
	}
	return regexp.MustCompile(`( ?\n ?)+`).ReplaceAllString(regexp.MustCompile(`[ \t]+`).ReplaceAllString(b.String(), " "), "\n"), elements
}

// troubled is a target with an address of each kind: one that is out, one that is held back and one that is new.
func troubled() endpoints.Target {
	t := shop("shop", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	members, judged := t.Input.Sources[0].Members, t.Decision.Endpoints
	t.Input.Held = t.Input.Held[:3]
	t.Input.Probes[judged[1].Address] = verdict.Probe{Health: verdict.Failing, Since: now.Add(-9 * time.Second), Detail: "connection refused", Passed: now.Add(-11 * time.Second)}
	judged[1].Verdict, judged[1].Conditions, judged[1].Reason = verdict.Out, out, "feed blue: ready, probe: failing (connection refused)"
	members[2].State = verdict.Draining
	judged[2].Verdict, judged[2].Rule, judged[2].Reason = verdict.Hold, verdict.RuleShrink, "feed blue: draining, probe: passing"
	t.Input.Probes[judged[3].Address] = verdict.Probe{}
	judged[3].Verdict, judged[3].Listed, judged[3].Reason = verdict.Hold, false, "feed blue: ready, probe: not judged yet"
	t.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleShrink, Source: "blue", Held: 1, Message: "One stays for now."}}
	t.Decision.Wake = now.Add(25 * time.Second)
	return t
}

func TestShowsBothWitnessesTheRuleAndWhatIsHeldBackUntilWhen(t *testing.T) {
	got, _ := read(t, render(t, model(shop("mail", "10.0.0.1"), troubled())))
	if diff := cmp.Diff(`
1 wrong · slicefeed-writer
slicefeed-writer
writer-1_x · v1.2.3 · as of 2026-03-01 03:00:00 UTC, load it again for news
This writer leads: what it decides it writes.
Services
2 in all, 1 wrong, 1 change held back
Service | state | is it right? | decided |
web/shop | managed | 1 address is not written as decided | 2 ready, 0 draining, 1 out |
web/mail | managed | right | 1 ready, 0 draining, 0 out |
Sources
source | trust | what it told |
blue | believed | 0 members, observation 7, heard of 2s ago; said 5s ago that it sees its cluster |
Why
web/shop 1 address is not written as decided managed, 2 ready, 0 draining, 1 out
ports: http 30080/TCP · decides again by itself in 25s
held back by the guard shrink, source blue, 1 address: One stays for now.
10.0.0.2 ready, to be out worker-2
By the words of source and probe it is listed as out. The probe fails: connection refused. Is there something that answers at this address, and may this writer reach it?
first witness
source blue: ready for 1h0m, as worker-2 (observation 7, heard of 2s ago)
second witness
probe: failing for 9s: connection refused; last passed 11s ago
rule
table: feed blue: ready, probe: failing (connection refused)
decided
out
in the slices
ready
10.0.0.4 not listed worker-4
It is not listed yet: an address is new until a source that is trusted lists it and a probe of it has passed. It is being probed: ask again in a moment.
first witness
source blue: ready for 1h0m, as worker-4 (observation 7, heard of 2s ago)
second witness
probe: not judged yet
rule
table: feed blue: ready, probe: not judged yet
decided
not listed
in the slices
not listed
10.0.0.1 ready worker-1
By the words of source and probe it is listed as ready.
first witness
source blue: ready for 1h0m, as worker-1 (observation 7, heard of 2s ago)
second witness
probe: passing for 1m0s
rule
table: feed blue: ready, probe: passing
decided
ready
in the slices
ready
10.0.0.3 ready worker-3
The guard shrink holds a change back: it is listed as ready, as it was.
held back by the guard shrink, source blue, 1 address: One stays for now.
first witness
source blue: draining for 1h0m, as worker-3 (observation 7, heard of 2s ago)
second witness
probe: passing for 1m0s
rule
shrink: feed blue: draining, probe: passing
decided
ready
in the slices
ready
web/mail right managed, 1 ready, 0 draining, 0 out
ports: http 30080/TCP
10.0.0.1 ready worker-1
By the words of source and probe it is listed as ready.
first witness
source blue: ready for 1h0m, as worker-1 (observation 7, heard of 2s ago)
second witness
probe: passing for 1m0s
rule
table: feed blue: ready, probe: passing
decided
ready
in the slices
ready
`, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSaysOfEachServiceWhetherItIsRightAndPutsTheWorstOnTop(t *testing.T) {
	for name, c := range map[string]struct {
		alter func(*endpoints.Target)
		says  string
		above bool // a Service of which all is well
		open  bool
	}{
		"all is well":       {func(*endpoints.Target) {}, "managed | right", false, false},
		"not written":       {func(t *endpoints.Target) { t.Input.Held = nil }, "managed | 1 address is not written as decided", true, true},
		"nothing is listed": {func(t *endpoints.Target) { t.Input.Held, t.Decision.Endpoints = nil, nil }, "managed | written as decided, and nothing is ready", true, true},
		"the fence":         {func(t *endpoints.Target) { t.Decision.Write = false }, "managed | nothing may be written, see its guards", true, true},
		"held back": {func(t *endpoints.Target) {
			t.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleTrust, Source: "blue", Held: 2, Message: "Silence."}}
		}, "managed | written as decided, 2 held back", true, false},
		"paused": {func(t *endpoints.Target) {
			t.State, t.Slices = endpoints.Paused, nil
		}, "paused | nothing is written; 1 address would change", true, false},
		"refused": {func(t *endpoints.Target) {
			t.State, t.Reason, t.Message = endpoints.Refused, "ServiceHasSelector", "Remove the selector."
		}, "refused | refused: ServiceHasSelector", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			target := shop("z", "10.0.0.1")
			c.alter(&target)
			page := render(t, model(shop("a", "10.0.0.1"), target))
			texts, _ := read(t, page)
			if !strings.Contains(texts, "web/z | "+c.says+" |") {
				t.Errorf("no %q in:\n%s", c.says, texts)
			}
			if above := strings.Index(texts, "web/z") < strings.Index(texts, "web/a"); above != c.above {
				t.Errorf("above: %t", above)
			}
			if open := strings.Contains(page, `<details class="service" open>`); open != c.open {
				t.Errorf("open: %t", open)
			}
			if !strings.Contains(texts, target.Message) {
				t.Errorf("no %q", target.Message)
			}
		})
	}
}

func TestSaysWhoLeadsAndWhatTheSourcesAreWorth(t *testing.T) {
	silenced := shop("shop", "10.0.0.1")
	silenced.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleTrust, Source: "blue", Held: 1}}
	for name, c := range map[string]struct {
		alter func(*Model)
		says  string
	}{
		"a standby":            {func(m *Model) { m.Leading, m.Holder = false, "writer-2_y" }, "stands by: it decides, and writer-2_y writes."},
		"a standby of nobody":  {func(m *Model) { m.Leading, m.Holder = false, "" }, "stands by: it decides, and whoever holds the Lease writes."},
		"a rehearsal":          {func(m *Model) { m.Dry = true }, "only rehearses"},
		"before the start":     {func(m *Model) { m.Status.Synced = false }, "It has not decided yet on all Services"},
		"no Services":          {func(m *Model) { m.Services = nil }, "None bears this writer's class"},
		"a Service of no name": {func(m *Model) { m.Services, m.Asked = nil, "web/x" }, "This writer has no such Service"},
		"a silent source":      {func(m *Model) { m.Sources[0].Alive = false }, "blue | not heard | 0 members, observation 7, heard of 2s ago; said 5s ago that it sees its cluster\nits link is down"},
		"a new source":         {func(m *Model) { m.Sources[0] = subscriber.Snapshot{Source: "blue"} }, "blue | not heard | 0 members, no complete observation yet; never said that it sees its cluster\nnot heard since this writer started"},
		"one that doubts":      {func(m *Model) { m.Sources[0].Membership = subscriber.Part{Reason: "503"} }, "blue | in doubt |"},
		"one not believed": {func(m *Model) {
			b := endpoints.NewBoard("life")
			b.Put(silenced)
			m.Services, m.Status = b.Look(nil)
		}, "its word changes nothing at present for 1 Service here"},
	} {
		m := model(shop("shop", "10.0.0.1"))
		c.alter(&m)
		if texts, _ := read(t, render(t, m)); !strings.Contains(texts, c.says) {
			t.Errorf("%s: no %q in:\n%s", name, c.says, texts)
		}
	}
}

func TestAStrangersTextStaysText(t *testing.T) {
	const evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)></style></details><a href=https://evil.example>`{{.}}\x00\x1b[31m\xff"
	target := troubled()
	target.Reason, target.Message = evil, evil
	target.Ports[0].Name = new(evil)
	for i := range target.Decision.Endpoints {
		target.Decision.Endpoints[i].Reason, target.Decision.Endpoints[i].Rule = evil, verdict.RuleShrink
		target.Input.Sources[0].Members[i].Name = evil
		target.Input.Probes[target.Decision.Endpoints[i].Address] = verdict.Probe{Health: verdict.Failing, Detail: evil}
	}
	target.Decision.Guards[0].Message = evil
	refused := shop(evil)
	refused.Namespace, refused.State, refused.Reason, refused.Message = evil, endpoints.Refused, evil, evil
	m := model(target, refused)
	m.Writer, m.Version, m.Asked, m.Holder, m.Leading = evil, evil, evil, evil, false
	m.Sources[0].Source, m.Sources[0].Membership = evil, subscriber.Part{Reason: evil}
	texts, elements := read(t, render(t, m))
	_, plain := read(t, render(t, model(troubled(), shop("refused"))))
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		if plain[name] == 0 {
			t.Errorf("a <%s> came in", name)
		}
	}
	if n := strings.Count(texts, "<script>alert(1)</script>"); n < 20 {
		t.Errorf("the text is there %d times: does it get through at all?", n)
	}
	if strings.ContainsAny(texts, "\x00\x1b") {
		t.Error("a control character got through")
	}
}

func TestAPageIsBoundedAndSaysWhatIsLeftOut(t *testing.T) {
	long := strings.Repeat(`"`, 1<<16)
	var many []endpoints.Target
	var addresses []string
	for i := range 300 {
		addresses = append(addresses, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
	}
	for i := range maxRows + 7 {
		target := shop(fmt.Sprintf("s%d", i), addresses[:1]...)
		if i < 30 {
			target = shop(fmt.Sprintf("s%d", i), addresses...)
			target.Input.Held[200].Conditions = draining
			for n := range target.Decision.Endpoints {
				target.Decision.Endpoints[n].Reason = long
			}
			for range 50 {
				target.Decision.Guards = append(target.Decision.Guards, verdict.Guard{Rule: verdict.RuleTrust, Message: long})
			}
			for n := range 60 {
				target.Input.Sources = append(target.Input.Sources, verdict.Source{Name: fmt.Sprintf("x%d", n)})
			}
		}
		many = append(many, target)
	}
	page := render(t, model(many...))
	if len(page) > 6<<20 {
		t.Errorf("it has %d bytes", len(page))
	}
	texts, elements := read(t, page)
	for _, says := range []string{
		"1007 in all, 30 wrong", "\n7 more are left out of this table.", "200 more addresses are left out", "30 more guards are left out", "57 more sources are left out",
		"more Services are left out here: choose one in the table",
		"10.0.0.200 draining, to be ready", // whose turn by its address would be the 201st
	} {
		if !strings.Contains(texts, says) {
			t.Errorf("it does not say %q", says)
		}
	}
	if n := strings.Count(page, `<details class="service" open>`); n != maxOpen {
		t.Errorf("%d are open", n)
	}
	if elements["details"] < 500 {
		t.Errorf("only %d details", elements["details"])
	}
}

func TestServesAPageThatIsWholeInItself(t *testing.T) {
	b := endpoints.NewBoard("life")
	b.Put(shop("a", "10.0.0.1"))
	b.Put(troubled())
	b.Synced()
	h := Handler(Config{
		Board: b, Leading: func() bool { return false }, Holder: func() string { return "writer-2" }, Logger: slog.New(slog.DiscardHandler),
		Sources: func() []subscriber.Snapshot { return []subscriber.Snapshot{heard("green"), heard("blue")} },
	})
	get := func(url string) (http.Header, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, http.NoBody))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", url, w.Code)
		}
		return w.Header(), w.Body.String()
	}
	header, page := get("/statusz")
	_, inside, _ := strings.Cut(page, "<style>")
	inside, _, _ = strings.Cut(inside, "</style>")
	digest := sha256.Sum256([]byte(inside))
	for key, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8", "Referrer-Policy": "no-referrer",
		"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	} {
		if got := header.Get(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if found := regexp.MustCompile(`(?i)https?:|//|<script|<link|@import|url\(`).FindString(page); found != "" {
		t.Errorf("there is %q in the page", found)
	}
	if !strings.Contains(inside, "prefers-color-scheme: dark") {
		t.Error("no dark page")
	}
	if strings.Index(page, ">blue<") > strings.Index(page, ">green<") {
		t.Error("the sources are not sorted")
	}
	for url, want := range map[string][2]bool{ // web/a, web/shop
		"/statusz": {true, true}, "/statusz?service=web/a": {true, false}, "/statusz?service=web%2Fshop": {false, true},
		"/statusz?service=web/": {true, true}, "/statusz?service=nonsense": {false, false}, "/statusz?service=web/x": {false, false},
	} {
		_, page := get(url)
		if got := [2]bool{strings.Contains(page, ">web/a<"), strings.Contains(page, ">web/shop<")}; got != want {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
	}
}

package apifault

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// upstream stands for the API server: it lists the query that it was asked with, and says
// on each watch what it is given.
type upstream struct {
	*httptest.Server

	say      chan string // to each open watch, by whoever takes it first
	requests atomic.Int32
}

func startUpstream(t *testing.T) *upstream {
	u := &upstream{say: make(chan string)}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.requests.Add(1)
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RawQuery, r.Header.Get("Authorization"))
			return
		}
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		for {
			select {
			case line := <-u.say:
				fmt.Fprintln(w, line)
				http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	return u
}

// scene is a client, a proxy and an API server.
type scene struct {
	*Proxy

	t      *testing.T
	up     *upstream
	client *http.Client
}

func enter(t *testing.T) *scene {
	t.Helper()
	up := startUpstream(t)
	s := inFrontOf(t, up.Server)
	s.up = up
	return s
}

// inFrontOf is a scene with another API server.
func inFrontOf(t *testing.T, server *httptest.Server) *scene {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p, err := Start(Options{Upstream: server.URL, UpstreamCA: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &scene{Proxy: p, t: t, client: &http.Client{Transport: transport}}
}

// get is one request; an error stands for no answer within the time.
func (s *scene) get(path string, within time.Duration) (*http.Response, string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
	request.Header.Set("Authorization", "Bearer of-a-service-account")
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer, string(raw), err
}

func (s *scene) mustGet(path string) (*http.Response, string) {
	s.t.Helper()
	answer, body, err := s.get(path, time.Minute)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, body
}

// heard is what a watch says, line by line; closed when it ends, after its error if that
// is another than the proper end.
func (s *scene) watch(query string) <-chan string {
	s.t.Helper()
	request, _ := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL()+"/api/v1/nodes?watch=true"+query, nil)
	answer, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	heard := make(chan string, 100)
	go func() {
		defer close(heard)
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			heard <- lines.Text()
		}
		if lines.Err() != nil {
			heard <- lines.Err().Error()
		}
	}()
	return heard
}

func (s *scene) hears(watch <-chan string, want string) {
	s.t.Helper()
	if got := s.line(watch); got != want {
		s.t.Errorf("heard %q, want %q", got, want)
	}
}

func (s *scene) line(watch <-chan string) string {
	s.t.Helper()
	select {
	case got := <-watch:
		return got
	case <-time.After(10 * time.Second):
		s.t.Fatal("heard nothing")
		return ""
	}
}

// silent wants nothing said; it can only wait, so it waits shortly.
func (s *scene) silent(watch <-chan string) {
	s.t.Helper()
	select {
	case got, open := <-watch:
		s.t.Errorf("heard %q (open: %t)", got, open)
	case <-time.After(50 * time.Millisecond):
	}
}

const list, shortly = "/api/v1/nodes?limit=500", 50 * time.Millisecond

func TestWithoutAFaultItIsNotThere(t *testing.T) {
	s := enter(t)
	answer, body := s.mustGet(list)
	if want := "GET limit=500 Bearer of-a-service-account"; body != want {
		t.Errorf("the API server was asked %q, want %q", body, want)
	}
	if answer.ProtoMajor != 2 {
		t.Errorf("it speaks %s, and an API server HTTP/2", answer.Proto)
	}
	watch := s.watch("")
	s.up.say <- "an event"
	s.hears(watch, "an event")
}

func TestABlackHoleHoldsUpWhatIsUnderWayAndWhatIsNew(t *testing.T) {
	s := enter(t)
	watch := s.watch("")
	s.Set(Fault{BlackHole: true})
	s.up.say <- "an event"
	s.silent(watch)
	if _, _, err := s.get(list, shortly); err == nil {
		t.Error("an open connection brought an answer")
	}
	s.client.Transport = s.client.Transport.(*http.Transport).Clone()
	if _, _, err := s.get(list, shortly); err == nil {
		t.Error("a new connection brought an answer")
	}
	s.Set(Fault{})
	s.hears(watch, "an event")
	s.mustGet(list)
}

func TestWatchesFallSilentWhileListsPass(t *testing.T) {
	s := enter(t)
	old := s.watch("")
	s.Set(Fault{Silent: true})
	s.up.say <- "an event"
	s.silent(old)
	s.mustGet(list)
	s.Set(Fault{})
	s.hears(old, "an event")
}

func TestAForgottenWatchStaysSilentWhileANewOneWorks(t *testing.T) {
	s := enter(t)
	old := s.watch("")
	s.Forget()
	s.up.say <- "to the old one"
	s.silent(old)
	newer := s.watch("")
	// The old one takes an event or two more, and says nothing of them.
	for told := false; !told; {
		s.up.say <- "to either"
		select {
		case <-newer:
			told = true
		case <-time.After(shortly):
		}
	}
	s.Set(Fault{})
	s.silent(old)
}

func TestWatchesEndAndTheNextIsToldToReadAnew(t *testing.T) {
	s := enter(t)
	old := s.watch("")
	s.Expire(1)
	if got, open := <-old; open {
		t.Errorf("it ended with %q", got)
	}
	initial := s.watch("&sendInitialEvents=true") // names no version that could be too old
	s.silent(initial)
	var event struct {
		Type   string
		Object struct{ Code int }
	}
	next := s.watch("&resourceVersion=7")
	if err := json.Unmarshal([]byte(s.line(next)), &event); err != nil || event.Type != "ERROR" || event.Object.Code != http.StatusGone {
		t.Errorf("the next one is told %+v (%v)", event, err)
	}
	if got, open := <-next; open {
		t.Errorf("it goes on with %q", got)
	}
	s.silent(s.watch("&resourceVersion=8"))
}

func TestListsAreRefused(t *testing.T) {
	for _, row := range []struct {
		name       string
		fault      Fault
		path       string
		status     int
		retryAfter string
	}{
		{"with too many requests and how long to wait", Fault{Refuse: 429, RetryAfter: 2 * time.Second}, list, 429, "2"},
		{"with an error of the server", Fault{Refuse: 500}, list, 500, ""},
		{"of a namespace too", Fault{Refuse: 500}, "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices", 500, ""},
		{"while a single object is given", Fault{Refuse: 500}, "/api/v1/nodes/a", 200, ""},
		{"from the second page on, when the pages are torn", Fault{Torn: true}, list + "&continue=abc", 410, ""},
		{"not on the first page of torn ones", Fault{Torn: true}, list, 200, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := enter(t)
			s.Set(row.fault)
			answer, body := s.mustGet(row.path)
			if answer.StatusCode != row.status || answer.Header.Get("Retry-After") != row.retryAfter {
				t.Errorf("got %s, Retry-After %q: %s", answer.Status, answer.Header.Get("Retry-After"), body)
			}
			if row.status != 200 && !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("the body is no Status: %s", body)
			}
		})
	}
}

func TestRequestsAreOnRecord(t *testing.T) {
	s := enter(t)
	s.mustGet(list)
	mark := s.Count()
	watch := s.watch("")
	s.up.say <- `{"type":"BOOKMARK"}`
	s.hears(watch, `{"type":"BOOKMARK"}`)
	s.mustGet("/version")
	var got []string
	for _, r := range s.RequestsSince(mark) {
		got = append(got,
			fmt.Sprintf("%s %s %d, bookmarks %d, bytes %t, over %t", r.Verb, r.Path, r.Status, r.Bookmarks, r.Bytes > 0, r.Over))
	}
	want := []string{"watch /api/v1/nodes 200, bookmarks 1, bytes true, over false", "GET /version 200, bookmarks 0, bytes true, over true"}
	if got[1] = strings.Replace(
		got[1],
		"over false",
		"over true",
		1,
	); !slices.Equal(
		got,
		want,
	) { // the client may have it all before we note that
		t.Errorf("got %q, want %q", got, want)
	}
	if all := s.Requests(); len(all) != 3 || all[0].Verb != List || all[0].Query.Get("limit") != "500" {
		t.Errorf("all are %+v", all)
	}
}

package apifault

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The verbs that the faults tell apart. Others are told by their HTTP method.
const (
	List  = "list"
	Watch = "watch"
)

const mostKept = 10_000

// Request is one that has reached the proxy.
type Request struct {
	At     time.Time
	Verb   string // List, Watch, else the HTTP method
	Path   string
	Query  url.Values // as the client asked
	Status int        // 0: not answered yet, or not at all
	Over   bool

	Bookmarks int // that came through, if it is a watch
}

// exchange is a request as the proxy deals with it. All of it is guarded by the proxy's mu.
type exchange struct {
	seen      Request
	cancel    context.CancelFunc
	held      *HeldWrite
	expired   bool // it is told that its resourceVersion is too old
	forgotten bool
	ended     bool
}

// Requests are those on record (the last ten thousand), oldest first.
func (p *Proxy) Requests() []Request { return p.RequestsSince(0) }

// Count is how many requests there have been: a mark for RequestsSince.
func (p *Proxy) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forgot + len(p.requests)
}

// RequestsSince are the requests on record that came after the mark.
func (p *Proxy) RequestsSince(mark int) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Request
	for _, x := range p.requests[min(max(mark-p.forgot, 0), len(p.requests)):] {
		all = append(all, x.seen)
	}
	return all
}

// begin takes a request on record, and says what is to befall it; nil: the proxy is closed.
func (p *Proxy) begin(r *http.Request, cancel context.CancelFunc) (*exchange, Fault) {
	x := &exchange{cancel: cancel, seen: Request{At: time.Now(), Verb: verb(r), Path: r.URL.Path, Query: r.URL.Query()}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, Fault{}
	}
	p.serving.Add(1)
	// One that begins with all objects names no version that could be too old.
	if x.seen.Verb == Watch && p.expire > 0 && !truth(x.seen.Query.Get("sendInitialEvents")) {
		p.expire--
		x.expired = true
	}
	if p.holdNext != nil && x.writes() && strings.Contains(x.seen.Path, "/endpointslices") {
		x.held, p.holdNext = p.holdNext, nil
	}
	if len(p.requests) == mostKept {
		p.requests = append([]*exchange(nil), p.requests[mostKept/2:]...)
		p.forgot += mostKept / 2
	}
	p.requests = append(p.requests, x)
	return x, p.fault
}

// verb tells a request for a collection by its path: /api/v1/nodes is one, and
// /apis/discovery.k8s.io/v1/namespaces/web/endpointslices.
func verb(r *http.Request) string {
	if r.Method != http.MethodGet {
		return r.Method
	}
	if truth(r.URL.Query().Get("watch")) {
		return Watch
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return r.Method
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 1 {
		return List
	}
	return r.Method
}

func truth(value string) bool {
	yes, err := strconv.ParseBool(value)
	return err == nil && yes
}

// finish notes that the request is over; the proxy's mu is held.
func (x *exchange) finish() {
	x.seen.Over = true
	if x.held != nil {
		x.held.status <- x.seen.Status
	}
}

// end ends a watch; the proxy's mu is held.
func (x *exchange) end() {
	x.ended = true
	x.cancel()
}

// refused is the answer that the fault gives instead of the true one; status 0: none.
func (x *exchange) refused(f Fault) (status int, body []byte) {
	switch {
	case x.expired:
		// As the watch cache of an API server does it: an event within a 200.
		event, _ := json.Marshal(
			map[string]any{"type": "ERROR", "object": failure(http.StatusGone, "Expired", "too old resource version", 0)},
		)
		return http.StatusOK, append(event, '\n')
	case f.RefuseWrites != 0 && x.writes() && strings.Contains(x.seen.Path, "/"+f.Resource):
		return f.RefuseWrites, failure(f.RefuseWrites, reason(f.RefuseWrites), "the server was told to refuse writes", f.RetryAfter)
	case x.seen.Verb != List:
		return 0, nil
	case f.Refuse != 0:
		return f.Refuse, failure(f.Refuse, reason(f.Refuse), "the server was told to fail", f.RetryAfter)
	case f.Torn && x.seen.Query.Get("continue") != "":
		return http.StatusGone, failure(http.StatusGone, "Expired",
			"The provided continue parameter is too old to display a consistent list result.", 0)
	}
	return 0, nil
}

func (x *exchange) writes() bool {
	switch x.seen.Verb {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// failure is a Status object as API servers send it.
func failure(code int, reason, message string, wait time.Duration) json.RawMessage {
	body, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"code": code, "reason": reason, "message": message, "details": map[string]any{"retryAfterSeconds": int(wait.Seconds())},
	})
	return body
}

// reason is the word that goes with a code in a Status.
func reason(code int) string {
	switch code {
	case http.StatusInternalServerError:
		return "InternalError"
	case http.StatusUnprocessableEntity:
		return "Invalid"
	}
	return strings.ReplaceAll(http.StatusText(code), " ", "")
}

// paged is the query as it is passed on.
func (x *exchange) paged(query string, f Fault) string {
	asked, err := strconv.Atoi(x.seen.Query.Get("limit"))
	if x.seen.Verb != List || f.PageLimit == 0 || err != nil || asked <= f.PageLimit {
		return query
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return query
	}
	values.Set("limit", strconv.Itoa(f.PageLimit))
	return values.Encode()
}

// body is an answer on its way to the client.
type body struct {
	io.ReadCloser

	proxy *Proxy
	of    *exchange
	ctx   context.Context
}

// bookmark is how both encodings of a watch event spell it.
var bookmark = []byte("BOOKMARK")

// Read gives what came once the watch may say it, or its end.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	p, x := b.proxy, b.of
	free := p.wait(func() bool { return !x.ended && x.seen.Verb == Watch && (x.forgotten || p.fault.Silent) }, b.ctx.Done())
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case x.ended: // in due form, as when its time is up
		return 0, io.EOF
	case !free:
		return 0, io.ErrUnexpectedEOF
	}
	if x.seen.Verb == Watch {
		x.seen.Bookmarks += bytes.Count(into[:n], bookmark)
	}
	return n, err
}

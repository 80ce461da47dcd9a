package ionosapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const basePath = "/cloudapi/v6"

// api serves the Cloud API itself.
type api struct {
	cloud *Cloud
	token func() (string, error) // nil: any bearer token will do
	stop  <-chan struct{}        // closed when the emulator closes: ends what hangs
	root  string                 // https://…/cloudapi/v6

	pageLimit int // 0: no cap
}

// refusal is an answer other than 200, in the cloud's form.
type refusal struct {
	status        int
	code, message string
}

func (r refusal) Error() string { return r.message }

var unauthorized = refusal{http.StatusUnauthorized, "315", "Unauthorized"}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	path := strings.TrimPrefix(r.URL.Path, basePath)
	defer func() { a.cloud.note(r, rec.status) }()

	if !a.authorized(r) { // before all else, as there
		refuse(rec, unauthorized)
		return
	}
	hit := a.cloud.strike(path)
	if a.replaced(rec, r, hit) {
		return
	}
	answer, err := a.answer(r, path, hit)
	if err != nil {
		var no refusal
		if !errors.As(err, &no) {
			no = refusal{http.StatusNotFound, "309", "Resource does not exist: " + err.Error()}
		}
		refuse(rec, no)
		return
	}
	body, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		refuse(rec, refusal{http.StatusInternalServerError, "1", err.Error()})
		return
	}
	h := rec.Header()
	left := a.cloud.remaining()
	h.Set("X-RateLimit-Limit", strconv.Itoa(rateLimit))
	h.Set("X-RateLimit-Burst", strconv.Itoa(rateLimit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	spoil(rec, hit, body)
}

func (a *api) authorized(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || got == "" || len(r.Header.Values("Authorization")) != 1 {
		return false
	}
	if a.token == nil {
		return true
	}
	want, err := a.token()
	return err == nil && got == strings.TrimSpace(want)
}

func refuse(w http.ResponseWriter, no refusal) {
	send(w, no.status, "application/json", errorBody(no))
}

func errorBody(no refusal) []byte {
	b, _ := json.Marshal(object{"httpStatus": no.status, "messages": []object{{"errorCode": no.code, "message": no.message}}})
	return b
}

func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}

// routes are what the inventory requests.
var routes = regexp.MustCompile(`^/datacenters/([^/]+)(?:/(servers)|/lans/([^/]+))?/?$`)

// answer finds what was asked for and renders it, as the faults have it look.
func (a *api) answer(r *http.Request, path string, hit faults) (any, error) {
	m := routes.FindStringSubmatch(path)
	if m == nil || !strings.HasPrefix(r.URL.Path, basePath) {
		return nil, refusal{http.StatusNotFound, "308", "No such path in the emulator: " + r.URL.Path}
	}
	if r.Method != http.MethodGet {
		return nil, refusal{http.StatusMethodNotAllowed, "310", "The emulator's API only reads; its side door writes"}
	}
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	if a.pageLimit > 0 {
		q.limit = min(q.limit, a.pageLimit)
	}
	rd, dc, servers, lan := renderer{a.root}, strings.ToLower(m[1]), m[2] != "", strings.ToLower(m[3])
	if q.depth > 0 && !servers {
		return nil, refusal{http.StatusBadRequest, "100", fmt.Sprintf("depth=%d: the emulator renders only servers deeper than 0", q.depth)}
	}
	d, err := a.cloud.seen(dc)
	if err != nil {
		return nil, err
	}
	alter(&d, hit)
	if servers {
		return a.servers(rd, d, q, hit), nil
	}
	if lan == "" {
		return rd.datacenter(d), nil
	}
	i := slices.IndexFunc(d.LANs, func(l LAN) bool { return strconv.Itoa(l.ID) == lan })
	if i < 0 {
		return nil, fmt.Errorf("LAN %s: %w", lan, ErrUnknown)
	}
	return rd.lan(d, d.LANs[i]), nil
}

// servers is a page of them.
func (a *api) servers(rd renderer, d Datacenter, q query, hit faults) collection {
	sortBy(d.Servers, q.orderBy)
	served := q
	if hit.has(Repeat) {
		served.offset = max(q.offset-q.limit, 0)
	}
	c := page(rd, d.ID+"/servers", "/datacenters/"+d.ID+"/servers", len(d.Servers), served,
		func(i, l int) resource { return rd.server(d.ID, d.Servers[i], l) })
	c.Offset = &q.offset
	if hit.has(NoLinks) {
		c.Links = nil
	}
	if hit.has(ZeroLimit) {
		c.Limit = new(int)
	}
	if hit.has(Shrink) && len(*c.Items) > 0 {
		*c.Items = (*c.Items)[1:]
	}
	return c
}

type query struct {
	depth, limit, offset int
	orderBy              string
}

func parseQuery(v url.Values) (query, error) {
	q := query{limit: 1000, orderBy: v.Get("orderBy")}
	for _, p := range []struct {
		name     string
		to       *int
		from, up int
	}{{"depth", &q.depth, 0, 10}, {"limit", &q.limit, 1, 10000}, {"offset", &q.offset, 0, 1 << 30}} {
		if s := v.Get(p.name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < p.from || n > p.up {
				return q, refusal{http.StatusBadRequest, "100", fmt.Sprintf("%s=%s: expected %d to %d", p.name, s, p.from, p.up)}
			}
			*p.to = n
		}
	}
	if !slices.Contains([]string{"", "name", "id", "createdDate"}, q.orderBy) {
		return q, refusal{http.StatusBadRequest, "100", "orderBy=" + q.orderBy + ": the emulator orders by name, id and createdDate"}
	}
	return q, nil
}

// sortBy orders servers; equal ones by ID, so that the order is whole.
func sortBy(list []Server, property string) {
	slices.SortStableFunc(list, func(a, b Server) int {
		by := 0
		switch property {
		case "name":
			by = strings.Compare(a.Name, b.Name)
		case "createdDate":
			by = a.Created.Compare(b.Created)
		case "": // as they were put
			return 0
		}
		if by == 0 {
			by = strings.Compare(a.ID, b.ID)
		}
		return by
	})
}

// page is a collection that was asked for by itself: with its place and links.
func page(r renderer, id, path string, n int, q query, item func(i, level int) resource) collection {
	from := min(q.offset, n)
	to := min(from+q.limit, n)
	items := make([]resource, 0, to-from)
	for i := from; i < to; i++ {
		items = append(items, item(i, q.depth-1))
	}
	link := func(offset int) string {
		return fmt.Sprintf("%s%s?depth=%d&offset=%d&limit=%d", r.root, strings.TrimSuffix(path, "/"), q.depth, offset, q.limit)
	}
	links := map[string]string{"self": link(q.offset)}
	if q.offset > 0 {
		links["prev"] = link(max(q.offset-q.limit, 0))
	}
	if to < n {
		links["next"] = link(to)
	}
	return collection{
		ID: id, Type: "collection", Href: r.root + strings.TrimSuffix(path, "/"),
		Items: &items, Offset: &q.offset, Limit: &q.limit, Links: &links,
	}
}

const (
	rateLimit  = 600 // a minute, in the emulator; the real one's figures are not published
	mostKept   = 1000
	rateWindow = time.Minute
)

// Request is one that the API answered.
type Request struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	URL    string    `json:"url"`
	Status int       `json:"status"` // 0: hung or reset
}

// Requests are the last thousand, oldest first.
func (c *Cloud) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Request{}, c.requests...)
}

// Asked is how many requests came since the start.
func (c *Cloud) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *Cloud) note(r *http.Request, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.requests = append(c.requests, Request{c.now(), r.Method, r.URL.RequestURI(), status})
	if len(c.requests) > mostKept {
		c.requests = slices.Delete(c.requests, 0, len(c.requests)-mostKept)
	}
}

// remaining is told, not enforced: who wants a 429 switches it on.
func (c *Cloud) remaining() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, n := c.now().Add(-rateWindow), 0
	for _, r := range c.requests {
		if r.At.After(since) {
			n++
		}
	}
	return max(rateLimit-n, 0)
}

// recorder remembers the status for the journal.
type recorder struct {
	http.ResponseWriter

	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController, which Reset needs.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

var itemsList = []byte(`"items": `)

// nullItems makes the outermost items null; nested ones stand in deeper indentation.
func nullItems(body []byte) []byte {
	at := bytes.Index(body, append([]byte("\n  "), itemsList...))
	if at < 0 {
		return body
	}
	var whole object
	if json.Unmarshal(body, &whole) != nil {
		return body
	}
	whole["items"] = nil
	out, _ := json.Marshal(whole)
	return out
}

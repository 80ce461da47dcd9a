package ionos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// flood is a response that repeats a part between head and tail until it is long enough, and measures the
// heap on the way.
type flood struct {
	head, part, tail string

	remaining int64 // bytes of parts still to come
	sent      int64
	chunk     *strings.Reader
	maxHeap   uint64 // bytes
}

// at64MiB is a flood of the maximum size.
func at64MiB(head, part, tail string) *flood {
	return &flood{head: head, part: part, tail: tail, remaining: maxResponseBytes - int64(len(head)+len(tail)) - 64}
}

func (f *flood) Read(p []byte) (int, error) {
	if f.chunk == nil {
		f.chunk = strings.NewReader(f.head)
	}
	if f.chunk.Len() == 0 {
		switch {
		case f.remaining > 0:
			const some = 1 << 20
			block := strings.Repeat(f.part, max(1, some/len(f.part)))
			f.chunk, f.remaining = strings.NewReader(block), f.remaining-int64(len(block))
			f.sent += int64(len(block))
			f.measureHeap()
		case f.tail != "":
			f.chunk, f.tail = strings.NewReader(f.tail), ""
		default:
			f.measureHeap()
			return 0, io.EOF
		}
	}
	return f.chunk.Read(p)
}

func (f *flood) measureHeap() {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	f.maxHeap = max(f.maxHeap, m.HeapAlloc)
}

// floodServer returns the flood as the list of servers, and valid responses otherwise.
type floodServer struct{ *flood }

func (f floodServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.Reader(f.flood)
	if !strings.HasSuffix(r.URL.Path, "/servers") {
		body = strings.NewReader(plainLANJSON)
	}
	return &http.Response{
		StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body),
	}, nil
}

const pageHead = `{"id":"` + testDatacenter + `/servers","type":"collection","items":[`

// Whatever a response of 64 MiB contains, only little of it is held at a time.
func TestHugePageIsNotHeldInMemory(t *testing.T) {
	const maxHeld = 24 << 20
	complete := serverJSON(1, nicJSON("2", "10.0.0.1"))
	var large strings.Builder        // the requested number of servers, each with 60 KB of unknown data
	for n := range maxPageSize - 2 { // a full page would be followed by another
		large.WriteString(
			strings.Replace(
				serverJSON(n, nicJSON("2", "10.0.0.1")),
				`{"id"`,
				`{"unknown":["`+strings.Repeat("x", 60<<10)+`"],"id"`,
				1,
			) + ",",
		)
	}
	for name, f := range map[string]*flood{
		"servers without end":              at64MiB(pageHead, complete+",", `{}]}`),
		"empty servers without end":        at64MiB(pageHead, `{},`, `{}]}`),
		"servers that are null":            at64MiB(pageHead, `null,`, `null]}`),
		"one server of empty NICs":         at64MiB(pageHead+strings.TrimSuffix(complete, "]}}}"), `,{}`, `]}}}]}`),
		"one server of a huge name":        at64MiB(pageHead+`{"id":"`+testServerID(1)+`","properties":{"name":"`, "x", `"}}]}`),
		"one server of unknown lists":      at64MiB(pageHead+`{"id":"`+testServerID(1)+`","unknown":[`, "[],", `[]]}]}`),
		"a huge unknown member":            at64MiB(`{"padding":"`, "x", `","items":[]}`),
		"unknown members without end":      at64MiB(`{`, `"a":{},`, `"items":[]}`),
		"a huge name of a member":          at64MiB(`{"`, "x", `":1}`),
		"blanks before the page":           at64MiB(``, " ", `{}`),
		"blanks between servers":           at64MiB(pageHead+complete, " ", `]}`),
		"blanks after the page":            at64MiB(pageHead+`]}`, " ", ``),
		"brackets without end":             at64MiB(pageHead, "[", `]}`),
		"servers of huge escaped strings":  at64MiB(pageHead+`{"id":"`, `\u0041`, `"}]}`),
		"a second list of items":           at64MiB(pageHead+`],"Items":[`, `{},`, `{}]}`),
		"small invalid servers":            at64MiB(pageHead, `{"id":"a","properties":{"name":"b"},"entities":{"nics":{"items":[{},{}]}}},`, `{}]}`),
		"a valid page of the maximum size": {head: pageHead, part: large.String(), tail: serverJSON(maxPageSize) + `],"id":"` + testDatacenter + `/servers"}`, remaining: 1},
	} {
		t.Run(name, func(t *testing.T) {
			accepted := name == "a valid page of the maximum size"
			c := newOfflineClient(t, Config{}, http.NotFoundHandler())
			c.timeout = 5 * time.Minute // memory is tested, not speed: the race detector makes it slow
			c.transport.base = floodServer{f}
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			got, err := c.List(t.Context())
			f.measureHeap()
			held := int64(f.maxHeap) - int64(before.HeapAlloc)
			t.Logf("%d MiB sent, %.1f MiB held, %v", f.sent>>20, float64(held)/(1<<20), err)
			if held > maxHeld {
				t.Errorf("%d of %d MiB were held, want at most %d", held>>20, f.sent>>20, int64(maxHeld)>>20)
			}
			if accepted != (err == nil) || accepted != (len(got.Servers) > 0) {
				t.Errorf("got %d servers, %v", len(got.Servers), err)
			}
		})
	}
}

// Responses other than pages of servers are small, or errors.
func TestHugeOtherResponsesAreNotHeldInMemory(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a LAN": func(w http.ResponseWriter, _ *http.Request) {
			respond(w, 200, `{"id":"2","type":"lan","properties":{"name":"`+strings.Repeat("x", maxOtherBytes)+`"}}`)
		},
		"an error response": func(w http.ResponseWriter, _ *http.Request) {
			respond(w, 503, `{"messages":[{"message":"`+strings.Repeat("x", maxOtherBytes)+`"}]}`)
		},
	} {
		c := newOfflineClient(t, Config{}, h)
		_, err := c.readLAN(t.Context(), testDatacenter, "2")
		if err == nil || name == "a LAN" && !strings.Contains(err.Error(), "longer than") ||
			name == "an error response" && !strings.Contains(err.Error(), "HTTP 503") {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
}

// A page with more servers than requested is an error; a server with more data than the limits is invalid.
func TestLimitsServerSize(t *testing.T) {
	ips := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		}
		return all
	}
	nics := func(n int) (all []string) {
		for i := range n {
			all = append(all, nicJSON("2", fmt.Sprintf("10.0.0.%d", i)))
		}
		return all
	}
	for name, tc := range map[string]struct {
		server string
		want   string // empty: the server is valid
	}{
		"an ID that is too long":      {serverJSON(1, nicJSON("2", ips(maxAddresses)...)), "too long"}, // nicJSON puts all addresses into the ID
		"maximum number of NICs":      {serverJSON(1, nics(maxNICs)...), ""},
		"too many NICs":               {serverJSON(1, nics(maxNICs+1)...), "more than 32 NICs"},
		"a long name":                 {strings.Replace(serverJSON(1), "node-1", strings.Repeat("n", maxTextLength+1), 1), "name has 1025 bytes"},
		"maximum number of addresses": {serverJSON(1, strings.Replace(nicJSON("2", ips(maxAddresses)...), `"id":"nic-2`, `"id":"n","x":"`, 1)), ""},
		"too many addresses":          {serverJSON(1, strings.Replace(nicJSON("2", ips(maxAddresses+1)...), `"id":"nic-2`, `"id":"n","x":"`, 1)), "more than 256 addresses"},
	} {
		got, err := newOfflineClient(t, Config{}, serveFixed(serversJSON("", tc.server), plainLANJSON)).List(context.Background())
		if err != nil || (tc.want == "") != (len(got.Servers) == 1) || !strings.Contains(got.Invalid[testServerID(1)], tc.want) {
			t.Errorf("%s: got %d servers, %v, %.200q; want %q", name, len(got.Servers), err, got.Invalid, tc.want)
		}
	}
	c := newOfflineClient(t, Config{}, serveFixed(serversJSON("", serverJSON(1), serverJSON(2), serverJSON(3)), plainLANJSON)).withPages(2)
	if _, err := c.List(t.Context()); err == nil || !strings.Contains(err.Error(), "more than the requested 2 servers") {
		t.Errorf("got %v", err)
	}
}

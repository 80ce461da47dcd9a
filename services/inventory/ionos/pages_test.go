package ionos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// pager is a cloud whose servers change between requests.
type pager struct {
	servers     []int
	maxPage     int                         // largest page of the cloud; 0: no limit
	noLinks     bool                        // pages have no links
	echoedLimit string                      // limit that each response echoes; empty: the applied one
	before      func(request int, p *pager) // called before the response to the n-th request for servers, from 1
	after       func(request int, items *[]string, more *bool)
	requests    int
}

func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/servers") {
		respond(w, 200, plainLANJSON)
		return
	}
	p.requests++
	if p.before != nil {
		p.before(p.requests, p)
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if p.maxPage > 0 {
		limit = min(limit, p.maxPage)
	}
	from := min(offset, len(p.servers))
	to := min(offset+limit, len(p.servers))
	var items []string
	for _, n := range p.servers[from:to] {
		items = append(items, serverJSON(n, nicJSON("2", fmt.Sprintf("10.0.%d.%d", n/250, n%250+1))))
	}
	more := to < len(p.servers) && !p.noLinks
	if p.after != nil {
		p.after(p.requests, &items, &more)
	}
	next := ""
	if more {
		next = "https://elsewhere.invalid/next" // presence counts, the address is not followed
	}
	echo := p.echoedLimit
	if echo == "" {
		echo = strconv.Itoa(limit)
	}
	respond(w, 200, strings.Replace(serversJSON(next, items...), `"items"`, `"limit":`+echo+`,"items"`, 1))
}

func serverNumbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

func listedNumbers(l roster.Listing) []int {
	var out []int
	for _, s := range l.Servers {
		n, _ := strconv.Atoi(strings.TrimLeft(s.ID[24:], "0"))
		out = append(out, n)
	}
	return out
}

// slowTransport takes time for each server of a page.
type slowTransport struct {
	handlerTransport

	perServer time.Duration
	limits    []int // that were requested
}

func (s *slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
		s.limits = append(s.limits, limit)
		select {
		case <-time.After(time.Duration(limit) * s.perServer):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return s.handlerTransport.RoundTrip(r)
}

func TestPagesAreAsLargeAsTheAPICanServeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowTransport{handlerTransport{&pager{servers: serverNumbers(600)}}, 21 * time.Millisecond, nil}
		c := newOfflineClient(t, Config{}, slow.Handler)
		c.transport.base = slow
		list := func(want error, limits ...int) {
			t.Helper()
			slow.limits = nil
			got, err := c.List(t.Context())
			if !errors.Is(err, want) || err == nil && len(got.Servers) != 600 || !slices.Equal(slow.limits, limits) {
				t.Errorf("%d servers in pages of %v: %v", len(got.Servers), slow.limits, err)
			}
		}
		list(context.DeadlineExceeded, 1000)
		list(context.DeadlineExceeded, 500)
		list(nil, 250, 250, 250)
		slow.perServer = time.Millisecond // it has recovered
		list(nil, 250, 500)
		list(nil, 1000)
		slow.perServer = time.Hour
		for limit := 1000; limit > 2; limit /= 2 {
			list(context.DeadlineExceeded, limit)
		}
		list(context.DeadlineExceeded, 2)
		list(context.DeadlineExceeded, 2) // pages overlap by one server
	})
}

func TestReadsAllPages(t *testing.T) {
	for count := range 13 {
		for _, p := range []*pager{{}, {noLinks: true}, {maxPage: 3}, {maxPage: 3, noLinks: true}, {maxPage: 2, noLinks: true}} {
			p.servers = serverNumbers(count)
			cfg, _ := startCloud(t, p)
			got, err := newTestClient(t, cfg).withPages(4).List(t.Context())
			if err != nil || !slices.Equal(listedNumbers(got), serverNumbers(count)) {
				t.Errorf("%d servers, silent %t, cap %d: got %v, %v", count, p.noLinks, p.maxPage, listedNumbers(got), err)
			}
		}
	}
}

func TestRereadsInconsistentPages(t *testing.T) {
	drop := func(n int) func(int, *pager) {
		return func(request int, p *pager) {
			if request == 2 {
				p.servers = slices.DeleteFunc(slices.Clone(p.servers), func(s int) bool { return s == n })
			}
		}
	}
	for name, tc := range map[string]struct {
		p    *pager
		want []int
	}{
		"a server of an earlier page is deleted": {
			&pager{before: drop(2)}, []int{1, 3, 4, 5, 6, 7, 8, 9, 10},
		},
		"a server is created in an earlier page": {
			&pager{before: func(n int, p *pager) {
				if n == 2 {
					p.servers = append([]int{99}, p.servers...)
				}
			}}, append(serverNumbers(10), 99),
		},
		"the server at the boundary is deleted": {&pager{before: drop(4)}, []int{1, 2, 3, 5, 6, 7, 8, 9, 10}},
		"a page repeats the previous one": {
			&pager{after: func(n int, items *[]string, _ *bool) {
				if n == 2 {
					*items = []string{serverJSON(1), serverJSON(2), serverJSON(3), serverJSON(4)}
				}
			}}, serverNumbers(10),
		},
		"a page becomes empty": {
			&pager{after: func(n int, items *[]string, more *bool) {
				if n == 2 {
					*items, *more = nil, false
				}
			}}, serverNumbers(10),
		},
		"a page without its first server": {
			&pager{after: func(n int, items *[]string, _ *bool) {
				if n == 1 {
					*items = (*items)[1:]
				}
			}}, serverNumbers(10),
		},
		"a link to an empty page": {
			&pager{after: func(n int, items *[]string, more *bool) {
				if n == 2 {
					*items, *more = (*items)[:1], true
				}
			}}, serverNumbers(10),
		},
		"a server on two pages": {
			&pager{after: func(n int, items *[]string, _ *bool) {
				if n == 2 {
					(*items)[2] = serverJSON(1)
				}
			}}, serverNumbers(10),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.servers = serverNumbers(10)
			cfg, _ := startCloud(t, tc.p)
			got, err := newTestClient(t, cfg).withPages(4).List(t.Context())
			if err != nil || !slices.Equal(listedNumbers(got), tc.want) {
				t.Errorf("got %v, %v", listedNumbers(got), err)
			}
			if tc.p.requests <= 4 {
				t.Errorf("read only once, by %d requests", tc.p.requests)
			}
		})
	}
}

func TestPersistentlyInconsistentPagesAreAnError(t *testing.T) {
	p := &pager{servers: serverNumbers(10), before: func(_ int, p *pager) { p.servers = p.servers[1:] }}
	cfg, _ := startCloud(t, p)
	_, err := newTestClient(t, cfg).withPages(4).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "inconsistent pages") || p.requests != 4 {
		t.Errorf("got %v after %d requests", err, p.requests)
	}
}

func TestErrorOnLaterPageFailsListing(t *testing.T) {
	p := &pager{servers: serverNumbers(10)}
	cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.requests == 1 {
			respond(w, 401, "{}")
			return
		}
		p.ServeHTTP(w, r)
	}))
	if got, err := newTestClient(t, cfg).withPages(4).List(t.Context()); err == nil || got.Servers != nil {
		t.Errorf("got %v, %v", listedNumbers(got), err)
	}
}

func TestRejectsPageOfOtherOffset(t *testing.T) {
	cfg, _ := startCloud(t, serveFixed(strings.Replace(serversJSON("", serverJSON(1)), `"items"`, `"offset":4,"items"`, 1), plainLANJSON))
	if _, err := newTestClient(t, cfg).List(t.Context()); err == nil || !strings.Contains(err.Error(), "position") {
		t.Errorf("got %v", err)
	}
}

func TestChangedServerDoesNotMakePagesInconsistent(t *testing.T) {
	p := &pager{servers: serverNumbers(10)}
	p.after = func(n int, items *[]string, _ *bool) {
		if n == 2 { // the server at the boundary became BUSY
			(*items)[0] = strings.Replace((*items)[0], "AVAILABLE", "BUSY", 1)
		}
	}
	cfg, _ := startCloud(t, p)
	if got, err := newTestClient(t, cfg).withPages(4).List(t.Context()); err != nil || len(got.Servers) != 10 || p.requests != 4 {
		t.Errorf("got %v, %v after %d requests", listedNumbers(got), err, p.requests)
	}
}

// A limit that cannot be the applied one does not show where the listing ends. Pages overlap by one
// server, so that a limit of one would never advance.
func TestRejectsImpossibleEchoedLimit(t *testing.T) {
	for _, tc := range []struct {
		echo     string
		rejected bool
	}{{"0", true}, {"-1", true}, {"1", true}, {"5", true}, {"1000", true}, {"2.5", true}, {"2", false}, {"4", false}, {"4.0", false}, {"null", false}} {
		for _, count := range []int{0, 3, 10} {
			cfg, _ := startCloud(t, &pager{servers: serverNumbers(count), echoedLimit: tc.echo})
			got, err := newTestClient(t, cfg).withPages(4).List(t.Context())
			if tc.rejected {
				if err == nil || !strings.Contains(err.Error(), "limit") || got.Servers != nil {
					t.Errorf("limit %s, %d servers: got %v, %v", tc.echo, count, listedNumbers(got), err)
				}
				continue
			}
			if err != nil || !slices.Equal(listedNumbers(got), serverNumbers(count)) {
				t.Errorf("limit %s, %d servers: got %v, %v", tc.echo, count, listedNumbers(got), err)
			}
		}
	}
}

// A cloud that limits its pages to one server cannot be read to the end.
func TestPageCapOfOneServerIsAnError(t *testing.T) {
	cfg, _ := startCloud(t, &pager{servers: serverNumbers(10), maxPage: 1, noLinks: true})
	if got, err := newTestClient(t, cfg).withPages(4).List(t.Context()); err == nil || got.Servers != nil {
		t.Errorf("got %v, %v", listedNumbers(got), err)
	}
}

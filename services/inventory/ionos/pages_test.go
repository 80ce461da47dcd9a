package ionos

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// pager is a cloud whose servers change between requests.
type pager struct {
	servers []int
	cap     int                         // the cloud's own largest page; 0: none
	silent  bool                        // it gives no links
	echo    string                      // the limit that each answer states; empty: the one that was applied
	before  func(request int, p *pager) // what happens before it answers the n-th request for servers, from 1
	after   func(request int, items *[]string, more *bool)
	asked   int
}

func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/servers") {
		respond(w, 200, plainLAN)
		return
	}
	p.asked++
	if p.before != nil {
		p.before(p.asked, p)
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if p.cap > 0 {
		limit = min(limit, p.cap)
	}
	from := min(offset, len(p.servers))
	to := min(offset+limit, len(p.servers))
	var items []string
	for _, n := range p.servers[from:to] {
		items = append(items, server(n, nic("2", fmt.Sprintf("10.0.%d.%d", n/250, n%250+1))))
	}
	more := to < len(p.servers) && !p.silent
	if p.after != nil {
		p.after(p.asked, &items, &more)
	}
	next := ""
	if more {
		next = "https://elsewhere.invalid/next" // presence counts, the address is not followed
	}
	echo := p.echo
	if echo == "" {
		echo = strconv.Itoa(limit)
	}
	respond(w, 200, strings.Replace(collection(next, items...), `"items"`, `"limit":`+echo+`,"items"`, 1))
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

func ids(l roster.Listing) []int {
	var out []int
	for _, s := range l.Servers {
		n, _ := strconv.Atoi(strings.TrimLeft(s.ID[24:], "0"))
		out = append(out, n)
	}
	return out
}

func TestReadsAllPages(t *testing.T) {
	for count := range 13 {
		for _, p := range []*pager{{}, {silent: true}, {cap: 3}, {cap: 3, silent: true}, {cap: 2, silent: true}} {
			p.servers = seq(count)
			cfg, _ := cloud(t, p)
			cfg.PageSize = 4
			got, err := client(t, cfg).List(t.Context())
			if err != nil || !slices.Equal(ids(got), seq(count)) {
				t.Errorf("%d servers, silent %t, cap %d: got %v, %v", count, p.silent, p.cap, ids(got), err)
			}
		}
	}
}

func TestPagesThatDoNotFitAreReadOnceMore(t *testing.T) {
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
		"a server of an earlier page is deleted, so that another slips through": {
			&pager{before: drop(2)}, []int{1, 3, 4, 5, 6, 7, 8, 9, 10},
		},
		"a server is created in an earlier page": {
			&pager{before: func(n int, p *pager) {
				if n == 2 {
					p.servers = append([]int{99}, p.servers...)
				}
			}}, append(seq(10), 99),
		},
		"the server at the boundary is deleted": {&pager{before: drop(4)}, []int{1, 2, 3, 5, 6, 7, 8, 9, 10}},
		"a page repeats the one before": {
			&pager{after: func(n int, items *[]string, _ *bool) {
				if n == 2 {
					*items = []string{server(1), server(2), server(3), server(4)}
				}
			}}, seq(10),
		},
		"a page shrinks to nothing": {
			&pager{after: func(n int, items *[]string, more *bool) {
				if n == 2 {
					*items, *more = nil, false
				}
			}}, seq(10),
		},
		"a page lacks its first server": {
			&pager{after: func(n int, items *[]string, _ *bool) {
				if n == 1 {
					*items = (*items)[1:]
				}
			}}, seq(10),
		},
		"more is promised and not given": {
			&pager{after: func(n int, items *[]string, more *bool) {
				if n == 2 {
					*items, *more = (*items)[:1], true
				}
			}}, seq(10),
		},
		"a server comes on two pages": {
			&pager{after: func(n int, items *[]string, _ *bool) {
				if n == 2 {
					(*items)[2] = server(1)
				}
			}}, seq(10),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.servers = seq(10)
			cfg, _ := cloud(t, tc.p)
			cfg.PageSize = 4
			got, err := client(t, cfg).List(t.Context())
			if err != nil || !slices.Equal(ids(got), tc.want) {
				t.Errorf("got %v, %v", ids(got), err)
			}
			if tc.p.asked <= 4 {
				t.Errorf("read only once, by %d requests", tc.p.asked)
			}
		})
	}
}

func TestPagesThatNeverFitAreAnErrorAfterTwoReadings(t *testing.T) {
	p := &pager{servers: seq(10), before: func(_ int, p *pager) { p.servers = p.servers[1:] }}
	cfg, _ := cloud(t, p)
	cfg.PageSize = 4
	_, err := client(t, cfg).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "do not fit") || p.asked != 4 {
		t.Errorf("got %v after %d requests", err, p.asked)
	}
}

func TestAnErrorOnALaterPageIsAnErrorOfTheWhole(t *testing.T) {
	p := &pager{servers: seq(10)}
	cfg, _ := cloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.asked == 1 {
			respond(w, 401, "{}")
			return
		}
		p.ServeHTTP(w, r)
	}))
	cfg.PageSize = 4
	if got, err := client(t, cfg).List(t.Context()); err == nil || got.Servers != nil {
		t.Errorf("got %v, %v", ids(got), err)
	}
}

func TestAPageOfAnotherPositionThanAskedForIsAnError(t *testing.T) {
	cfg, _ := cloud(t, fixed(strings.Replace(collection("", server(1)), `"items"`, `"offset":4,"items"`, 1), plainLAN))
	if _, err := client(t, cfg).List(t.Context()); err == nil || !strings.Contains(err.Error(), "position") {
		t.Errorf("got %v", err)
	}
}

func TestAChangeWithoutAShiftIsNoTear(t *testing.T) {
	p := &pager{servers: seq(10)}
	p.after = func(n int, items *[]string, _ *bool) {
		if n == 2 { // the server at the boundary turned BUSY meanwhile
			(*items)[0] = strings.Replace((*items)[0], "AVAILABLE", "BUSY", 1)
		}
	}
	cfg, _ := cloud(t, p)
	cfg.PageSize = 4
	if got, err := client(t, cfg).List(t.Context()); err != nil || len(got.Servers) != 10 || p.asked != 4 {
		t.Errorf("got %v, %v after %d requests", ids(got), err, p.asked)
	}
}

// A limit that cannot be the one applied says nothing about where the listing ends. Pages overlap
// by one server, so a limit of one would never advance.
func TestRefusesAnEchoedLimitThatCannotBeTrue(t *testing.T) {
	for _, tc := range []struct {
		echo    string
		refused bool
	}{{"0", true}, {"-1", true}, {"1", true}, {"5", true}, {"1000", true}, {"2.5", true}, {"2", false}, {"4", false}, {"4.0", false}, {"null", false}} {
		for _, count := range []int{0, 3, 10} {
			cfg, _ := cloud(t, &pager{servers: seq(count), echo: tc.echo})
			cfg.PageSize = 4
			got, err := client(t, cfg).List(t.Context())
			if tc.refused {
				if err == nil || !strings.Contains(err.Error(), "limit") || got.Servers != nil {
					t.Errorf("limit %s, %d servers: got %v, %v", tc.echo, count, ids(got), err)
				}
				continue
			}
			if err != nil || !slices.Equal(ids(got), seq(count)) {
				t.Errorf("limit %s, %d servers: got %v, %v", tc.echo, count, ids(got), err)
			}
		}
	}
}

// A cloud that caps its pages at one server cannot be read to its end.
func TestACapOfOneServerIsAnErrorNotAShortListing(t *testing.T) {
	cfg, _ := cloud(t, &pager{servers: seq(10), cap: 1, silent: true})
	cfg.PageSize = 4
	if got, err := client(t, cfg).List(t.Context()); err == nil || got.Servers != nil {
		t.Errorf("got %v, %v", ids(got), err)
	}
}

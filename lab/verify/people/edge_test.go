package people

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/process"
)

// edge is a proxy that a writer programs, and somebody who sends requests through it.
type edge struct {
	*process.Process

	at   string
	http *http.Client

	mu   sync.Mutex
	past []passage
}

// passage is a request and what became of it.
type passage struct {
	began, ended time.Time
	by           string
	err          error
}

// edge starts the example client of docs/use/writer-api.md beside a writer.
func (d *doors) edge(s *e2e.Setup, writer *pair.Component, at string) *edge {
	s.T.Helper()
	root, err := pair.Root()
	s.Must(err)
	own := d.sub(s, proxySAN)
	e := &edge{at: at, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	e.Process, err = process.Start(process.Spec{
		Name: "proxy of " + writer.Name, Path: filepath.Join(root, ".bin", "proxy"), Log: filepath.Join(d.dir, writer.Name+"-proxy.log"),
		Args: []string{
			"-writer", doorAt(writer), "-cert", own + "/tls.crt", "-key", own + "/tls.key", "-ca", d.dir + "/door-ca.crt",
			"-service", pair.Namespace + "/" + pair.Service, "-port", "http", "-listen", at,
		},
	})
	s.Must(err)
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Log(e.Tail())
		}
		if err := e.Stop(5 * time.Second); err != nil {
			s.T.Error(err)
		}
	})
	return e
}

var programming = regexp.MustCompile(`msg=programmed backends="?\[(.*?)\]`)

// programs are the backends that it was given, one time after the other.
func (e *edge) programs(s *e2e.Setup) [][]string {
	s.T.Helper()
	text, err := os.ReadFile(e.Log())
	s.Must(err)
	var all [][]string
	for _, match := range programming.FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.Fields(match[1]))
	}
	return all
}

// programmed waits until it has just these backends, and returns when that was seen.
func (e *edge) programmed(s *e2e.Setup, workers ...*pair.Worker) time.Time {
	s.T.Helper()
	var want []string
	for _, w := range workers {
		want = append(want, netip.AddrPortFrom(w.Address, pair.NodePort).String())
	}
	s.Until(fmt.Sprintf("%s has %v", e.at, want), func() bool {
		all := e.programs(s)
		return len(all) > 0 && slices.Equal(all[len(all)-1], want)
	})
	return time.Now()
}

// pass sends a request each so often until ctx is done.
func (e *edge) pass(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var live sync.WaitGroup
	defer live.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			live.Go(func() {
				p := passage{began: time.Now()}
				p.by, p.err = e.get()
				p.ended = time.Now()
				e.mu.Lock()
				defer e.mu.Unlock()
				e.past = append(e.past, p)
			})
		}
	}
}

func (e *edge) get() (by string, err error) {
	answer, err := e.http.Get("http://" + e.at + "/")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get(backend.NameHeader), err
}

// span is a time in which a worker is not to be heard, or in which a request may fail.
type span struct {
	from, to time.Time
	worker   string
}

// judge holds all requests against the times in which a worker was to get none, and against the
// moments in which one died with requests in its hands.
func (e *edge) judge(t *testing.T, unheard, dying []span) {
	t.Helper()
	failed := 0
	by := map[string]int{}
	for _, p := range e.past {
		by[p.by]++
		if p.err != nil {
			failed++
			if !slices.ContainsFunc(dying, func(d span) bool { return !p.ended.Before(d.from) && !p.began.After(d.to) }) {
				t.Errorf("%s: a request from %s to %s failed: %v", e.at, p.began.Format(time.StampMilli), p.ended.Format(time.StampMilli),
					p.err)
			}
		}
		for _, u := range unheard {
			if p.by == u.worker && p.began.After(u.from) && p.ended.Before(u.to) {
				t.Errorf("%s: %s answered at %s, though it was not to get any", e.at, u.worker, p.ended.Format(time.StampMilli))
			}
		}
	}
	t.Logf("%s: %d requests, %d failed with a worker that died, answered by %v", e.at, len(e.past), failed, by)
	if len(e.past) < 100 {
		t.Errorf("only %d requests", len(e.past))
	}
}

package apifault

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// send is a request that changes something.
func (s *scene) send(method, path string) (status int, retryAfter, body string) {
	s.t.Helper()
	request, _ := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, nil)
	answer, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get("Retry-After"), string(raw)
}

func TestWritesAreRefusedAndReadsPass(t *testing.T) {
	s := enter(t)
	const slice, lease = "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices/shop", "/apis/coordination.k8s.io/v1/namespaces/web/leases/x"
	for _, row := range []struct {
		name         string
		fault        Fault
		method, path string
		status       int
		retryAfter   string
		reached      int32 // requests that came to the API server
	}{
		{"any write", Fault{RefuseWrites: 429, RetryAfter: 3 * time.Second}, http.MethodPut, lease, 429, "3", 0},
		{"one of the resource", Fault{RefuseWrites: 422, Resource: "endpointslices"}, http.MethodPost, slice, 422, "", 0},
		{"one of another resource", Fault{RefuseWrites: 422, Resource: "endpointslices"}, http.MethodPut, lease, 200, "", 1},
		{"a read", Fault{RefuseWrites: 500}, http.MethodGet, slice, 200, "", 1},
		{"a write whose answer is lost", Fault{RefuseWrites: 500, Lose: true}, http.MethodPut, slice, 500, "", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.Set(row.fault)
			before := s.up.requests.Load()
			status, retryAfter, body := s.send(row.method, row.path)
			if status != row.status || retryAfter != row.retryAfter {
				t.Errorf("%d %q %s, want %d %q", status, retryAfter, body, row.status, row.retryAfter)
			}
			if n := s.up.requests.Load() - before; n != row.reached {
				t.Errorf("%d reached the API server, want %d", n, row.reached)
			}
			if all := s.Requests(); all[len(all)-1].Status != row.status {
				t.Errorf("on record as %+v", all[len(all)-1])
			}
		})
	}
}

func TestWatchesLastForAMomentOnly(t *testing.T) {
	s := enter(t)
	old := s.watch("")
	s.Set(Fault{WatchesLast: shortly})
	s.ends(old)
	s.ends(s.watch(""))
	s.Set(Fault{})
	s.silent(s.watch(""))
}

// ends wants the watch's proper end.
func (s *scene) ends(watch <-chan string) {
	s.t.Helper()
	if got := s.line(watch); got != "" {
		s.t.Errorf("heard %q, want the end", got)
	}
}

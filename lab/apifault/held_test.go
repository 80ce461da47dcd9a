package apifault

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOneWriteIsKeptBackAndGoesOnThoughItsClientHasGone(t *testing.T) {
	const (
		lease  = "/apis/coordination.k8s.io/v1/namespaces/web/leases/slicefeed-default"
		shop   = "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices/shop"
		object = `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"shop","resourceVersion":"7"}}`
	)
	seen := make(chan string, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r.Method + " " + r.URL.Path + " " + r.Header.Get("X-Forwarded-For") + " " + string(body)
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	s := inFrontOf(t, server)
	send := func(ctx context.Context, method, path, body string) error {
		r, err := http.NewRequestWithContext(ctx, method, s.URL()+path, bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.client.Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	passes := func(method, path string) {
		t.Helper()
		if err := send(t.Context(), method, path, ""); err != nil {
			t.Error(err)
		}
		if got, want := <-seen, method+" "+path+" 127.0.0.1 "; got != want {
			t.Errorf("the server saw %q, want %q", got, want)
		}
	}

	held := s.HoldNextWrite()
	passes(http.MethodGet, shop)
	passes(http.MethodPut, lease)
	ctx, give := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { gone <- send(ctx, http.MethodPut, shop, object) }()
	<-held.Arrived()
	if held.Method != http.MethodPut || held.Slice == nil || held.Slice.ResourceVersion != "7" {
		t.Errorf("kept back is a %s of %v", held.Method, held.Slice)
	}
	passes(http.MethodPut, shop) // one only
	give()
	if err := <-gone; err == nil {
		t.Error("the client got an answer")
	}
	if status, err := held.Release(t.Context()); err != nil || status != http.StatusConflict {
		t.Errorf("it was answered %d, %v", status, err)
	}
	if got, want := <-seen, http.MethodPut+" "+shop+" 127.0.0.1 "+object; got != want {
		t.Errorf("the server saw %q, want %q", got, want)
	}
}

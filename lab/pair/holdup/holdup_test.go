package holdup

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/web/leases/slicefeed-default"
	shop   = "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices/shop"
	slice  = `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"shop","resourceVersion":"7"}}`
)

func TestOneWriteIsKeptBackAndGoesOnThoughItsClientHasGone(t *testing.T) {
	seen := make(chan string, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r.Method + " " + r.URL.Path + " " + r.Header.Get("X-Forwarded-For") + " " + string(body)
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	proxy, err := Start(Options{Upstream: server.URL, UpstreamCA: ca, Listen: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(proxy.CA())
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	send := func(ctx context.Context, method, path, body string) error {
		r, err := http.NewRequestWithContext(ctx, method, proxy.URL()+path, bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
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

	held := proxy.Hold()
	passes(http.MethodGet, shop)
	passes(http.MethodPut, leases)
	ctx, give := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { gone <- send(ctx, http.MethodPut, shop, slice) }()
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
	if got, want := <-seen, http.MethodPut+" "+shop+" 127.0.0.1 "+slice; got != want {
		t.Errorf("the server saw %q, want %q", got, want)
	}
}

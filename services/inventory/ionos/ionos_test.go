package ionos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDatacenter = "aaaaaaaa-0000-4000-8000-000000000001"
	datacenterPath = basePath + "/datacenters/" + testDatacenter
)

// testToken is as long as a real one, which is longer than what an error quotes of a response.
var testToken = "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9." + strings.Repeat("s3cr3t", 150)

// testServerID is the n-th server ID.
func testServerID(n int) string { return fmt.Sprintf("abcdef00-0000-4000-8000-%012d", n) }

// nicJSON is a NIC in the format of the API.
func nicJSON(lan string, ips ...string) string {
	quoted := make([]string, len(ips))
	for i, ip := range ips {
		quoted[i] = fmt.Sprintf("%q", ip)
	}
	return fmt.Sprintf(
		`{"id":"nic-%s","type":"nic","metadata":{"state":"AVAILABLE","createdDate":"2026-01-02T03:04:05Z"},"properties":{"lan":%s,"ips":[%s]}}`,
		strings.Join(append([]string{lan}, ips...), "-"),
		lan,
		strings.Join(quoted, ","),
	)
}

// serverJSON is a server in the format of the API.
func serverJSON(n int, nics ...string) string {
	return fmt.Sprintf(
		`{"id":%q,"type":"server","metadata":{"state":"AVAILABLE"},"properties":{"name":"node-%d"},"entities":{"nics":{"id":"x/nics","type":"collection","items":[%s]}}}`,
		testServerID(n),
		n,
		strings.Join(nics, ","),
	)
}

// serversJSON is the response that lists the servers; links may be empty.
func serversJSON(links string, servers ...string) string {
	if links != "" {
		links = `,"_links":{"next":"` + links + `"}`
	}
	return fmt.Sprintf(`{"id":"%s/servers","type":"collection","items":[%s]%s}`, testDatacenter, strings.Join(servers, ","), links)
}

const plainLANJSON = `{"id":"2","type":"lan","properties":{"name":"private"}}`

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// serveFixed returns these bodies for the list of servers and the LAN.
func serveFixed(servers, lan string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, datacenterPath+"/lans/") {
			respond(w, 200, lan)
			return
		}
		respond(w, 200, servers)
	})
}

// requestLog records requests.
type requestLog struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (j *requestLog) all() []*http.Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]*http.Request(nil), j.requests...)
}

// startCloud serves h over TLS and returns a configuration that connects to it.
func startCloud(t *testing.T, h http.Handler) (Config, *requestLog) {
	t.Helper()
	j := new(requestLog)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		j.mu.Lock()
		j.requests = append(j.requests, r.Clone(context.Background()))
		j.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return Config{
		APIURL: s.URL, CAFile: ca, Token: testToken, Pairs: []Pair{{testDatacenter, "2"}},
	}, j
}

// handlerTransport passes requests to a handler without a network, for synctest.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// testBudget is the default of IONOS_REQUEST_BUDGET.
const testBudget = 120

// withDefaults completes a configuration as the settings do.
func (cfg Config) withDefaults() Config {
	cfg.APIURL, cfg.Budget = cmp.Or(cfg.APIURL, "https://api.ionos.com"), cmp.Or(cfg.Budget, testBudget)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Pairs == nil {
		cfg.Pairs = []Pair{{testDatacenter, "2"}}
	}
	return cfg
}

// withPages makes a client read pages of at most so many servers.
func (c *Client) withPages(size int) *Client {
	c.maxPageSize = size
	c.pageSize.Store(int64(size))
	return c
}

// newOfflineClient is a client of h without a network.
func newOfflineClient(t testing.TB, cfg Config, h http.Handler) *Client {
	t.Helper()
	if cfg.TokenFile == "" {
		cfg.Token = testToken
	}
	c, err := New(cfg.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	c.transport.base = handlerTransport{h}
	return c
}

func writeFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newTestClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	c.timeout = time.Minute // far beyond a busy machine
	t.Cleanup(c.transport.base.(*http.Transport).CloseIdleConnections)
	return c
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	invalid := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, invalid, []byte("invalid"))
	valid, _ := startCloud(t, nil)
	oneCA, err := os.ReadFile(valid.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	joined := filepath.Join(t.TempDir(), "joined.pem")
	writeFile(t, joined, slices.Concat(bytes.TrimSpace(oneCA), oneCA, oneCA))
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"an address without scheme":         {func(c *Config) { c.APIURL = "127.0.0.1:8443" }, "https://host"},
		"a host name without scheme":        {func(c *Config) { c.APIURL = "localhost:8443" }, "https://host"},
		"a bare name":                       {func(c *Config) { c.APIURL = "api.ionos.com" }, "https://host"},
		"plain http, which shows the token": {func(c *Config) { c.APIURL = "http://api.ionos.com" }, "https://host"},
		"a URL with a user":                 {func(c *Config) { c.APIURL = "https://u:p4ss@api.ionos.com" }, "neither user"},
		"no token":                          {func(c *Config) { c.Token = "" }, "want a token"},
		"a token with blanks":               {func(c *Config) { c.Token = "Bearer p4ss" }, "bare token"},
		"a missing CA":                      {func(c *Config) { c.CAFile = "/nowhere/ca.pem" }, "/nowhere/ca.pem"},
		"a CA without a certificate":        {func(c *Config) { c.CAFile = invalid }, "ca.pem: no PEM certificate found"},
		"CAs of which some cannot be read":  {func(c *Config) { c.CAFile = joined }, "joined.pem: only 1 of 3 PEM blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Token: testToken}.withDefaults()
			tc.change(&cfg)
			_, err := New(cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "p4ss") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

func TestParseAPIURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://api.ionos.com":                  "https://api.ionos.com/cloudapi/v6",
		"https://api.ionos.com///":               "https://api.ionos.com/cloudapi/v6",
		"https://api.ionos.com/cloudapi/v6":      "https://api.ionos.com/cloudapi/v6",
		"https://127.0.0.1:8443/cloudapi/v6//":   "https://127.0.0.1:8443/cloudapi/v6",
		" https://proxy.example/ionos/ ":         "https://proxy.example/ionos/cloudapi/v6", //nolint:gocritic // trimming is what this row is about
		"https://proxy.example/a/cloudapi/v6/":   "https://proxy.example/a/cloudapi/v6",
		"https://[2001:db8::1]:8443/cloudapi/v6": "https://[2001:db8::1]:8443/cloudapi/v6",
	} {
		got, err := parseAPIURL(in)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %v, %v, want %s", in, got, err, want)
		}
	}
}

func TestTrailingSlashInAPIURL(t *testing.T) {
	cfg, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	cfg.APIURL += "/cloudapi/v6/"
	if _, err := newTestClient(t, cfg).List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := j.all()[0].URL.Path; got != datacenterPath+"/servers" {
		t.Errorf("path is %s", got)
	}
}

func TestNewRejectsPinnedCertificate(t *testing.T) {
	t.Setenv("IONOS_PINNED_CERT", "aa:bb")
	cfg, _ := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	if _, err := New(cfg.withDefaults()); err == nil || !strings.Contains(err.Error(), "IONOS_PINNED_CERT") {
		t.Fatalf("got %v", err)
	}
}

func TestIgnoresEnvironmentOfSDK(t *testing.T) {
	for k, v := range map[string]string{
		"IONOS_LOG_LEVEL": "trace", "IONOS_CONTRACT_NUMBER": "4711", "IONOS_USERNAME": "someone",
		"IONOS_PASSWORD": "p4ss", "IONOS_TOKEN": "another", "IONOS_API_URL": "https://elsewhere.invalid",
	} {
		t.Setenv(k, v)
	}
	cfg, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	// The SDK's logger writes to what os.Stderr is when the logger is created.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = w
	c, err := New(cfg.withDefaults())
	if err == nil {
		_, err = c.List(t.Context())
	}
	os.Stderr = stderr
	w.Close()
	output, _ := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(output, []byte(testToken)) || bytes.Contains(output, []byte("IONOSLOG")) {
		t.Errorf("the SDK logged: %s", output)
	}
	for _, r := range j.all() {
		if got := r.Header["X-Contract-Number"]; got != nil {
			t.Errorf("contract number sent: %q", got)
		}
		if got := r.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer "+testToken {
			t.Errorf("authorization sent: %q", got)
		}
	}
}

func TestReadsTokenFilePerRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, []byte("first\r\n\n"))
	cfg, j := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/servers") {
			writeFile(t, file, []byte("second\n"))
		}
		serveFixed(serversJSON(""), plainLANJSON).ServeHTTP(w, r)
	}))
	cfg.Token, cfg.TokenFile = "", file
	if _, err := newTestClient(t, cfg).List(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range j.all() {
		got = append(got, r.Header.Get("Authorization"))
	}
	if strings.Join(got, ",") != "Bearer first,Bearer second" {
		t.Errorf("sent %q", got)
	}
}

func TestInvalidTokenFileSendsNoRequest(t *testing.T) {
	for name, content := range map[string]string{"missing": "", "empty": " \n", "two lines": "p4ss\np4ss\n"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			if content != "" {
				writeFile(t, file, []byte(content))
			}
			cfg, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
			cfg.Token, cfg.TokenFile = "", file
			_, err := newTestClient(t, cfg).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "p4ss") {
				t.Errorf("got %v", err)
			}
			if len(j.all()) != 0 {
				t.Error("a request was sent")
			}
		})
	}
}

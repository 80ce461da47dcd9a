package query

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/endpointserver"
)

// testCA signs certificates into a directory.
type testCA struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t *testing.T) *testCA {
	c := &testCA{t: t, dir: t.TempDir()}
	c.cert, c.key = c.signCert("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return c
}

// filePath returns the path of a file that sign has written.
func (c *testCA) filePath(name string) string { return filepath.Join(c.dir, name) }

// signCert writes NAME.pem and NAME-key.pem.
func (c *testCA) signCert(name string, cert *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	c.t.Helper()
	must := func(err error) {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = big.NewInt(
		time.Now().UnixNano(),
	), time.Now().
		Add(-time.Hour),
		time.Now().
			Add(time.Hour)
	parent, signer := c.cert, c.key
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(os.WriteFile(c.filePath(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(c.filePath(name+"-key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	signed, err := x509.ParseCertificate(der)
	must(err)
	return signed, key
}

func TestQueriesListener(t *testing.T) {
	c := newTestCA(t)
	c.signCert(
		"writer",
		&x509.Certificate{DNSNames: []string{"writer.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
	)
	for _, name := range []string{"operator", "proxy", "stranger"} {
		c.signCert(
			name,
			&x509.Certificate{DNSNames: []string{name + ".example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		)
	}
	clients := `clients:
- {san: operator.example, role: operator}
- {san: proxy.example, role: subscriber}
`
	if err := os.WriteFile(c.filePath("clients.yaml"), []byte(clients), 0o600); err != nil {
		t.Fatal(err)
	}
	store := endpoints.NewStore("instance")
	store.Put(newTarget())
	store.MarkSynced()
	cfg := endpointserver.ListenerConfig{
		Clients:    c.filePath("clients.yaml"),
		Store:      store,
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	}
	cfg.Files.Cert, cfg.Files.Key, cfg.Files.PeerCA = c.filePath("writer.pem"), c.filePath("writer-key.pem"), c.filePath("ca.pem")
	listener, err := endpointserver.NewListener(cfg)
	if err != nil {
		t.Fatal(err)
	}
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- listener.Run(ctx, on) }()

	for _, q := range []struct {
		name, as string
		ask      func(context.Context, request) error
		args     []string
		wantText string
		code     int
	}{
		{"an operator", "operator", explainEndpoint, []string{"web/shop", "10.0.0.1"}, "as worker-1", 0},
		{"an operator, about one that is not ready", "operator", explainEndpoint, []string{"web/shop", "10.0.0.2"}, "connection refused", 1},
		{"a subscriber", "proxy", listEndpoints, []string{"web/shop"}, "10.0.0.3  draining", 0},
		{"a subscriber who wants to know why", "proxy", explainEndpoint, []string{"web/shop", "10.0.0.1"}, "role operator", 1},
		{"a subscriber who waits", "proxy", waitBriefly, []string{"web/shop"}, "is not healthy after 1s: 1 address out of sync; 1 change held by guards", 1},
		{"a stranger who waits", "stranger", waitBriefly, []string{"web/shop"}, "the writer rejects CLIENT_CERT_FILE", 1},
		{"a stranger", "stranger", listEndpoints, []string{"web/shop"}, "the writer rejects CLIENT_CERT_FILE", 1},
		{"one without a certificate", "nobody", listEndpoints, []string{"web/shop"}, "nobody.pem", 2},
	} {
		t.Run(q.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &Settings{
				Writer: on.Addr().String(), WriterSAN: "writer.example", WriterCA: c.filePath("ca.pem"),
				CertFile: c.filePath(q.as + ".pem"), KeyFile: c.filePath(q.as + "-key.pem"),
			}
			err := runQuery(
				t.Context(),
				command.Invocation[Settings]{Args: q.args, Out: &out, Err: &out, Config: s},
				s,
				queryTimeout,
				q.ask,
			)
			if err != nil {
				out.WriteString(err.Error())
			}
			if !strings.Contains(out.String(), q.wantText) || settings.ExitCode(err) != q.code {
				t.Errorf("exit code %d, want %d; it prints:\n%s\nwant %q", settings.ExitCode(err), q.code, out.String(), q.wantText)
			}
		})
	}
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// waitBriefly is wait with a short timeout.
func waitBriefly(ctx context.Context, q request) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return waitHealthy(ctx, q)
}

func TestListenerReportsAllFileErrors(t *testing.T) {
	cfg := endpointserver.ListenerConfig{
		Clients:    "no-clients.yaml",
		Store:      endpoints.NewStore("instance"),
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	}
	cfg.Files.Cert, cfg.Files.Key, cfg.Files.PeerCA = "no-cert.pem", "no-key.pem", "no-ca.pem"
	_, err := endpointserver.NewListener(cfg)
	for _, file := range []string{"no-cert.pem", "no-ca.pem", "no-clients.yaml"} {
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%v does not name %s", err, file)
		}
	}
}

func TestReportsMissingSettings(t *testing.T) {
	for use, args := range map[string][]string{"endpoints": {"web/shop"}, "explain": {"web/shop", "10.0.0.1"}, "wait": {"web/shop"}} {
		for name, c := range map[string]struct {
			args     []string
			wantText []string
		}{
			"settings":  {args, []string{"WRITER_ADDRESS", "WRITER_SAN", "WRITER_CA_FILE", "CLIENT_CERT_FILE", "CLIENT_KEY_FILE"}},
			"arguments": {nil, []string{"NAMESPACE/SERVICE"}},
		} {
			cmd := command.Component[struct{}]{
				Name:       "slicefeed-writer",
				Standalone: NewCommands(),
			}.Command(
				func(string) string { return "" },
			)
			cmd.SetArgs(append([]string{use}, c.args...))
			err := cmd.ExecuteContext(t.Context())
			for _, text := range c.wantText {
				if settings.ExitCode(err) != 2 || !strings.Contains(err.Error(), text) {
					t.Errorf("%s without %s ends with %v: want exit code 2 and %q", use, name, err, text)
				}
			}
		}
	}
}

func TestTimeoutOfWaitIsOnlyAFlag(t *testing.T) {
	env := map[string]string{
		"TIMEOUT":          "soon",
		"WRITER_ADDRESS":   "127.0.0.1:1",
		"WRITER_SAN":       "writer.example",
		"WRITER_CA_FILE":   "none.pem",
		"CLIENT_CERT_FILE": "none.pem",
		"CLIENT_KEY_FILE":  "none.pem",
	}
	for args, want := range map[string]string{"wait web/shop": "none.pem", "wait web/shop --timeout soon": `--timeout="soon": want a duration such as 5s, 1s to 24h`} {
		cmd := command.Component[struct{}]{
			Name:       "slicefeed-writer",
			Standalone: NewCommands(),
		}.Command(
			func(name string) string { return env[name] },
		)
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(
			t.Context(),
		); settings.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "TIMEOUT") {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

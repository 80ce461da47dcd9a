// Package ionos reads complete listings of servers and LANs from the IONOS Cloud API. It guarantees that
// a listing is complete and consistent or an error, and that no unusual response is taken for an empty
// cloud, that a page is never held in memory as a whole, and that nothing that it logs or returns contains the
// token. It limits requests to a budget per minute. It does not retry, decide when to list, or evaluate
// addresses: the roster does. pages.go explains how a listing is known to be complete.
package ionos

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/slicefeed/slicefeed/services/internal/link"
)

const (
	requestTimeout   = 10 * time.Second // of a request and its complete response
	maxPageSize      = 1000             // servers
	maxResponseBytes = 64 << 20         // decompressed

	basePath = "/cloudapi/v6"
)

// Pair identifies a LAN of a datacenter.
type Pair struct {
	Datacenter string // UUID
	LAN        string // a number in decimal notation
}

// Config configures a Client. Everything but CAFile and one of TokenFile and Token is mandatory.
type Config struct {
	APIURL    string // https; with or without /cloudapi/v6
	CAFile    string // PEM, trusted instead of the system's roots; read once; empty: the system's roots
	TokenFile string // read for each request, so that a rotated token needs no restart
	Token     string // used when there is no TokenFile
	Pairs     []Pair

	// Budget is in requests per minute, 2 or more. IONOS does not publish its limits, so the setting's default of 120 is
	// generous: a listing of 5,000 servers and a LAN takes 7 requests. An anomaly takes a listing every 5 s, which is 84
	// requests per minute; ten of them pass without a wait, and then one every 20 s, 21 requests per minute.
	Budget     int
	UserAgent  string
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Client reads listings. It is safe for concurrent use.
type Client struct {
	api         *ionoscloud.APIClient
	datacenters []datacenter
	timeout     time.Duration
	maxPageSize int          // 2 or more: pages overlap by one server
	pageSize    atomic.Int64 // of the next page
	transport   *transport
	perMinute   int // requests
	limiter     *rate.Limiter
	logWait     rate.Sometimes
	metrics     *metrics
	log         *slog.Logger
}

// datacenter is a datacenter to read, with its LANs in the order of the configuration.
type datacenter struct {
	id   string
	lans []string
}

// New validates the configuration, reports all problems, and returns a client. It sends no request. It
// rejects IONOS_PINNED_CERT, because the SDK then replaces this package's transport by one that verifies
// no certificate chain. All other variables that the SDK reads by itself have no effect.
func New(cfg Config) (*Client, error) {
	var problems []error
	if os.Getenv(ionoscloud.IonosPinnedCertEnvVar) != "" {
		problems = append(problems,
			errors.New("IONOS_PINNED_CERT is set, which disables certificate verification; unset it and set IONOS_CA_FILE instead"))
	}
	base, err := parseAPIURL(cfg.APIURL)
	problems = append(problems, err)
	baseTransport := http.DefaultTransport.(*http.Transport).Clone()
	baseTransport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	baseTransport.MaxResponseHeaderBytes = 256 << 10
	// Without pings, requests time out on a connection that has gone silent until TCP gives it up, a quarter of an hour later.
	baseTransport.HTTP2 = &http.HTTP2Config{SendPingTimeout: requestTimeout / 2, PingTimeout: requestTimeout / 2}
	if cfg.CAFile != "" {
		roots, err := link.ReadCertificates(cfg.CAFile)
		problems = append(problems, err)
		baseTransport.TLSClientConfig.RootCAs = link.NewCertPool(roots)
	}
	token := TokenSource{File: cfg.TokenFile, Fixed: cfg.Token}
	if token.File == "" { // a file is often mounted after the start
		_, err = token.Read()
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}

	limiter := newBudget(cfg.Budget)
	m := newMetrics(cfg.Registerer, limiter.Tokens)
	c := &Client{
		datacenters: groupByDatacenter(cfg.Pairs),
		timeout:     requestTimeout,
		maxPageSize: maxPageSize,
		transport:   newTransport(baseTransport, token, m, cfg.Log),
		perMinute:   cfg.Budget,
		limiter:     limiter,
		logWait:     rate.Sometimes{Interval: 10 * time.Minute},
		metrics:     m,
		log:         cfg.Log,
	}
	c.pageSize.Store(maxPageSize)
	// ionoscloud.NewConfiguration is not used, because it reads IONOS_LOG_LEVEL: at level trace, the SDK
	// writes the bearer token to stderr.
	c.api = ionoscloud.NewAPIClient(&ionoscloud.Configuration{
		Host:       base.Host,
		Scheme:     base.Scheme,
		Servers:    ionoscloud.ServerConfigurations{{URL: base.String()}},
		UserAgent:  cfg.UserAgent,
		LogLevel:   ionoscloud.Off,
		Logger:     stdlog.New(io.Discard, "", 0),
		MaxRetries: 1, // attempts: the SDK's pauses between retries ignore Retry-After
		HTTPClient: &http.Client{
			Transport: c.transport,
			// A redirect would send the token to any host that it names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	return c, nil
}

// parseAPIURL normalizes the URL for the SDK, which doubles the base path after a slash and guesses a
// missing scheme.
func parseAPIURL(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	switch {
	case err != nil: // the error repeats the URL, which may contain a password by mistake
		return nil, errors.New("API URL cannot be parsed, want https://host[:port]")
	case u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("API URL is %q, want https://host[:port], because the token is sent there", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("API URL is %q, want neither user, query nor fragment", u.Redacted())
	}
	prefix := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), basePath)
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: path.Join("/", prefix, basePath)}, nil
}

// groupByDatacenter collects the LANs of each datacenter, so that its servers are read once.
func groupByDatacenter(pairs []Pair) (datacenters []datacenter) {
	for _, p := range pairs {
		id := strings.ToLower(p.Datacenter)
		i := slices.IndexFunc(datacenters, func(d datacenter) bool { return d.id == id })
		if i < 0 {
			i, datacenters = len(datacenters), append(datacenters, datacenter{id: id})
		}
		if !slices.Contains(datacenters[i].lans, p.LAN) {
			datacenters[i].lans = append(datacenters[i].lans, p.LAN)
		}
	}
	return datacenters
}

// Package ionos reads complete listings of servers and LANs from the IONOS Cloud API. It guarantees that
// a listing is complete and consistent or an error, and that no unusual response is taken for an empty
// cloud. It limits requests to a budget per minute. It does not retry, decide when to list, or evaluate
// addresses: the roster does. pages.go explains how a listing is known to be complete.
package ionos

import (
	"cmp"
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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
)

// Defaults of Config.
const (
	DefaultAPIURL            = "https://api.ionos.com"
	DefaultTimeout           = 10 * time.Second
	DefaultPageSize          = 1000
	DefaultMaxResponse int64 = 64 << 20
)

const basePath = "/cloudapi/v6"

// Pair identifies a LAN of a datacenter.
type Pair struct {
	Datacenter string // UUID
	LAN        string // a number in decimal notation
}

// Config configures a Client. Pairs, Registerer and either Token or TokenFile are mandatory.
type Config struct {
	APIURL    string // https; with or without /cloudapi/v6; empty: DefaultAPIURL
	CAFile    string // PEM, trusted instead of the system's roots; read once; empty: the system's roots
	TokenFile string // read for each request, so that a rotated token needs no restart
	Token     string // used when there is no TokenFile
	Pairs     []Pair

	Timeout     time.Duration // for a request and its complete response; 0: DefaultTimeout
	PageSize    int           // servers per page at most, 2 to 10000: pages overlap by one server; 0: DefaultPageSize
	Budget      int           // requests per minute, 2 or more; 0: DefaultBudget
	MaxResponse int64         // bytes of a response, decompressed; 0: DefaultMaxResponse
	UserAgent   string        // empty: slicefeed-inventory
	Log         *slog.Logger  // nil: no logs
	Registerer  prometheus.Registerer
}

// Client reads listings. It is safe for concurrent use.
type Client struct {
	api         *ionoscloud.APIClient
	datacenters []datacenter
	timeout     time.Duration
	maxPageSize int
	pageSize    atomic.Int64 // of the next page
	transport   *ionoshttp.Transport
	budget      *budget
	lastListing prometheus.Gauge
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
	datacenters, err := groupByDatacenter(cfg.Pairs)
	problems = append(problems, err)
	baseTransport := http.DefaultTransport.(*http.Transport).Clone()
	baseTransport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	baseTransport.MaxResponseHeaderBytes = 256 << 10
	// Without pings, requests time out on a connection that has gone silent until TCP gives it up, a quarter of an hour later.
	timeout := cmp.Or(cfg.Timeout, DefaultTimeout)
	baseTransport.HTTP2 = &http.HTTP2Config{SendPingTimeout: timeout / 2, PingTimeout: timeout / 2}
	if cfg.CAFile != "" {
		roots, err := certificate.Read(cfg.CAFile)
		problems = append(problems, err)
		baseTransport.TLSClientConfig.RootCAs = certificate.NewPool(roots)
	}
	token := ionoshttp.TokenSource{File: cfg.TokenFile, Fixed: cfg.Token}
	if token.File == "" { // a file is often mounted after the start
		_, err = token.Read()
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}

	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	budget := newBudget(cmp.Or(cfg.Budget, DefaultBudget), log)
	c := &Client{
		datacenters: datacenters,
		timeout:     timeout,
		maxPageSize: cmp.Or(cfg.PageSize, DefaultPageSize),
		budget:      budget,
		lastListing: registerMetrics(cfg.Registerer, budget),
		transport:   ionoshttp.New(baseTransport, token, cmp.Or(cfg.MaxResponse, DefaultMaxResponse), cfg.Registerer, log),
		log:         log,
	}
	c.pageSize.Store(int64(c.maxPageSize))
	// ionoscloud.NewConfiguration is not used, because it reads IONOS_LOG_LEVEL: at level trace, the SDK
	// writes the bearer token to stderr.
	c.api = ionoscloud.NewAPIClient(&ionoscloud.Configuration{
		Host:       base.Host,
		Scheme:     base.Scheme,
		Servers:    ionoscloud.ServerConfigurations{{URL: base.String()}},
		UserAgent:  cmp.Or(cfg.UserAgent, "slicefeed-inventory"),
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
	u, err := url.Parse(strings.TrimSpace(cmp.Or(s, DefaultAPIURL)))
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

var (
	uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	// lanPattern matches the number of a LAN: the API's int32 has no leading zeros.
	lanPattern = regexp.MustCompile(`^[1-9][0-9]{0,9}$`)
)

// groupByDatacenter collects the LANs of each datacenter, so that its servers are read once.
func groupByDatacenter(pairs []Pair) ([]datacenter, error) {
	var datacenters []datacenter
	var problems []error
	for _, p := range pairs {
		id := strings.ToLower(p.Datacenter)
		if !uuidPattern.MatchString(id) {
			problems = append(problems, fmt.Errorf("datacenter is %q, want a UUID", p.Datacenter))
		}
		if _, err := strconv.ParseInt(p.LAN, 10, 32); err != nil || !lanPattern.MatchString(p.LAN) {
			problems = append(problems, fmt.Errorf("LAN is %q, want its number, such as 2", p.LAN))
		}
		i := slices.IndexFunc(datacenters, func(d datacenter) bool { return d.id == id })
		if i < 0 {
			i, datacenters = len(datacenters), append(datacenters, datacenter{id: id})
		}
		if !slices.Contains(datacenters[i].lans, p.LAN) {
			datacenters[i].lans = append(datacenters[i].lans, p.LAN)
		}
	}
	if len(pairs) == 0 {
		problems = append(problems, errors.New("no pair of datacenter and LAN"))
	}
	return datacenters, errors.Join(problems...)
}

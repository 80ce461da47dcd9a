package prober

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Mode is how a backend is probed.
type Mode uint8

// The modes. Keys of the zero value Off are ignored.
const (
	Off   Mode = iota
	TCP        // connect, then close
	HTTP       // GET; 200 to 399 passes, redirects are not followed
	HTTPS      // as HTTP, over TLS without any verification
	GRPC       // Check of grpc.health.v1; SERVING passes
)

var modeNames = [...]string{Off: "off", TCP: "tcp", HTTP: "http", HTTPS: "https", GRPC: "grpc"}

func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	for m, known := range modeNames {
		if known == name {
			return Mode(m), nil
		}
	}
	return Off, fmt.Errorf("unknown probe mode %q: want one of %s", name, strings.Join(modeNames[:], ", "))
}

// UnmarshalText parses a mode, so that it can be a setting.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// MarshalText returns the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Defaults for a Spec's zero durations.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second
)

// Spec is how to probe. It is a part of the key: after a change of its spec an endpoint has another
// key, whose status is pending. Fields that the mode does not use make no difference.
type Spec struct {
	Mode     Mode
	Path     string        // http, https: path and query, default "/"
	Host     string        // http, https, grpc: Host header (:authority), default address:port; over TLS also the SNI, default none
	Service  string        // grpc: the service to check, default the server as a whole
	TLS      bool          // grpc: over TLS, without any verification
	Interval time.Duration // between the starts of two probes; 0: DefaultInterval
	Timeout  time.Duration // of one probe, from connecting to its last byte; 0: DefaultTimeout
}

// Maximum lengths of texts that each probe sends.
const (
	maxPathLength    = 1024
	maxServiceLength = 253
)

var hostPattern = regexp.MustCompile(`^([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?$`)

// Validate returns all problems of a spec, joined.
func (s Spec) Validate() error {
	var problems []error
	if int(s.Mode) >= len(modeNames) {
		problems = append(problems, fmt.Errorf("unknown probe %v", s.Mode))
	}
	if s.Path != "" {
		u, err := url.ParseRequestURI(s.Path)
		if err != nil || u.IsAbs() || !strings.HasPrefix(s.Path, "/") || len(s.Path) > maxPathLength {
			problems = append(problems, fmt.Errorf("probe path %.64q: want a path such as /healthz, of at most %d bytes", s.Path, maxPathLength))
		}
	}
	if s.Host != "" && !hostPattern.MatchString(s.Host) {
		problems = append(problems, fmt.Errorf("probe host %.64q: want a host name, with or without a port", s.Host))
	}
	if len(s.Service) > maxServiceLength || strings.ContainsFunc(s.Service, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problems = append(problems, fmt.Errorf("probe service %.64q: want the name of a gRPC service such as shop.v1.Orders", s.Service))
	}
	if s.Interval < 0 || s.Timeout < 0 {
		problems = append(problems, errors.New("probe interval and timeout: want 0 or more"))
	}
	return errors.Join(problems...)
}

// canonical sets defaults and clears the fields that the mode does not use, so that equivalent specs are equal.
func (s Spec) canonical() Spec {
	c := Spec{Mode: s.Mode, Interval: s.interval(), Timeout: s.timeout()}
	switch s.Mode {
	case HTTP, HTTPS:
		c.Path, c.Host = s.path(), s.Host
	case GRPC:
		c.Host, c.Service, c.TLS = s.Host, s.Service, s.TLS
	}
	return c
}

func (s Spec) path() string {
	if s.Path == "" {
		return "/"
	}
	return s.Path
}

func (s Spec) interval() time.Duration {
	if s.Interval <= 0 {
		return DefaultInterval
	}
	return s.Interval
}

func (s Spec) timeout() time.Duration {
	if s.Timeout <= 0 {
		return DefaultTimeout
	}
	return s.Timeout
}

// Key identifies what is probed. Targets with the same key share its probes and its status.
type Key struct {
	Address netip.Addr
	Port    uint16
	Spec    Spec
}

func (k Key) canonical() Key {
	k.Spec = k.Spec.canonical()
	return k
}

func (k Key) hostPort() string { return netip.AddrPortFrom(k.Address, k.Port).String() }

// compare orders keys.
func (k Key) compare(other Key) int {
	a, b := k.Spec, other.Spec
	secured := func(s Spec) int {
		if s.TLS {
			return 1
		}
		return 0
	}
	return cmp.Or(
		k.Address.Compare(other.Address), cmp.Compare(k.Port, other.Port), cmp.Compare(a.Mode, b.Mode),
		cmp.Compare(a.Path, b.Path), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Service, b.Service), cmp.Compare(secured(a), secured(b)),
		cmp.Compare(a.Interval, b.Interval), cmp.Compare(a.Timeout, b.Timeout),
	)
}

// stripPort returns a host without its port.
func stripPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// Health is the conclusion from a key's probe results: the main part of its Status.
type Health uint8

// The values of Health. Pending, the zero value, means that there is no conclusion yet.
const (
	Pending Health = iota
	Passing
	Failing
)

var healthNames = [...]string{Pending: "pending", Passing: "passing", Failing: "failing"}

func (h Health) String() string { return healthNames[h] }

// Status is the current probe status of a key.
type Status struct {
	Health       Health
	Since        time.Time // when this health was reached; zero while pending
	Detail       string    // why it fails or cannot be probed, without numbers that change from probe to probe
	LastPassedAt time.Time // when a probe last passed; zero: never
	// Expired: pending because no probe was conclusive for three intervals. The writer cannot probe the key.
	Expired       bool
	FirstFailedAt time.Time // while failing: when the first of the failed probes that led to it ended

	// The run is all results that agree with the health, from those that led to it on; single other results
	// do not end it. It starts when its first pass began, or its first failure ended. RunLast is
	// when its youngest probe began. Both are zero while pending.
	RunStart, RunLast time.Time
}

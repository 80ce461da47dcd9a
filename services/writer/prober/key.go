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

// Mode is how a backend is asked.
type Mode uint8

// The modes. The zero value asks nothing: keys of that mode are ignored.
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
	return Off, fmt.Errorf("%q is no probe mode: want one of %s", name, strings.Join(modeNames[:], ", "))
}

// UnmarshalText makes a Mode a setting.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// MarshalText is the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Defaults of a Spec's zero durations.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second
)

// Spec is how to probe. It is a part of the key: an endpoint whose spec changes is
// another one to the prober, and not judged yet. What its mode does not use is no difference.
type Spec struct {
	Mode     Mode
	Path     string        // http, https: path and query, default "/"
	Host     string        // http, https, grpc: the Host header (:authority), default address:port; over TLS the SNI too, default none
	Service  string        // grpc: the service to ask for, default the server as a whole
	TLS      bool          // grpc: over TLS, without any verification
	Interval time.Duration // between the starts of two probes; 0: DefaultInterval
	Timeout  time.Duration // of one probe, from connecting to its last byte; 0: DefaultTimeout
}

// Longest texts that a spec may have: they are sent with each probe.
const (
	maxPathLength    = 1024
	maxServiceLength = 253
)

var hostPattern = regexp.MustCompile(`^([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?$`)

// Validate reports all that makes a spec unusable.
func (s Spec) Validate() error {
	var problems []error
	if int(s.Mode) >= len(modeNames) {
		problems = append(problems, fmt.Errorf("%v is unknown", s.Mode))
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
		problems = append(problems, errors.New("a probe's interval and timeout cannot be negative"))
	}
	return errors.Join(problems...)
}

// canonical is the same for all specs that ask the same.
func (s Spec) canonical() Spec {
	same := Spec{Mode: s.Mode, Interval: s.interval(), Timeout: s.timeout()}
	switch s.Mode {
	case HTTP, HTTPS:
		same.Path, same.Host = s.path(), s.Host
	case GRPC:
		same.Host, same.Service, same.TLS = s.Host, s.Service, s.TLS
	}
	return same
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

// Key is what is probed. Targets that ask for the same key share its probes and its word.
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

// stripPort is a host without its port.
func stripPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// Health is the word on a key. The zero value: not judged yet.
type Health uint8

// The words.
const (
	Pending Health = iota
	Passing
	Failing
)

var healthNames = [...]string{Pending: "pending", Passing: "passing", Failing: "failing"}

func (h Health) String() string { return healthNames[h] }

// Status is what the probes say of a key at present.
type Status struct {
	Health       Health
	Since        time.Time // when this word was first said; zero while not judged
	Detail       string    // why it fails, or cannot be probed, without numbers that change from probe to probe
	LastPassedAt time.Time // when a probe last passed; zero: never
	// Expired: it is not judged since no probe came to a conclusion for three intervals. The prober cannot probe it.
	Expired       bool
	FirstFailedAt time.Time // while failing: when the first of the failures ended that led to it
}

package probe

import (
	"cmp"
	"errors"
	"fmt"
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

// Modes returns all modes, the first of which is Off.
func Modes() []Mode {
	all := make([]Mode, len(modeNames))
	for i := range all {
		all[i] = Mode(i)
	}
	return all
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
			problems = append(
				problems,
				fmt.Errorf("probe path %.64q: want a path such as /healthz, of at most %d bytes", s.Path, maxPathLength),
			)
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

// Canonical sets defaults and clears the fields that the mode does not use, so that equivalent specs are equal.
func (s Spec) Canonical() Spec {
	c := Spec{Mode: s.Mode, Interval: cmp.Or(s.Interval, DefaultInterval), Timeout: cmp.Or(s.Timeout, DefaultTimeout)}
	switch s.Mode {
	case HTTP, HTTPS:
		c.Path, c.Host = cmp.Or(s.Path, "/"), s.Host
	case GRPC:
		c.Host, c.Service, c.TLS = s.Host, s.Service, s.TLS
	}
	return c
}

// Result is the outcome of one probe.
type Result uint8

// The results. Inconclusive says nothing about the backend: the writer could not probe it, for example
// because it has no free socket or shuts down.
const (
	Inconclusive Result = iota
	Pass
	Fail
)

var resultNames = [...]string{Inconclusive: "inconclusive", Pass: "pass", Fail: "fail"}

func (r Result) String() string { return resultNames[r] }

// Key identifies what is probed. Targets with the same key share its probes and its status.
type Key struct {
	Address netip.Addr
	Port    uint16
	Spec    Spec
}

// Canonical returns the key with its canonical spec.
func (k Key) Canonical() Key {
	k.Spec = k.Spec.Canonical()
	return k
}

// HostPort returns address:port.
func (k Key) HostPort() string { return netip.AddrPortFrom(k.Address, k.Port).String() }

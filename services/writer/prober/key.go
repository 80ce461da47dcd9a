package prober

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Mode is how a backend is asked.
type Mode uint8

// The modes. The zero value asks nothing: keys of that mode are ignored.
const (
	Off  Mode = iota
	TCP       // connect, then close
	HTTP      // GET; 200 to 399 passes, redirects are not followed
)

var modes = [...]string{Off: "off", TCP: "tcp", HTTP: "http"}

func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	for m, known := range modes {
		if known == name {
			return Mode(m), nil
		}
	}
	return Off, fmt.Errorf("%q is no probe mode: want one of %s", name, strings.Join(modes[:], ", "))
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
// another one to the prober, and not judged yet.
type Spec struct {
	Mode     Mode
	Path     string        // http: path and query, default "/"
	Host     string        // http: the Host header, default address:port
	Interval time.Duration // between the starts of two probes; 0: DefaultInterval
	Timeout  time.Duration // of one probe, from connecting to its last byte; 0: DefaultTimeout
}

// Validate reports all that makes a spec unusable.
func (s Spec) Validate() error {
	var problems []error
	if int(s.Mode) >= len(modes) {
		problems = append(problems, fmt.Errorf("%v is unknown", s.Mode))
	}
	if s.Path != "" {
		if u, err := url.ParseRequestURI(s.Path); err != nil || u.IsAbs() || !strings.HasPrefix(s.Path, "/") {
			problems = append(problems, fmt.Errorf("probe path %q: want a path such as /healthz", s.Path))
		}
	}
	if strings.ContainsAny(s.Host, " \t\r\n/") {
		problems = append(problems, fmt.Errorf("probe host %q: want a host name, with or without a port", s.Host))
	}
	if s.Interval < 0 || s.Timeout < 0 {
		problems = append(problems, errors.New("a probe's interval and timeout cannot be negative"))
	}
	return errors.Join(problems...)
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

// Health is the word on a key. The zero value: not judged yet.
type Health uint8

// The words.
const (
	Unjudged Health = iota
	Passing
	Failing
)

var healths = [...]string{Unjudged: "unjudged", Passing: "passing", Failing: "failing"}

func (h Health) String() string { return healths[h] }

// Word is what the probes say of a key at present.
type Word struct {
	Health Health
	Since  time.Time // when this word was first said; zero while not judged
	Detail string    // why it fails, without numbers that change from probe to probe
}

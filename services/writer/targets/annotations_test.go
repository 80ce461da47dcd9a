package targets

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// Selectors are compared by their text.
var selectorComparer = cmp.Comparer(func(a, b labels.Selector) bool {
	return a == nil && b == nil || a != nil && b != nil && a.String() == b.String()
})

func mustParseSelector(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEachAnnotationChangesItsSetting(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		alter func(*Settings)
	}{
		"source":         {" green , blue,green ", func(s *Settings) { s.Sources = []string{"blue", "green"} }},
		"failover":       {" green, red", func(s *Settings) { s.Failover = []string{"green", "red"} }},
		"failover-below": {"2", func(s *Settings) { s.FailoverBelow = 2 }},
		"ports":          {"from-source", func(s *Settings) { s.PortsFromSource = true }},
		"ports.<source>": {"http=31080, dns = 31053", func(s *Settings) { s.Ports = map[string]map[string]uint16{"green": {"http": 31080, "dns": 31053}} }},
		"expire-after":   {"720h", func(s *Settings) { s.ExpireAfter = 720 * time.Hour }},
		"source-service": {"shop/web", func(s *Settings) { s.SourceService = "shop/web" }},
		"node-selector":  {"pool in (a,b),disk!=slow", func(s *Settings) { s.NodeSelector = mustParseSelector(t, "pool in (a,b),disk!=slow") }},
		"probe":          {"https", func(s *Settings) { s.Probe.Mode = probe.HTTPS }},
		"probe-port":     {"65535", func(s *Settings) { s.ProbePort = 65535 }},
		"probe-path":     {"/healthz?deep=1", func(s *Settings) { s.Probe.Path = "/healthz?deep=1" }},
		"probe-host":     {"shop.example:8443", func(s *Settings) { s.Probe.Host = "shop.example:8443" }},
		"probe-service":  {"shop.v1.Orders", func(s *Settings) { s.Probe.Service = "shop.v1.Orders" }},
		"probe-tls":      {"true", func(s *Settings) { s.Probe.TLS = true }},
		"probe-interval": {" 10s ", func(s *Settings) { s.Probe.Interval = 10 * time.Second }},
		"probe-timeout":  {"3s", func(s *Settings) { s.Probe.Timeout = 3 * time.Second }}, // longer than the interval, which is 2s
		"list-unready":   {"false", func(s *Settings) { s.ListUnready = false }},
		"publish":        {"true", func(s *Settings) { s.Publish = true }},
		"paused":         {"true", func(s *Settings) { s.Paused = true }},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaultSettings()
			tc.alter(&want)
			got, problems := parseAnnotations(
				defaultSettings(),
				map[string]string{"slicefeed.dev/" + strings.Replace(name, "<source>", "green", 1): tc.value},
			)
			if diff := cmp.Diff(want, got, selectorComparer); diff != "" || problems != nil {
				t.Errorf("%v\n%s", problems, diff)
			}
		})
		delete(unread, name)
	}
	if len(unread) > 0 {
		t.Errorf("no test of %v", unread)
	}
}

var unread = func() map[string]bool {
	all := map[string]bool{}
	for _, a := range knownAnnotations {
		all[a.name] = true
	}
	return all
}()

func TestAnnotationErrorNamesValueAndAcceptedValues(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"source", "", `slicefeed.dev/source is "": want the name of a source, or several separated by commas`},
		{"source", "blue,,green", `slicefeed.dev/source is "blue,,green": want the name of a source, or several separated by commas`},
		{"node-selector", "pool==", ""}, // equal to nothing is a selector too
		{"node-selector", "a b", `slicefeed.dev/node-selector is "a b": want a label selector such as pool=blue,disk!=slow`},
		{"node-selector", "a=" + strings.Repeat("b", 2000), `slicefeed.dev/node-selector is "a=` + strings.Repeat("b", 18) + `": want a label selector such as pool=blue,disk!=slow`},
		{"probe", "TCP", `slicefeed.dev/probe is "TCP": want off, tcp, http, https or grpc`},
		{"probe-port", "0", `slicefeed.dev/probe-port is "0": want a port from 1 to 65535`},
		{"probe-port", "http", `slicefeed.dev/probe-port is "http": want a port from 1 to 65535`},
		{"probe-port", "65536", `slicefeed.dev/probe-port is "65536": want a port from 1 to 65535`},
		{"probe-path", "healthz", `slicefeed.dev/probe-path is "healthz": want a path such as /healthz`},
		{"probe-host", "a b", `slicefeed.dev/probe-host is "a b": want a host name, with or without a port`},
		{"probe-service", "a b", `slicefeed.dev/probe-service is "a b": want the name of a gRPC service such as shop.v1.Orders`},
		{"probe-tls", "yes", `slicefeed.dev/probe-tls is "yes": want true or false`},
		{"probe-interval", "2", `slicefeed.dev/probe-interval is "2": want a duration from 200ms to 5m`},
		{"probe-interval", "100ms", `slicefeed.dev/probe-interval is "100ms": want a duration from 200ms to 5m`},
		{"probe-timeout", "-1s", `slicefeed.dev/probe-timeout is "-1s": want a duration from 50ms to 1m`},
		{"list-unready", "no", `slicefeed.dev/list-unready is "no": want true or false`},
		{"paused", "at night", `slicefeed.dev/paused is "at night": want true or false`},
		{"prob-path", "/", `unknown annotation slicefeed.dev/prob-path`},
		{"colour", "blue", `unknown annotation slicefeed.dev/colour`},
		{"class", "default", `slicefeed.dev/class is a label, not an annotation`},
	} {
		t.Run(tc.name+"="+tc.value[:min(len(tc.value), 20)], func(t *testing.T) {
			_, problems := parseAnnotations(defaultSettings(), map[string]string{"slicefeed.dev/" + tc.name: tc.value})
			if got := strings.Join(problems, "|"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestReportsAllAnnotationErrorsInOrder(t *testing.T) {
	svc := newService()
	svc.Annotations = map[string]string{
		"slicefeed.dev/probe": "ping", "slicefeed.dev/probe-port": "x", "slicefeed.dev/list-unraedy": "true",
		"example.com/probe": "ping", "foo.slicefeed.dev/probe": "ping",
	}
	want := `unknown annotation slicefeed.dev/list-unraedy` +
		`; slicefeed.dev/probe is "ping": want off, tcp, http, https or grpc; slicefeed.dev/probe-port is "x": want a port from 1 to 65535`
	if resolution := resolve(newConfig(), svc); resolution.Rejection == nil || resolution.Rejection.Message != want {
		t.Errorf("got  %v\nwant %s", resolution.Rejection, want)
	}
}

func TestNamesABoundedNumberOfAnnotationErrors(t *testing.T) {
	svc := newService()
	for _, a := range knownAnnotations {
		svc.Annotations["slicefeed.dev/"+a.name] = strings.Repeat("ü\x00", 200)
	}
	resolution := resolve(newConfig(), svc)
	if r := resolution.Rejection; r == nil || len(r.Parts) != maxParts+1 || !strings.HasSuffix(r.Message, "more annotations are invalid") {
		t.Errorf("%v", r)
	}
}

func TestEveryPausedValueExceptFalsePauses(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "True": true, "1": true, "false": false, "0": false, "yes": true, "": true} {
		got, _ := parseAnnotations(defaultSettings(), map[string]string{"slicefeed.dev/paused": value, "slicefeed.dev/probe": "?"})
		if got.Paused != want {
			t.Errorf("%q: paused is %t", value, got.Paused)
		}
	}
}

func TestParsingKeepsDefaultsUnchanged(t *testing.T) {
	base := defaultSettings()
	base.Sources = []string{"z", "a"}
	before := base.Sources[0]
	if _, problems := parseAnnotations(
		base,
		map[string]string{"slicefeed.dev/source": "b,a"},
	); problems != nil ||
		base.Sources[0] != before {
		t.Errorf("the defaults were changed: %v, %v", base.Sources, problems)
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add("source", "blue,green", "probe", "http", "probe-interval", "2s")
	f.Add("paused", "yes", "probe-timeout", "1m", "probe-interval", "200ms")
	f.Add("node-selector", "a in (b", "probe-host", "[::1]:80", "probe-path", "/%zz")
	f.Add("failover-below", "1e3", "probe-interval", "1h0.1s", "expire-after", "-9223372036854775808ns")
	f.Add("", "", "slicefeed.dev/", "\xff", "probe-port", "+80")
	f.Fuzz(func(t *testing.T, a, av, b, bv, c, cv string) {
		annotations := map[string]string{annotationPrefix + a: av, annotationPrefix + b: bv, annotationPrefix + c: cv}
		svc := newService()
		svc.Annotations = annotations
		got, problems := parseAnnotations(defaultSettings(), annotations)
		if len(problems) == 0 {
			checkBounds(t, got)
		}
		resolution, memory := Resolve(newConfig(), Input{Key: shop, Service: svc})
		if accepted := resolution.Rejection == nil; accepted != (memory.Settings != nil) || accepted && len(problems) > 0 {
			t.Errorf("problems %v, rejected %v, remembered %v", problems, resolution.Rejection, memory.Settings)
		}
		if r := resolution.Rejection; r != nil &&
			(len(r.Message) > 1024 || !utf8.ValidString(r.Message) || strings.ContainsAny(r.Message, "\n\x00")) {
			t.Errorf("%d bytes: %q", len(r.Message), r.Message)
		}
	})
}

func checkBounds(t *testing.T, s Settings) {
	t.Helper()
	inside := func(what string, d, least, most time.Duration) {
		if d < least || d > most {
			t.Errorf("%s is %s", what, d)
		}
	}
	inside("interval", s.Probe.Interval, minInterval, maxInterval)
	inside("timeout", s.Probe.Timeout, minTimeout, min(maxTimeout, s.Probe.Interval))
	if err := s.Probe.Validate(); err != nil {
		t.Error(err)
	}
}

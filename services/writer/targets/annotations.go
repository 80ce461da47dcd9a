package targets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// Settings are what the annotations of a Service may change.
type Settings struct {
	Sources  []string // names, sorted
	Failover []string // names of further sources; each is a tier of its own, in this order
	// SourceService is the exported Service whose endpoints are used, as namespace/name; empty: the one set of a source
	// that exports none.
	SourceService string
	// FailoverBelow is the number of ready endpoints of earlier tiers that keep a later one out.
	FailoverBelow int
	NodeSelector  labels.Selector // of members; nil: all
	// Ports are port numbers at a source that has others than the Service, by source and by name of the port.
	Ports           map[string]map[string]uint16
	PortsFromSource bool // the ports of other sources are those that they report
	Probe           probe.Spec
	ProbePort       uint16        // 0: the first TCP port of the Service
	ExpireAfter     time.Duration // how long a source may not be trusted before its endpoints leave; 0: any time
	ListUnready     bool          // list endpoints that are not ready
	Publish         bool          // of a Service that is no target: what its slices list is published
	Paused          bool          // a person acts by hand: nothing is written, even if other annotations are invalid
}

// AllSources returns the names of the sources of all tiers, the first tier first.
func (s *Settings) AllSources() []string { return slices.Concat(s.Sources, s.Failover) }

// annotationPrefix starts the name of every annotation and label of Slicefeed.
const annotationPrefix = "slicefeed.dev/"

// pausedAnnotation is parsed apart from the others: pausing must work even if other annotations are
// invalid.
const pausedAnnotation = "paused"

// publishAnnotation is the only one that counts on a Service that is no target.
const publishAnnotation = "publish"

// portsOfAnnotation is followed by a source.
const portsOfAnnotation = "ports."

// Bounds of the annotations; the settings with the same meaning have the same bounds.
const (
	minInterval, maxInterval = 200 * time.Millisecond, 5 * time.Minute
	minTimeout, maxTimeout   = 50 * time.Millisecond, time.Minute
	minExpiry, maxExpiry     = 30 * time.Second, 30 * 24 * time.Hour
	minBelow, maxBelow       = 1, 1000
	maxSelector              = 1024 // it is matched against every member
)

// annotationSpec is one supported annotation of a Service. Its texts are for people.
type annotationSpec struct {
	name        string // without the prefix
	accepts     string
	defaultText string // what applies without it
	description string
	set         func(s *Settings, text string) bool // reports whether the text is valid
}

const acceptsBool = "true or false"

// knownAnnotations are all annotations, in the order of the documentation's table.
var knownAnnotations = []annotationSpec{
	{
		"source", "the name of a source, or several separated by commas", "the only configured source", "where its endpoints come from",
		setField(func(s *Settings) *[]string { return &s.Sources }, func(text string) ([]string, error) {
			names, err := parseNames(text)
			slices.Sort(names)
			return slices.Compact(names), err
		}),
	},
	{
		"source-service", "namespace/name of a Service", "none",
		"the Service whose endpoints are used: each source of this Service has to export it",
		func(s *Settings, text string) bool {
			_, ok := contract.ParseService(text)
			s.SourceService = text
			return ok
		},
	},
	{
		"failover", "the name of a source, or several in the order in which they are needed, separated by commas", "none",
		"sources whose endpoints are listed only while those before them have too few ready ones",
		setField(func(s *Settings) *[]string { return &s.Failover }, parseNames),
	},
	{
		"failover-below", fmt.Sprintf("a number from %d to %d", minBelow, maxBelow), "1",
		"so many ready endpoints of the earlier sources keep a later one out",
		setField(func(s *Settings) *int { return &s.FailoverBelow }, within(minBelow, maxBelow, strconv.Atoi)),
	},
	{
		"node-selector", "a label selector such as pool=blue,disk!=slow", "all members",
		"which members of a source are used, by the labels that its inventory exports (`EXPORT_LABELS`)",
		func(s *Settings, text string) bool {
			selector, err := labels.Parse(text)
			s.NodeSelector = selector
			return err == nil && len(text) <= maxSelector
		},
	},
	{
		"ports", "from-source", "the Service's targetPorts",
		"sources of kind service: the port numbers are those that the source reports, found by name",
		func(s *Settings, text string) bool {
			s.PortsFromSource = true
			return text == "from-source"
		},
	},
	{
		portsOfAnnotation + "<source>",
		"port numbers by name such as http=30080,https=30443, or one number alone",
		"the Service's targetPorts",
		"the port numbers at one source, if it has others",
		nil, // see setPorts
	},
	{
		"probe", probeModeNames(), "`HEALTH_CHECK_MODE`", "how each endpoint is probed",
		setField(func(s *Settings) *probe.Mode { return &s.Probe.Mode }, probe.ParseMode),
	},
	{
		"probe-port", "a port from 1 to 65535", "the first TCP port written", "the port to probe; required if there is no TCP port",
		setField(func(s *Settings) *uint16 { return &s.ProbePort }, parsePort),
	},
	{
		"probe-path", "a path such as /healthz", "`HEALTH_CHECK_PATH`", "http, https: the path to request",
		setProbe(func(p *probe.Spec) *string { return &p.Path }),
	},
	{
		"probe-host", "a host name, with or without a port", "the address; no SNI",
		"http, https, grpc: the Host header, and over TLS the SNI",
		setProbe(func(p *probe.Spec) *string { return &p.Host }),
	},
	{
		"probe-service", "the name of a gRPC service such as shop.v1.Orders", "the server as a whole", "grpc: the service to query",
		setProbe(func(p *probe.Spec) *string { return &p.Service }),
	},
	{
		"probe-tls", acceptsBool, "false", "grpc: over TLS",
		setField(func(s *Settings) *bool { return &s.Probe.TLS }, strconv.ParseBool),
	},
	{
		"probe-interval", acceptsDuration(minInterval, maxInterval), "`HEALTH_CHECK_INTERVAL`", "how often each endpoint is probed",
		setField(func(s *Settings) *time.Duration { return &s.Probe.Interval }, within(minInterval, maxInterval, time.ParseDuration)),
	},
	{
		"probe-timeout", acceptsDuration(minTimeout, maxTimeout), "`HEALTH_CHECK_TIMEOUT`",
		"how long a probe waits for a response; it may be longer than the interval",
		setField(func(s *Settings) *time.Duration { return &s.Probe.Timeout }, within(minTimeout, maxTimeout, time.ParseDuration)),
	},
	{
		"expire-after", acceptsDuration(minExpiry, maxExpiry), "never",
		"how long a source may not be trusted before its endpoints are removed, if another source has ready ones",
		setField(func(s *Settings) *time.Duration { return &s.ExpireAfter }, within(minExpiry, maxExpiry, time.ParseDuration)),
	},
	{
		"list-unready", acceptsBool, "true", "whether endpoints that are not ready are listed, so that people see them",
		setField(func(s *Settings) *bool { return &s.ListUnready }, strconv.ParseBool),
	},
	{
		publishAnnotation,
		acceptsBool,
		"false",
		"a Service that this writer does not manage, such as one with a selector: the endpoint API publishes what its slices list; nothing is written",
		setField(func(s *Settings) *bool { return &s.Publish }, strconv.ParseBool),
	},
	{
		pausedAnnotation, acceptsBool, "false", "nothing is written, while a person acts by hand",
		setField(func(s *Settings) *bool { return &s.Paused }, strconv.ParseBool),
	},
}

// setField returns what sets a field of the settings to what is parsed.
func setField[T any](of func(*Settings) *T, parse func(text string) (T, error)) func(*Settings, string) bool {
	return func(s *Settings, text string) bool {
		value, err := parse(text)
		*of(s) = value
		return err == nil
	}
}

// setProbe returns what sets a field of the probe.
func setProbe(of func(*probe.Spec) *string) func(*Settings, string) bool {
	return setField(func(s *Settings) *string { return of(&s.Probe) }, func(text string) (string, error) {
		var alone probe.Spec
		*of(&alone) = text
		return text, alone.Validate()
	})
}

var errNotAccepted = errors.New("not accepted")

// within returns what parses a value between two bounds.
func within[T int | time.Duration](lower, upper T, parse func(text string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		value, err := parse(text)
		if err == nil && (value < lower || value > upper) {
			err = errNotAccepted
		}
		return value, err
	}
}

func acceptsDuration(lower, upper time.Duration) string {
	return fmt.Sprintf("a duration from %s to %s", formatDuration(lower), formatDuration(upper))
}

// probeModeNames returns the names of the probe modes, as a sentence lists them.
func probeModeNames() string {
	var names []string
	for _, mode := range probe.Modes() {
		names = append(names, mode.String())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// setPorts sets the port numbers at one source.
func (s *Settings) setPorts(source, text string) bool {
	ports, ok := parsePorts(text)
	all := maps.Clone(s.Ports)
	if all == nil {
		all = map[string]map[string]uint16{}
	}
	all[source] = ports
	s.Ports = all
	return ok
}

// parseNames returns the names in a list separated by commas.
func parseNames(text string) ([]string, error) {
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if slices.Contains(names, "") {
		return names, errNotAccepted
	}
	return names, nil
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if port == 0 && err == nil {
		err = errNotAccepted
	}
	return uint16(port), err
}

// parseAnnotations reads the settings of a Service. Each problem names the annotation, its value and
// the accepted values; if there are any problems, only Paused counts.
func parseAnnotations(defaults Settings, annotations map[string]string) (Settings, []string) {
	s := defaults
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		name, owned := strings.CutPrefix(name, annotationPrefix)
		if !owned {
			continue
		}
		text := strings.TrimSpace(annotations[annotationPrefix+name])
		source, ofSource := strings.CutPrefix(name, portsOfAnnotation)
		at := slices.IndexFunc(knownAnnotations, func(a annotationSpec) bool {
			return a.name == name || ofSource && strings.HasPrefix(a.name, portsOfAnnotation)
		})
		switch {
		case ofSource && s.setPorts(source, text):
		case at < 0:
			problems = append(problems, describeUnknown(name))
		case text == "" || ofSource || !knownAnnotations[at].set(&s, text):
			problems = append(problems, fmt.Sprintf("%s%s is %.20q: want %s", annotationPrefix, name, text, knownAnnotations[at].accepts))
		}
	}
	if text, given := annotations[annotationPrefix+pausedAnnotation]; given {
		// Whoever sets it wants writes to stop, whatever the value.
		value, err := strconv.ParseBool(strings.TrimSpace(text))
		s.Paused = err != nil || value
	}
	return s, problems
}

// describeUnknown reports an unknown annotation.
func describeUnknown(name string) string {
	// The API server accepts no other characters, but other callers might pass them.
	shown := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	full := fmt.Sprintf("%s%.63s", annotationPrefix, shown)
	if annotationPrefix+name == LabelClass {
		return full + " is a label, not an annotation"
	}
	return "unknown annotation " + full
}

// formatDuration formats a duration as people write it: 5m, not 5m0s.
func formatDuration(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/kubeapi"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Names of checks that others need.
const (
	checkToken  = "IONOS token"
	checkSource = "source"
)

// check makes the checks before the flight.
func check(ctx context.Context, version string, call command.Invocation[Config]) error {
	f, err := newFlight(call.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, call.Out, f.checks())
}

// flight is a configuration, and who is asked whether it can work.
type flight struct {
	cfg     *Config
	version string
	cluster *kubeapi.Client  // nil: the source is none
	host    string           // of the cluster's API server
	clock   *preflight.Clock // of its answers
	cloud   describer        // nil: none is needed
}

func newFlight(cfg *Config, version string) (*flight, error) {
	f := &flight{cfg: cfg, version: version, clock: &preflight.Clock{}}
	var problems []error
	if cfg.inCluster() {
		cluster, err := clusterConfig(cfg, version)
		if err == nil {
			f.host = cluster.Host
			cluster.Wrap(f.clock.Wrap)
			f.cluster, err = kubeapi.New(cluster)
		}
		problems = append(problems, err)
	}
	cloud, err := cloudClient(cfg, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	f.cloud, _ = cloud.(describer)
	return f, errors.Join(append(problems, err)...)
}

// checks are those that the configuration asks for, in the order in which one would mend things.
func (f *flight) checks() []preflight.Check {
	all := preflight.Identity{Files: f.cfg.files(), Server: true}.Checks()
	all = append(all, preflight.Check{Name: "allowed clients", Run: func(context.Context) (string, error) {
		_, err := link.OpenClients(f.cfg.Clients)
		return "the list can be used", err
	}})
	before := []string{checkSource} // what the first observation needs
	if f.cluster != nil {
		all = append(all, f.clusterChecks()...)
	}
	// A full look takes as long as its pages need: 15 s would fail a large fleet that serve can read.
	source := preflight.Check{Name: checkSource, Timeout: patience + preflight.DefaultTimeout, Run: f.source}
	if f.cluster != nil {
		source.DependsOn = []string{preflight.APIServer}
		for _, p := range needed(f.cfg) {
			source.DependsOn = append(source.DependsOn, p.String())
		}
	}
	all = append(all, source)
	if f.cloud != nil {
		cloud := f.cloudChecks()
		all = append(all, cloud...)
		before = append(before, names(cloud)...)
	}
	return append(all, preflight.Check{Name: "first observation", DependsOn: before, Timeout: patience + preflight.DefaultTimeout, Run: f.observe})
}

func names(checks []preflight.Check) []string {
	var all []string
	for _, c := range checks {
		all = append(all, c.Name)
	}
	return all
}

// source reads the source once, whole, and counts what it tells.
func (f *flight) source(ctx context.Context) (string, error) {
	s, err := newSource(f.cfg, f.version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	_, err = s.Verify(ctx, roster.Full)
	news := s.Take()
	cancel()
	if err = errors.Join(err, <-ran); err != nil {
		return "", fmt.Errorf("it cannot be read: %w", err)
	}
	return count(news)
}

// count says how many nodes the source tells, and how many of them count.
func count(news roster.News) (string, error) {
	var workers, selected, ready int
	var bad []string
	for _, c := range news.Changed {
		if c.Excluded != roster.ControlPlane {
			workers++
		}
		switch {
		case c.Bad != "":
			bad = append(bad, fmt.Sprintf("%s (%s)", c.Name, c.Bad))
		case c.Excluded == 0:
			selected++
			if c.State == roster.Ready {
				ready++
			}
		}
	}
	saw := fmt.Sprintf("nodes: %d, workers: %d, selected: %d, ready of these: %d", len(news.Changed), workers, selected, ready)
	switch {
	case selected == 0:
		return "", fmt.Errorf("no node is left to tell (%s): check NODE_SELECTOR, and that this is the right source", saw)
	case len(bad) > 0:
		return "", preflight.Warning("%s, and what is said of %d cannot be used: %s", saw, len(bad), strings.Join(bad, "; "))
	case news.Flaw != "":
		return "", preflight.Warning("%s; %s", saw, news.Flaw)
	case ready == 0:
		return "", preflight.Warning("%s: none is ready", saw)
	}
	return saw, nil
}

// observe makes a first observation, as serve does.
func (f *flight) observe(ctx context.Context) (string, error) {
	look, err := newLookout(f.cfg, f.version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	missing, err := look.glance(ctx, patience, func(string) {})
	if err = errors.Join(err, missing); err != nil {
		return "", err
	}
	told, left := look.collector.summary()
	switch {
	case told == 0:
		return "", fmt.Errorf("no node would be told; left out: %s; say why: slicefeed-inventory explain NODE", orNone(left))
	case len(left) > 0:
		return "", preflight.Warning("nodes that would be told: %d; left out, though they count: %s; say why: slicefeed-inventory explain NODE", told, orNone(left))
	}
	return fmt.Sprintf("nodes that would be told: %d", told), nil
}

// summary is how many nodes are in the roster, and which of those that count are not, and why.
func (c *collector) summary() (told int, left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.intake.Roster.Omitted() {
		if o.Reason != roster.ControlPlane && o.Reason != roster.ExcludedByLabel && o.Reason != roster.NotSelected {
			left = append(left, fmt.Sprintf("%s (%s)", o.Name, strings.ToUpper(o.Reason.String())))
		}
	}
	return len(c.intake.Roster.Nodes()), left
}

// orNone lists a few of many.
func orNone(all []string) string {
	const few = 3
	if len(all) == 0 {
		return "none"
	}
	text := strings.Join(all[:min(len(all), few)], ", ")
	if len(all) > few {
		text += fmt.Sprintf(" and %d more", len(all)-few)
	}
	return text
}

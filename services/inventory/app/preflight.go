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
	tokenCheckName  = "IONOS token"
	sourceCheckName = "source"
)

// runPreflight makes the checks before the flight.
func runPreflight(ctx context.Context, version string, inv command.Invocation[Config]) error {
	c, err := newPreflightChecker(inv.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, c.checks())
}

// preflightChecker is a configuration, and who is asked whether it can work.
type preflightChecker struct {
	cfg     *Config
	version string
	cluster *kubeapi.Client  // nil: the source is none
	host    string           // of the cluster's API server
	clock   *preflight.Clock // of its answers
	cloud   cloudDescriber   // nil: none is needed
}

func newPreflightChecker(cfg *Config, version string) (*preflightChecker, error) {
	c := &preflightChecker{cfg: cfg, version: version, clock: &preflight.Clock{}}
	var problems []error
	if cfg.usesCluster() {
		cluster, err := loadClusterConfig(cfg, version)
		if err == nil {
			c.host = cluster.Host
			cluster.Wrap(c.clock.Wrap)
			c.cluster, err = kubeapi.New(cluster)
		}
		problems = append(problems, err)
	}
	cloud, err := newCloudClient(cfg, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c.cloud, _ = cloud.(cloudDescriber)
	return c, errors.Join(append(problems, err)...)
}

// checks are those that the configuration asks for, in the order in which one would mend things.
func (f *preflightChecker) checks() []preflight.Check {
	all := preflight.Identity{Files: f.cfg.tlsFiles(), Server: true}.Checks()
	all = append(all, preflight.Check{Name: "allowed clients", Run: func(context.Context) (string, error) {
		_, err := link.OpenClients(f.cfg.ClientsFile)
		return "the list can be used", err
	}})
	required := []string{sourceCheckName} // what the first observation needs
	if f.cluster != nil {
		all = append(all, f.clusterChecks()...)
	}
	// A full look takes as long as its pages need: 15 s would fail a large fleet that serve can read.
	source := preflight.Check{Name: sourceCheckName, Timeout: observationTimeout + preflight.DefaultTimeout, Run: f.readSource}
	if f.cluster != nil {
		source.DependsOn = []string{preflight.APIServer}
		for _, p := range requiredPermissions(f.cfg) {
			source.DependsOn = append(source.DependsOn, p.String())
		}
	}
	all = append(all, source)
	if f.cloud != nil {
		cloud := f.cloudChecks()
		all = append(all, cloud...)
		required = append(required, checkNames(cloud)...)
	}
	return append(all, preflight.Check{Name: "first observation", DependsOn: required, Timeout: observationTimeout + preflight.DefaultTimeout, Run: f.observeNodes})
}

func checkNames(checks []preflight.Check) []string {
	var all []string
	for _, c := range checks {
		all = append(all, c.Name)
	}
	return all
}

// readSource reads the source once, whole, and counts what it tells.
func (f *preflightChecker) readSource(ctx context.Context) (string, error) {
	s, err := newSource(f.cfg, f.version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	runErr := make(chan error, 1)
	go func() { runErr <- s.Run(ctx) }()
	_, err = s.Verify(ctx, roster.Full)
	update := s.Take()
	cancel()
	if err = errors.Join(err, <-runErr); err != nil {
		return "", fmt.Errorf("it cannot be read: %w", err)
	}
	return countNodes(update)
}

// countNodes says how many nodes the source tells, and how many of them count.
func countNodes(update roster.News) (string, error) {
	var workers, selected, ready int
	var invalid []string
	for _, c := range update.Changed {
		if c.Excluded != roster.ControlPlane {
			workers++
		}
		switch {
		case c.Bad != "":
			invalid = append(invalid, fmt.Sprintf("%s (%s)", c.Name, c.Bad))
		case c.Excluded == 0:
			selected++
			if c.State == roster.Ready {
				ready++
			}
		}
	}
	detail := fmt.Sprintf("nodes: %d, workers: %d, selected: %d, ready of these: %d", len(update.Changed), workers, selected, ready)
	switch {
	case selected == 0:
		return "", fmt.Errorf("no node is left to tell (%s): check NODE_SELECTOR, and that this is the right source", detail)
	case len(invalid) > 0:
		return "", preflight.Warning("%s, and what is said of %d cannot be used: %s", detail, len(invalid), strings.Join(invalid, "; "))
	case update.Flaw != "":
		return "", preflight.Warning("%s; %s", detail, update.Flaw)
	case ready == 0:
		return "", preflight.Warning("%s: none is ready", detail)
	}
	return detail, nil
}

// observeNodes makes a first observation, as serve does.
func (f *preflightChecker) observeNodes(ctx context.Context) (string, error) {
	pipeline, err := newPipeline(f.cfg, f.version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	missing, err := pipeline.observeOnce(ctx, observationTimeout, func(string) {})
	if err = errors.Join(err, missing); err != nil {
		return "", err
	}
	published, omitted := pipeline.collector.summarizeNodes()
	switch {
	case published == 0:
		return "", fmt.Errorf("no node would be told; left out: %s; say why: slicefeed-inventory explain NODE", abbreviate(omitted))
	case len(omitted) > 0:
		return "", preflight.Warning("nodes that would be told: %d; left out, though they count: %s; say why: slicefeed-inventory explain NODE", published, abbreviate(omitted))
	}
	return fmt.Sprintf("nodes that would be told: %d", published), nil
}

// summarizeNodes is how many nodes are in the roster, and which of those that count are not, and why.
func (c *collector) summarizeNodes() (published int, omitted []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.intake.Roster.Omitted() {
		if o.Reason != roster.ControlPlane && o.Reason != roster.ExcludedByLabel && o.Reason != roster.NotSelected {
			omitted = append(omitted, fmt.Sprintf("%s (%s)", o.Name, strings.ToUpper(o.Reason.String())))
		}
	}
	return len(c.intake.Roster.Nodes()), omitted
}

// abbreviate lists a few of many.
func abbreviate(all []string) string {
	const maxNames = 3
	if len(all) == 0 {
		return "none"
	}
	text := strings.Join(all[:min(len(all), maxNames)], ", ")
	if len(all) > maxNames {
		text += fmt.Sprintf(" and %d more", len(all)-maxNames)
	}
	return text
}

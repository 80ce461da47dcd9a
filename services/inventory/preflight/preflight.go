// Package preflight checks before an installation what serve depends on, one line for each check. It
// guarantees that each failed check says what to fix. It changes nothing in the cluster or the cloud.
package preflight

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
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/kubeapi"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Names of checks that other checks depend on.
const (
	tokenCheckName  = "IONOS token"
	sourceCheckName = "source"
)

// Run runs all checks and prints a line for each.
func Run(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	c, err := newPreflightChecker(inv.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, c.checks())
}

// preflightChecker holds a configuration and the clients that check it.
type preflightChecker struct {
	cfg     *config.Config
	version string
	cluster *kubeapi.Client  // nil if the source is not a cluster
	host    string           // the cluster's API server
	clock   *preflight.Clock // of that API server
	cloud   cloudDescriber   // nil if addresses come from elsewhere
}

func newPreflightChecker(cfg *config.Config, version string) (*preflightChecker, error) {
	c := &preflightChecker{cfg: cfg, version: version, clock: &preflight.Clock{}}
	var problems []error
	if cfg.UsesCluster() {
		cluster, err := config.LoadCluster(cfg, version)
		if err == nil {
			c.host = cluster.Host
			cluster.Wrap(c.clock.Wrap)
			c.cluster, err = kubeapi.New(cluster)
		}
		problems = append(problems, err)
	}
	cloud, err := config.NewCloud(cfg, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c.cloud, _ = cloud.(cloudDescriber)
	return c, errors.Join(append(problems, err)...)
}

// checks returns the checks that the configuration needs, in the order in which to fix problems.
func (c *preflightChecker) checks() []preflight.Check {
	all := preflight.Identity{Files: c.cfg.TLSFiles(), Server: true}.Checks()
	all = append(all, preflight.Check{Name: "allowed clients", Run: func(context.Context) (string, error) {
		_, err := link.OpenClients(c.cfg.ClientsFile)
		return "valid", err
	}})
	required := []string{sourceCheckName} // checks that the first observation depends on
	if c.cluster != nil {
		all = append(all, c.clusterChecks()...)
	}
	// serve waits for a full verification as long as its pages take: on a large cluster that is more
	// than the default of 15 s.
	source := preflight.Check{Name: sourceCheckName, Timeout: collector.ObservationTimeout + preflight.DefaultTimeout, Run: c.readSource}
	if c.cluster != nil {
		source.DependsOn = []string{preflight.APIServer}
		for _, p := range requiredPermissions(c.cfg) {
			source.DependsOn = append(source.DependsOn, p.String())
		}
	}
	all = append(all, source)
	if c.cloud != nil {
		cloud := c.cloudChecks()
		all = append(all, cloud...)
		required = append(required, checkNames(cloud)...)
	}
	return append(all, preflight.Check{Name: "first observation", DependsOn: required, Timeout: collector.ObservationTimeout + preflight.DefaultTimeout, Run: c.observeNodes})
}

func checkNames(checks []preflight.Check) []string {
	var all []string
	for _, c := range checks {
		all = append(all, c.Name)
	}
	return all
}

// readSource reads the source once, completely, and counts its nodes.
func (c *preflightChecker) readSource(ctx context.Context) (string, error) {
	s, err := config.NewSource(c.cfg, c.version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	runErr := make(chan error, 1)
	go func() { runErr <- s.Run(ctx) }()
	_, err = s.Verify(ctx, source.FullVerification)
	update := s.Take()
	cancel()
	if err = errors.Join(err, <-runErr); err != nil {
		return "", fmt.Errorf("read source: %w", err)
	}
	return summarizeUpdate(update)
}

// summarizeUpdate counts the nodes that the source reports, and the eligible ones among them.
func summarizeUpdate(update source.Update) (string, error) {
	var workers, eligible, ready int
	var invalid []string
	for _, c := range update.Changed {
		if c.Excluded != source.ControlPlane {
			workers++
		}
		switch {
		case c.Invalid != "":
			invalid = append(invalid, fmt.Sprintf("%s (%s)", c.Name, c.Invalid))
		case c.Excluded == 0:
			eligible++
			if c.State == source.Ready {
				ready++
			}
		}
	}
	detail := fmt.Sprintf("nodes: %d, workers: %d, eligible: %d, eligible and ready: %d", len(update.Changed), workers, eligible, ready)
	switch {
	case eligible == 0:
		return "", fmt.Errorf("no eligible node (%s); nothing would be published; check NODE_SELECTOR and the source", detail)
	case len(invalid) > 0:
		return "", preflight.Warning("%s; %d have invalid data: %s; correct them in the source", detail, len(invalid), strings.Join(invalid, "; "))
	case update.PartialError != "":
		return "", preflight.Warning("%s; %s", detail, update.PartialError)
	case ready == 0:
		return "", preflight.Warning("%s; no node is ready; check the nodes", detail)
	}
	return detail, nil
}

// observeNodes makes a first complete observation, as serve does.
func (c *preflightChecker) observeNodes(ctx context.Context) (string, error) {
	pipeline, err := config.NewPipeline(c.cfg, c.version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	missing, err := pipeline.ObserveOnce(ctx, collector.ObservationTimeout, func(string) {})
	if err = errors.Join(err, missing); err != nil {
		return "", err
	}
	snapshot := pipeline.Snapshot()
	published := len(snapshot.Nodes)
	var omitted []string // the eligible ones
	for _, o := range snapshot.Omitted {
		if o.Reason != source.ControlPlane && o.Reason != source.ExcludedByLabel && o.Reason != source.NotSelected {
			omitted = append(omitted, fmt.Sprintf("%s (%s)", o.Name, strings.ToUpper(o.Reason.String())))
		}
	}
	switch {
	case published == 0:
		return "", fmt.Errorf("no node would be published; omitted: %s; run slicefeed-inventory explain NODE", abbreviate(omitted))
	case len(omitted) > 0:
		return "", preflight.Warning("published nodes: %d; omitted eligible nodes: %s; run slicefeed-inventory explain NODE", published, abbreviate(omitted))
	}
	return fmt.Sprintf("published nodes: %d", published), nil
}

// abbreviate lists the first of all and counts the others.
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

// Package preflight checks before an installation what serve depends on, one line for each check. It
// guarantees that each failed check says what to fix. It changes nothing in the cluster or the cloud.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/exports"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/kubenodes"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Names of checks that other checks depend on.
const (
	tokenCheckName  = "IONOS token"
	sourceCheckName = "source"
)

// Run runs all checks and prints a line for each, or a preflight.Report.
func Run(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	c, err := newPreflightChecker(inv.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, inv.Format, c.checks())
}

// preflightChecker holds a configuration and the clients that check it.
type preflightChecker struct {
	cfg     *config.Config
	version string
	cluster *preflight.Cluster // nil if the source is not a cluster
	cloud   *ionos.Client      // nil if addresses come from elsewhere
}

func newPreflightChecker(cfg *config.Config, version string) (*preflightChecker, error) {
	c := &preflightChecker{cfg: cfg, version: version}
	var problems []error
	if cfg.UsesCluster() {
		cluster, err := config.LoadCluster(cfg, version)
		if err == nil {
			c.cluster, err = (&preflight.Cluster{Component: "the inventory", Setting: "SECURED_KUBECONFIG", Role: "deploy/slicefeed-inventory"}).Connect(
				cluster,
			)
		}
		problems = append(problems, err)
	}
	cloud, err := config.NewCloud(cfg, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c.cloud, _ = cloud.(*ionos.Client)
	return c, errors.Join(append(problems, err)...)
}

// checks returns the checks that the configuration needs, in the order in which to fix problems.
func (c *preflightChecker) checks() []preflight.Check {
	// serve waits for a full verification as long as its pages take: on a large cluster that is more
	// than the default of 15 s.
	const timeout = collector.ObservationTimeout + preflight.DefaultTimeout
	source := preflight.Check{Name: sourceCheckName, Timeout: timeout, Run: c.readSource}
	observation := preflight.Check{Name: "first observation", DependsOn: []string{sourceCheckName}, Timeout: timeout, Run: c.observeNodes}

	all := preflight.Identity{Files: c.cfg.TLSFiles(), Server: true}.Checks()
	all = append(all, preflight.Check{Name: "allowed clients", Run: func(context.Context) (string, error) { return c.checkClients() }})
	if c.cluster != nil {
		required := c.requiredPermissions()
		all = append(all, c.cluster.Checks(required, excessPermissions)...)
		source.DependsOn = []string{preflight.APIServer}
		for _, p := range required {
			source.DependsOn = append(source.DependsOn, p.String())
		}
	}
	if c.cfg.ExportsServices() {
		all = append(all, preflight.Check{Name: "exported Services", DependsOn: source.DependsOn, Run: c.checkExported})
		if c.cfg.SourceService == "" {
			return all // there is none to read
		}
	}
	all = append(all, source)
	if c.cloud != nil {
		for _, check := range c.cloudChecks() {
			all = append(all, check)
			observation.DependsOn = append(observation.DependsOn, check.Name)
		}
	}
	return append(all, observation)
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
		return "", preflight.Warning(
			"%s; %d have invalid data: %s; correct them in the source",
			detail,
			len(invalid),
			strings.Join(invalid, "; "),
		)
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
		return "", fmt.Errorf(
			"no node would be published; omitted: %s; run slicefeed-inventory explain NODE",
			cmp.Or(display.List(omitted), "none"),
		)
	case len(omitted) > 0:
		return "", preflight.Warning(
			"published nodes: %d; omitted eligible nodes: %s; run slicefeed-inventory explain NODE",
			published,
			display.List(omitted),
		)
	}
	return fmt.Sprintf("published nodes: %d", published), nil
}

// requiredPermissions returns the permissions that the inventory uses in the secured cluster.
func (c *preflightChecker) requiredPermissions() []preflight.Permission {
	cfg := c.cfg
	if cfg.SourceKind == "service" {
		s, _ := exports.ParseServiceRef(cfg.SourceService) // Validate reports its error
		if cfg.ExportsServices() {
			return c.exportPermissions()
		}
		in := []string{s.Namespace}
		return append([]preflight.Permission{{Verb: "get", Resource: "services", Namespaces: in, Name: s.Name}}, slicePermissions(in)...)
	}
	all := []preflight.Permission{{Verb: "list", Resource: "nodes"}, {Verb: "watch", Resource: "nodes"}}
	if w, err := kubenodes.ParseWorkload(cfg.Workload); err == nil {
		for _, verb := range []string{"list", "watch"} {
			all = append(all, preflight.Permission{Verb: verb, Resource: "pods", Namespaces: []string{w.Namespace}})
		}
	}
	return all
}

// slicePermissions returns the permissions to follow the slices of these namespaces.
func slicePermissions(namespaces []string) []preflight.Permission {
	return []preflight.Permission{
		{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices", Namespaces: namespaces},
		{Verb: "watch", Group: "discovery.k8s.io", Resource: "endpointslices", Namespaces: namespaces},
	}
}

// excessPermissions are permissions that the inventory never uses and that would help an attacker
// with its credential.
var excessPermissions = []preflight.Permission{
	{Verb: "patch", Resource: "nodes"},
	{Verb: "delete", Resource: "nodes"},
	{Verb: "list", Resource: "secrets"},
	{Verb: "create", Resource: "pods"},
}

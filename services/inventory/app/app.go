// Package app is the inventory put together: the stages are made from left to right, in
// the order of the flow, and run in one group.
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/admin"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Half is the inventory's command line.
func Half(version string) command.Component[Config] {
	return command.Component[Config]{
		Name:         "slicefeed-inventory",
		Short:        "Tells which workers of the secured cluster are where on the private network",
		Version:      version,
		ForbiddenEnv: []string{"TARGET_KUBECONFIG"},
		Build:        func(cfg *Config, log *slog.Logger) (command.Service, error) { return build(cfg, version, log) },
		Subcommands: []command.Subcommand[Config]{
			{Use: "explain NODE", Short: "Look once and say why a node would be told as it is, or left out", Run: func(ctx context.Context, call command.Invocation[Config]) error {
				return explain(ctx, version, call)
			}},
			{Use: "preflight", Short: "Check what serve depends on, one line each with what to do", Run: func(ctx context.Context, call command.Invocation[Config]) error {
				return check(ctx, version, call)
			}},
		},
		Standalone: []command.StandaloneCommand{statuspage.NewCommand("slicefeed-inventory", "NODE")},
	}
}

// inventory is the half, built and not yet running.
type inventory struct {
	*lookout

	cfg      *Config
	version  string
	log      *slog.Logger
	registry *prometheus.Registry
	link     *link.Server
	server   *nodeserver.Server
	health   *health.Server
}

// lookout is the part of it that looks at the outside and tells nobody.
type lookout struct {
	source    source
	cloud     cloud // nil: none is needed
	collector *collector
	stores    *feed.Stores
}

// build makes all stages. It reads files and asks nobody; its error names all that is wrong.
func build(cfg *Config, version string, log *slog.Logger) (*inventory, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		command.BuildInfo("inventory", version))

	look, errLook := newLookout(cfg, version, log, registry)
	end, errLink := link.NewServer(link.Config{
		Component: "inventory", Name: "feed", Files: cfg.files(), Logger: log, Registerer: registry,
	}, cfg.Clients)
	if err := errors.Join(errLook, errLink); err != nil {
		return nil, err
	}
	i := &inventory{lookout: look, cfg: cfg, version: version, log: log, registry: registry, link: end, health: health.NewServer()}
	i.server = nodeserver.New(nodeserver.Config{
		Stores: i.stores, Identify: identify, Omitted: i.collector.Omitted, Explain: i.collector.Explain,
		Observer: i.collector, OnDeltaSent: i.collector.metrics.sent, Health: i.health, Metrics: nodeserver.NewMetrics(registry, i.stores), Log: log,
	})
	return i, nil
}

// newLookout makes the stages up to the stores of the feed.
func newLookout(cfg *Config, version string, log *slog.Logger, registry prometheus.Registerer) (*lookout, error) {
	source, errSource := newSource(cfg, version, log, registry)
	cloud, errCloud := cloudClient(cfg, version, log, registry)
	if err := errors.Join(errSource, errCloud); err != nil {
		return nil, err
	}
	l := &lookout{source: source, cloud: cloud, stores: feed.NewStores(rand.Text())}
	l.collector = newCollector(source, cloud, rosterConfig(cfg), l.stores, newMetrics(registry), log)
	return l, nil
}

// Run follows the source and collects until ctx is done.
func (l *lookout) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.source.Run(ctx) })
	g.Go(func() error { return l.collector.Run(ctx) })
	return g.Wait()
}

// Run serves until ctx is done.
func (i *inventory) Run(ctx context.Context) error {
	var listeners [3]net.Listener
	var problems []error
	for n, l := range []struct{ setting, address string }{
		{"LISTEN_ADDRESS", i.cfg.Listen}, {"ADMIN_ADDRESS", i.cfg.Admin}, {"DEBUG_ADDRESS", i.cfg.Debug},
	} {
		var err error
		listeners[n], err = admin.Listen(ctx, l.setting, l.address)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return settings.NewConfigError(err)
	}

	server := grpc.NewServer(i.link.Options()...)
	inventoryv1.RegisterInventoryServiceServer(server, i.server)
	grpc_health_v1.RegisterHealthServer(server, i.health)
	reflection.Register(server)
	doors := &admin.Server{
		Admin: listeners[1], Debug: listeners[2], Gatherer: i.registry, Status: i.statusz(), Logger: i.log,
		Ready: []admin.Check{{Name: "first-observation", Err: i.observed}},
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return i.lookout.Run(ctx) })
	g.Go(func() error { return i.server.Run(ctx) })
	g.Go(func() error { return i.link.Run(ctx) })
	g.Go(func() error {
		return i.link.Serve(ctx, link.ServeConfig{Server: server, Health: i.health, Listener: listeners[0], OnShutdown: i.server.Stop})
	})
	g.Go(func() error { return doors.Run(ctx) })
	return g.Wait()
}

// observed is the readiness: the first complete observation. What comes later may degrade
// the status, never the readiness: what is known is served on.
func (l *lookout) observed() error {
	status, _ := l.stores.Status()
	if status.Observation > 0 {
		return nil
	}
	return fmt.Errorf("no complete observation yet: membership is %s, addresses are %s",
		inWords(status.Membership), inWords(status.Addresses))
}

func inWords(p roster.Part) string {
	if p.Reason == "" {
		return p.Sync.String()
	}
	return fmt.Sprintf("%s (%s)", p.Sync, p.Reason)
}

// identify finds in a call what the link's list of clients grants.
func identify(ctx context.Context) (nodeserver.Client, bool) {
	grant, ok := link.GrantFrom(ctx)
	return nodeserver.Client{
		Name: string(grant.SAN), Operator: grant.Role == link.RoleOperator,
		View: feed.View{Selector: grant.View.NodeSelector, Labels: grant.View.Labels},
	}, ok
}

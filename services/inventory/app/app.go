// Package app assembles the inventory: it creates the stages in the order of the flow, from the
// source to the subscribers, and runs them in one errgroup. It guarantees that a command starts
// with a valid configuration or names every problem of it. It does not decide anything about nodes:
// package roster does.
package app

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/admin"
	"github.com/slicefeed/slicefeed/services/internal/clientlist"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/logging"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
)

// Component is the inventory's command line.
func Component(version string) command.Component[config.Config] {
	return command.Component[config.Config]{
		Name:         "slicefeed-inventory",
		Short:        "Publishes the worker nodes of the secured cluster and their private addresses",
		Version:      version,
		ForbiddenEnv: []string{"TARGET_KUBECONFIG"},
		LogSettings:  func(cfg *config.Config) logging.Settings { return cfg.Log },
		CheckFiles:   func(cfg *config.Config, checks settings.FileChecks) error { return cfg.CheckFiles(version, checks) },
		Build: func(cfg *config.Config, log *slog.Logger) (command.Service, error) {
			return buildInventory(cfg, version, log)
		},
		Subcommands: []command.Subcommand[config.Config]{
			{
				Use:     "explain NODE",
				Short:   "Explain why a node is published or omitted",
				Formats: true,
				Example: "slicefeed-inventory explain worker-2",
				Failure: "the node is omitted or unknown, or there was no complete observation",
				Run: func(ctx context.Context, inv command.Invocation[config.Config]) error {
					return runExplain(ctx, version, inv)
				},
			},
			{
				Use:     "list",
				Short:   "Print the nodes that would be published, as records that sources of kind file and command read",
				Formats: true,
				Example: "slicefeed-inventory list -o json",
				Failure: "there was no complete observation; nothing is printed",
				Run: func(ctx context.Context, inv command.Invocation[config.Config]) error {
					return runList(ctx, version, inv)
				},
			},
			{
				Use: "preflight", Short: "Check the dependencies of serve and how to fix them", Formats: true,
				Example: "slicefeed-inventory preflight\nslicefeed-inventory preflight -o json", Failure: "a check failed",
				Run: func(ctx context.Context, inv command.Invocation[config.Config]) error {
					return runPreflight(ctx, version, inv)
				},
			},
		},
		Standalone: []command.StandaloneCommand{statuspage.NewCommand("slicefeed-inventory", "NODE")},
	}
}

// inventory is the component, built and not yet running.
type inventory struct {
	published

	cfg      *config.Config
	version  string
	log      *slog.Logger
	registry *prometheus.Registry
	link     *link.Server
	server   *nodeserver.Server
}

// published is what the inventory publishes: the nodes of one source, or the endpoints of each exported Service.
type published struct {
	sets        nodeserver.Sets
	revisions   func() uint64 // number of changes so far
	runSources  func(ctx context.Context) error
	readiness   admin.Check
	newOverview func(subscribers func() []nodeserver.Subscriber) overviewPage
}

// buildInventory creates all stages. It reads files but sends no requests. Its error names every
// problem.
func buildInventory(cfg *config.Config, version string, log *slog.Logger) (*inventory, error) {
	registry, registerer := command.NewRegistry("inventory", version, cfg.ClusterName)
	publish := publishNodes
	if cfg.ExportsServices() {
		publish = publishServices
	}
	published, errPublished := publish(cfg, version, log, registerer)
	linkServer, errLink := link.NewServer(link.Config{
		Component: "inventory", Name: "feed", Files: cfg.TLSFiles(), Logger: log, Registerer: registerer,
		SubscriberServices: []string{inventoryv1.InventoryService_ServiceDesc.ServiceName}, ManyStreams: cfg.ExportsServices(),
	}, cfg.ClientsFile)
	if err := errors.Join(errPublished, errLink); err != nil {
		return nil, err
	}
	i := &inventory{published: published, cfg: cfg, version: version, log: log, registry: registry, link: linkServer}
	serverConfig := nodeserver.Config{
		Sets: i.sets, Identify: identifyClient, Health: i.link.Health, Metrics: nodeserver.NewMetrics(registerer, i.revisions), Log: log,
	}
	if cfg.ExportsServices() {
		serverConfig.MaxStreamsPerClient = maxExportStreams
	}
	i.server = nodeserver.New(serverConfig)
	return i, nil
}

// maxExportStreams is the number of streams that a client may have if there is one for each Service.
const maxExportStreams = 1024

// publishNodes creates the stages of an inventory that publishes the nodes of one source.
func publishNodes(cfg *config.Config, version string, log *slog.Logger, registerer prometheus.Registerer) (published, error) {
	pipeline, err := config.NewPipeline(cfg, version, log, registerer)
	if err != nil {
		return published{}, err
	}
	set := nodeserver.NewSet(nodeserver.SetConfig{
		Nodes:       pipeline.Set,
		Omitted:     pipeline.Omitted,
		Explain:     pipeline.Explain,
		OnDeltaSent: pipeline.RecordSent,
	})
	return published{
		sets: nodeserver.OnlySet(set), revisions: pipeline.Set.Revision, runSources: pipeline.Run,
		readiness: admin.Check{Name: "first-observation", Err: pipeline.CheckObserved},
		newOverview: func(subscribers func() []nodeserver.Subscriber) overviewPage {
			return newOverview(cfg, version, pipeline, subscribers).Page
		},
	}, nil
}

// publishServices creates the stages of an inventory that exports Services.
func publishServices(cfg *config.Config, version string, log *slog.Logger, registerer prometheus.Registerer) (published, error) {
	exported, err := config.NewExports(cfg, version, log, registerer)
	if err != nil {
		return published{}, err
	}
	return published{
		sets: exported, revisions: exported.TotalRevisions, runSources: exported.Run,
		readiness: admin.Check{Name: "secured-cluster", Err: exported.CheckReachable},
		newOverview: func(subscribers func() []nodeserver.Subscriber) overviewPage {
			return newExportsOverview(cfg, version, exported, subscribers).Page
		},
	}, nil
}

// Run serves until ctx is done.
func (i *inventory) Run(ctx context.Context) error {
	var listeners [3]net.Listener
	var problems []error
	for n, l := range []struct{ setting, address string }{
		{"LISTEN_ADDRESS", i.cfg.ListenAddress}, {"ADMIN_ADDRESS", i.cfg.AdminAddress}, {"DEBUG_ADDRESS", i.cfg.DebugAddress},
	} {
		var err error
		listeners[n], err = admin.Listen(ctx, l.setting, l.address)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return settings.NewConfigError(err)
	}

	adminServer := &admin.Server{
		Admin:    listeners[1],
		Debug:    listeners[2],
		Gatherer: i.registry,
		Status:   i.statusHandler(),
		Operator: i.server.RegisterLocalOperator,
		Logger:   i.log,
		Ready:    []admin.Check{i.readiness},
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return i.runSources(ctx) })
	g.Go(func() error { return i.link.Run(ctx) })
	g.Go(func() error { return i.link.Serve(ctx, listeners[0], i.server) })
	g.Go(func() error { return adminServer.Run(ctx) })
	return g.Wait()
}

// identifyClient returns what ALLOWED_CLIENTS_FILE grants to the client of a call.
func identifyClient(ctx context.Context) (nodeserver.Client, bool) {
	grant, ok := link.GrantFrom(ctx)
	return nodeserver.Client{
		Name: string(grant.SAN), Operator: grant.Role == clientlist.RoleOperator,
		AllowsService: grant.AllowsService,
	}, ok
}

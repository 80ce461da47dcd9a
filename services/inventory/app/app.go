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
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/services/internal/admin"
	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/exports"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	inventoryreport "github.com/slicefeed/slicefeed/services/inventory/report"
)

// Component is the inventory's command line.
func Component(version string) command.Component[config.Config] {
	return command.Component[config.Config]{
		Name:         "slicefeed-inventory",
		Short:        "Publishes the worker nodes of the secured cluster and their private addresses",
		Version:      version,
		ForbiddenEnv: []string{"TARGET_KUBECONFIG"},
		LogSettings:  func(cfg *config.Config) command.LogSettings { return cfg.Log },
		CheckFiles:   func(cfg *config.Config, checks settings.FileChecks) error { return cfg.CheckFiles(version, checks) },
		Build: func(cfg *config.Config, log *slog.Logger) (command.Service, error) {
			return buildInventory(cfg, version, log)
		},
		Subcommands: []command.Subcommand[config.Config]{
			{
				Use:     "list",
				Short:   "Print the nodes that would be published, as records that sources of kind file and command read",
				Example: "slicefeed-inventory list -o json",
				Failure: "the nodes cannot be published; nothing is printed",
				Run:     runList,
			},
			{
				Use: "preflight", Short: "Check the dependencies of serve and how to fix them",
				Example: "slicefeed-inventory preflight\nslicefeed-inventory preflight -o json", Failure: "a check failed",
				Run: runPreflight,
			},
		},
		Standalone: []command.StandaloneCommand{report.NewCommand("slicefeed-inventory"), cluster.NewPluginCommand},
	}
}

// inventory is the component, built and not yet running.
type inventory struct {
	published

	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	link     *link.Server
	server   services
}

// services are the gRPC services of the inventory.
type services struct {
	*feed.Server

	report *inventoryreport.Builder
}

// Register registers all services.
func (s services) Register(to grpc.ServiceRegistrar) {
	s.Server.Register(to)
	s.registerReport(to)
}

func (s services) registerReport(to grpc.ServiceRegistrar) {
	inventoryv1.RegisterInventoryReportServiceServer(to, s.report)
}

// published is what the inventory publishes: the nodes of one source, or the endpoints of each exported Service.
type published struct {
	sets       feed.Sets
	runSources func(ctx context.Context) error
	report     *inventoryreport.Builder
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
	i := &inventory{published: published, cfg: cfg, log: log, registry: registry, link: linkServer}
	serverConfig := feed.Config{
		Sets: i.sets, Identify: link.Identify, Health: i.link.Health, Registerer: registerer,
	}
	if cfg.ExportsServices() {
		serverConfig.MaxStreamsPerClient = maxExportStreams
	}
	i.server = services{feed.New(serverConfig), i.report}
	i.report.Version, i.report.Kind, i.report.Subscribers = version, cfg.SourceKind, i.server.Subscribers
	i.report.Instance, _ = os.Hostname() // empty: unknown
	return i, nil
}

// maxExportStreams is the number of streams that a client may have if there is one for each Service: as many as package
// link allows on all of its connections. With fewer, one replica of a writer could lock another one out.
const maxExportStreams = link.MaxConns * link.MaxStreamsPerConn

// publishNodes creates the stages of an inventory that publishes the nodes of one source.
func publishNodes(cfg *config.Config, version string, log *slog.Logger, registerer prometheus.Registerer) (published, error) {
	c, err := config.NewCollector(cfg, version, log, registerer)
	if err != nil {
		return published{}, err
	}
	c.Set.OnDeltaSent = c.RecordSent
	builder := &inventoryreport.Builder{Set: c}
	builder.Cloud, _ = c.Cloud().(inventoryreport.Cloud)
	return published{
		sets: c.Set, runSources: c.Run, report: builder,
	}, nil
}

// publishServices creates the stages of an inventory that exports Services.
func publishServices(cfg *config.Config, version string, log *slog.Logger, registerer prometheus.Registerer) (published, error) {
	exported, err := config.NewExports(cfg, version, log, registerer)
	if err != nil {
		return published{}, err
	}
	return published{
		sets: exported, runSources: exported.Run,
		report: &inventoryreport.Builder{Exports: exportedServices{exported}},
	}, nil
}

// exportedServices are the Services of a report.
type exportedServices struct{ *exports.Exports }

// Find implements report.Exports.
func (e exportedServices) Find(service string) (inventoryreport.Set, bool) {
	return e.Exports.Find(service)
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

	build := func(ctx context.Context, req *reportv1.GetReportRequest) (report.Report, error) {
		return i.report.GetReport(ctx, req)
	}
	adminServer := &admin.Server{
		Admin:    listeners[1],
		Debug:    listeners[2],
		Gatherer: i.registry,
		Status:   report.Handler(build, i.log),
		Operator: i.server.registerReport,
		Logger:   i.log,
		Ready:    []admin.Check{{Name: "can-serve", Err: i.report.CheckServing}},
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return i.runSources(ctx) })
	g.Go(func() error { return i.link.Run(ctx) })
	g.Go(func() error { return i.link.Serve(ctx, listeners[0], i.server) })
	g.Go(func() error { return adminServer.Run(ctx) })
	return g.Wait()
}

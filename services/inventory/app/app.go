// Package app assembles the inventory: it creates the stages in the order of the flow, from the
// source to the subscribers, and runs them in one errgroup. It guarantees that a command starts
// with a valid configuration or names every problem of it. It does not decide anything about nodes:
// package roster does.
package app

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/admin"
	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	inventoryreport "github.com/slicefeed/slicefeed/services/inventory/report"
)

// Component is the inventory's command line.
func Component(version string) command.Component[Config] {
	return command.Component[Config]{
		Name:         "slicefeed-inventory",
		Short:        "Publishes the worker nodes of the secured cluster and their private addresses",
		Version:      version,
		ForbiddenEnv: []string{"TARGET_KUBECONFIG"},
		LogSettings:  func(cfg *Config) command.LogSettings { return cfg.Log },
		CheckFiles:   func(cfg *Config, checks settings.FileChecks) error { return cfg.CheckFiles(version, checks) },
		Build: func(cfg *Config, log *slog.Logger) (command.Service, error) {
			return buildInventory(cfg, version, log)
		},
		Subcommands: []command.Subcommand[Config]{
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
	cfg        *Config
	log        *slog.Logger
	registry   *prometheus.Registry
	sets       feed.Sets // the nodes of one source, or the endpoints of each exported Service
	runSources func(ctx context.Context) error
	link       *link.Server
	feed       *feed.Server
	report     *inventoryreport.Builder
}

// buildInventory creates all stages. It reads files but sends no requests. Its error names every
// problem.
func buildInventory(cfg *Config, version string, log *slog.Logger) (*inventory, error) {
	registry, registerer := command.NewRegistry("inventory", version, cfg.ClusterName)
	i := &inventory{
		cfg: cfg, log: log, registry: registry, report: &inventoryreport.Builder{Version: version, Kind: cfg.SourceKind},
	}
	i.report.Instance, _ = os.Hostname() // empty: unknown
	publish, maxStreams := i.publishNodes, 0
	if cfg.ExportsServices() {
		publish, maxStreams = i.publishServices, maxExportStreams
	}
	errSets := publish(version, registerer)
	linkServer, errLink := link.NewServer(link.Config{
		Component: "inventory", Name: "feed", Files: cfg.TLSFiles(), Logger: log, Registerer: registerer,
		SubscriberServices: []string{inventoryv1.InventoryService_ServiceDesc.ServiceName}, ManyStreams: cfg.ExportsServices(),
	}, cfg.ClientsFile)
	if err := errors.Join(errSets, errLink); err != nil {
		return nil, err
	}
	i.link = linkServer
	i.feed = feed.New(feed.Config{
		Sets: i.sets, Identify: link.Identify, Health: i.link.Health, Registerer: registerer, Report: i.report,
		MaxStreamsPerClient: maxStreams,
	})
	i.report.Subscribers = i.feed.Subscribers
	return i, nil
}

// maxExportStreams is the number of streams that a client may have if there is one for each Service: as many as package
// link allows on all of its connections. With fewer, one replica of a writer could lock another one out.
const maxExportStreams = link.MaxConns * link.MaxStreamsPerConn

// publishNodes creates the stages of an inventory that publishes the nodes of one source.
func (i *inventory) publishNodes(version string, registerer prometheus.Registerer) error {
	c, err := newNodeCollector(i.cfg, version, i.log, registerer)
	if err != nil {
		return err
	}
	c.Set.OnDeltaSent = c.RecordSent
	i.sets, i.runSources, i.report.Set = c.Set, c.Run, c
	i.report.Cloud, _ = c.Cloud().(inventoryreport.Cloud)
	return nil
}

// publishServices creates the stages of an inventory that exports Services.
func (i *inventory) publishServices(version string, registerer prometheus.Registerer) error {
	exported, err := newExports(i.cfg, version, i.log, registerer)
	if err != nil {
		return err
	}
	i.sets, i.runSources, i.report.Exports = exported, exported.Run, exported
	i.report.Find = func(service string) (inventoryreport.Set, bool) { return exported.Find(service) }
	return nil
}

// Run serves until ctx is done.
func (i *inventory) Run(ctx context.Context) error {
	listeners, err := admin.Listen(
		ctx,
		admin.Address{Setting: "LISTEN_ADDRESS", Address: i.cfg.ListenAddress},
		admin.Address{Setting: "ADMIN_ADDRESS", Address: i.cfg.AdminAddress},
		admin.Address{Setting: "DEBUG_ADDRESS", Address: i.cfg.DebugAddress},
	)
	if err != nil {
		return settings.NewConfigError(err)
	}
	adminServer := &admin.Server{
		Admin:    listeners[1],
		Debug:    listeners[2],
		Gatherer: i.registry,
		Status:   report.Handler(i.report.GetReport, i.log),
		Operator: func(to grpc.ServiceRegistrar) { inventoryv1.RegisterInventoryReportServiceServer(to, i.report) },
		Logger:   i.log,
		Ready:    i.report.CheckServing,
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return i.runSources(ctx) })
	g.Go(func() error { return i.link.Serve(ctx, listeners[0], i.feed) })
	g.Go(func() error { return adminServer.Run(ctx) })
	return g.Wait()
}

// Package app assembles the writer. It constructs the stages in the order in which data passes
// through them, and runs them in one errgroup.
//
// It guarantees that the Lease is released after the last write has ended, so that the next
// leader never meets a write of this one. It has no logic of its own about nodes or Services:
// package reconciler runs the stages for each Service.
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/internal/admin"
	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/election"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	writerreport "github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Component is the writer's command line.
func Component(version string) command.Component[Config] {
	return command.Component[Config]{
		Name:         "slicefeed-writer",
		Short:        "Keeps EndpointSlices in sync with the healthy nodes of an inventory",
		Version:      version,
		ForbiddenEnv: []string{"IONOS_TOKEN", "IONOS_TOKEN_FILE", "IONOS_USERNAME", "IONOS_PASSWORD", "SECURED_KUBECONFIG"},
		LogSettings:  func(cfg *Config) command.LogSettings { return cfg.Log },
		CheckFiles:   func(cfg *Config, checks settings.FileChecks) error { return cfg.CheckFiles(version, checks) },
		Build: func(cfg *Config, log *slog.Logger) (command.Service, error) {
			return buildWriter(cfg, version, log)
		},
		Subcommands: []command.Subcommand[Config]{
			{
				Use:     "plan",
				Short:   "Show what would be written and why, without writing",
				Example: "slicefeed-writer plan\nslicefeed-writer plan -o yaml",
				Failure: "a Service is rejected, or the cluster or an inventory did not sync",
				Run:     runPlan,
			},
			{
				Use: "preflight", Short: "Check the dependencies of serve and how to fix them",
				Example: "slicefeed-writer preflight\nslicefeed-writer preflight -o json", Failure: "a check failed",
				Run: runPreflight,
			},
		},
		Standalone: []command.StandaloneCommand{report.NewCommand(report.Writer), cluster.NewPluginCommand},
	}
}

// writer holds the constructed stages; Run runs them.
type writer struct {
	cfg              *Config
	identity         string
	log              *slog.Logger
	registry         *prometheus.Registry
	registerer       prometheus.Registerer // in registry
	sources          []*source
	report           *writerreport.Builder
	targets          *targets.Watcher
	prober           *probe.Prober
	reconcilerConfig reconciler.Config
	lease            *election.Lease // nil in a dry run
	dryRun           *dryRun         // or nil
	link             *link.Server    // of the endpoint API; nil without LISTEN_ADDRESS
	endpoints        *endpoints.Server
}

// dryRunLease makes a dry run decide as a leader would. Nothing it decides is written.
type dryRunLease struct{ since time.Time }

func (l dryRunLease) LeadingSince() time.Time { return l.since }
func (dryRunLease) Changed() <-chan struct{}  { return nil }
func (dryRunLease) Release() func()           { return func() {} }

// buildWriter constructs all stages. It reads files and opens no connection; its error names
// every problem.
func buildWriter(cfg *Config, version string, log *slog.Logger) (*writer, error) {
	registry, registerer := command.NewRegistry("writer", version, cfg.ClusterName)
	clusterConfig, namespace, errCluster := cfg.LoadCluster(version)
	configured, errSources := cfg.LoadSources()
	openedSources, errLinks := openSources(cfg, configured, log, registerer)
	endpointStore := endpoints.NewStore(rand.Text())
	builder := &writerreport.Builder{Version: version, Store: endpointStore, Writes: &writerreport.Writes{}}
	registerer.MustRegister(writerreport.Metrics{Store: endpointStore})
	w := &writer{
		cfg:        cfg,
		identity:   election.NewIdentity(),
		log:        log,
		registry:   registry,
		registerer: registerer,
		sources:    openedSources,
		report:     builder,
		prober:     probe.NewProber(log, registerer),
	}
	if err := errors.Join(errCluster, errSources, errLinks, w.buildEndpointAPI(endpointStore)); err != nil {
		return nil, err
	}
	w.reconcilerConfig = reconciler.Config{
		Prober: w.prober, Zones: map[string]string{}, MaxEndpoints: cfg.MaxEndpoints,
		Limits:    verdict.Limits{MaxStaleness: cfg.MaxStaleness, EmptyThreshold: cfg.EmptyThreshold, ShrinkWindow: cfg.ShrinkWindow},
		Endpoints: endpointStore, Logger: log, Registerer: registerer,
	}
	for _, src := range openedSources {
		w.reconcilerConfig.Sources = append(w.reconcilerConfig.Sources, src.Source)
	}
	for _, zone := range cfg.ZoneMap {
		w.reconcilerConfig.Zones[zone.Secured] = zone.Consuming
	}
	if err := w.connectCluster(clusterConfig, namespace, configured); err != nil {
		return nil, err
	}
	w.completeReport()
	if cfg.ShrinkWindow == 0 {
		log.Warn("shrink guard is off: a source can remove all of its endpoints at the same time", "setting", "SHRINK_WINDOW=0")
	}
	return w, nil
}

// buildEndpointAPI creates the endpoint API, unless LISTEN_ADDRESS is not set.
func (w *writer) buildEndpointAPI(store *endpoints.Store) (err error) {
	if w.cfg.Listen == "" {
		return nil
	}
	w.link, err = link.NewServer(link.Config{
		Component: "writer", Name: "listener/endpoints", // which no source can have
		Files:              link.Files{Cert: w.cfg.ListenCert, Key: w.cfg.ListenKey, PeerCA: w.cfg.ClientCA},
		SubscriberServices: []string{writerv1.WriterService_ServiceDesc.ServiceName},
		Logger:             w.log, Registerer: w.registerer,
	}, w.cfg.Clients)
	if err != nil {
		return err
	}
	w.endpoints = endpoints.NewServer(endpoints.ServerConfig{
		Store: store, Identify: link.Identify, Health: w.link.Health, Registerer: w.registerer, Report: w.report,
	})
	return nil
}

// completeReport sets what the report is built from.
func (w *writer) completeReport() {
	b := w.report
	b.Instance, b.Leading, b.Synced, b.ImportsServed = w.identity, w.leading, w.targets.Synced, w.targets.ImportsServed
	b.Sources = func() (all []subscriber.Snapshot) {
		for _, src := range w.sources {
			all = append(all, src.feeds.Snapshots()...)
		}
		return all
	}
	if w.lease != nil {
		b.Holder = w.lease.Holder
	}
}

func (w *writer) leading() bool { return !w.reconcilerConfig.Lease.LeadingSince().IsZero() }

// connectCluster constructs the stages that use the consuming cluster.
func (w *writer) connectCluster(config *rest.Config, namespace string, configured []sources.Source) error {
	isDryRun := w.cfg.Store == "memory"
	cluster.Observe(config, "writer", w.registerer)
	config.Wrap(applier.LeaderOnly(func() bool { return !isDryRun && w.leading() }))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client of the consuming cluster: %w", err)
	}
	imports, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client for ServiceImports of the consuming cluster: %w", err)
	}
	targetsConfig, err := w.cfg.TargetsConfig(namespace, configured)
	if err != nil {
		return err
	}
	if w.targets, err = targets.New(client, imports, targetsConfig, w.log); err != nil {
		return err
	}
	w.reconcilerConfig.Targets = w.targets
	store, eventClient := applier.Kubernetes(client, targets.FieldManager), kubernetes.Interface(client)
	if isDryRun { // neither takes the Lease nor records Events
		w.dryRun = newDryRun(os.Stdout)
		w.reconcilerConfig.Lease, w.reconcilerConfig.DryRun, eventClient = dryRunLease{time.Now()}, w.dryRun.put, nil
	} else {
		w.lease, err = election.NewLease(election.Config{
			Client: client, Namespace: namespace, Name: "slicefeed-" + w.cfg.Class, Identity: w.identity,
			Logger: w.log, Registerer: w.registerer,
		})
		if err != nil {
			return err
		}
		w.reconcilerConfig.Lease = w.lease
	}
	var confirm func(context.Context) error
	if w.lease != nil {
		confirm = w.lease.Confirm
	}
	reporter := events.NewReporter(events.Config{Client: eventClient, Instance: w.identity, Logger: w.log})
	hooks := writerreport.NewHooks(w.registerer, reporter, w.report.Writes)
	w.reconcilerConfig.Reporter = reporter
	w.reconcilerConfig.Applier = func() *applier.Applier {
		return applier.New(applier.Config{
			Store: store, FieldManager: targets.FieldManager, Leading: w.leading, Confirm: confirm, Hooks: hooks, Logger: w.log,
		})
	}
	return nil
}

// Run runs all stages until ctx is done.
func (w *writer) Run(ctx context.Context) error {
	listeners, err := admin.Listen(
		ctx,
		admin.Address{Setting: "ADMIN_ADDRESS", Address: w.cfg.Admin},
		admin.Address{Setting: "DEBUG_ADDRESS", Address: w.cfg.Debug},
		admin.Address{Setting: "LISTEN_ADDRESS", Address: w.cfg.Listen},
	)
	if err != nil {
		return settings.NewConfigError(err)
	}
	adminServer := &admin.Server{
		Admin: listeners[0], Debug: listeners[1], Gatherer: w.registry, Status: report.Handler(w.report.GetReport, w.log), Logger: w.log,
		Operator: w.report.Register,
		Ready:    w.report.Ready,
	}

	g, ctx := errgroup.WithContext(ctx)
	// The Lease is released last: the next leader starts immediately, and must not meet a write
	// of this one that is still in progress.
	leaseCtx, stopLease := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLease()
	w.startInputs(ctx, g)
	if w.lease != nil {
		g.Go(func() error { return w.lease.Run(leaseCtx) })
	}
	if w.link != nil {
		g.Go(func() error { return w.link.Serve(ctx, listeners[2], w.endpoints) })
	}
	g.Go(func() error { return w.reconcilerConfig.Reporter.Run(ctx) })
	g.Go(func() error {
		defer stopLease()
		return reconciler.Run(ctx, w.reconcilerConfig)
	})
	g.Go(func() error { return adminServer.Run(ctx) })
	return g.Wait()
}

// startInputs runs the stages that only read.
func (w *writer) startInputs(ctx context.Context, g *errgroup.Group) {
	for _, src := range w.sources {
		g.Go(func() error { return src.Run(ctx) })
	}
	g.Go(func() error { return w.targets.Run(ctx) })
	g.Go(func() error { return w.prober.Run(ctx) })
}

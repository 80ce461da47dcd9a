// Package app is the writer put together: the stages are made from left to right, in the
// order of the flow, and run in one group.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/services/internal/admin"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Half is the writer's command line.
func Half(version string) command.Half[Config] {
	return command.Half[Config]{
		Name:      "slicefeed-writer",
		Short:     "Keeps EndpointSlices pointed at the healthy nodes that an inventory tells of",
		Version:   version,
		Forbidden: []string{"IONOS_TOKEN", "IONOS_TOKEN_FILE", "IONOS_USERNAME", "IONOS_PASSWORD", "SECURED_KUBECONFIG"},
		Build:     func(cfg *Config, log *slog.Logger) (command.Service, error) { return build(cfg, version, log) },
		Extra: []command.Extra[Config]{
			{Use: "plan", Short: "Decide once and say what would be written and why; write nothing", Run: func(ctx context.Context, call command.Call[Config]) error {
				return runPlan(ctx, version, call)
			}},
			{Use: "preflight", Short: "Check what serve depends on, one line each with what to do", Run: func(ctx context.Context, call command.Call[Config]) error {
				return runPreflight(ctx, version, call)
			}},
		},
	}
}

// writer is the half, built and not yet running.
type writer struct {
	cfg      *Config
	log      *slog.Logger
	registry *prometheus.Registry
	link     *link.Client
	conn     *grpc.ClientConn
	source   *subscriber.Subscriber
	targets  *targets.Targets
	prober   *prober.Prober
	lease    *applier.Lease // nil in a dry run
	reporter *applier.Reporter
	control  *control
}

// dryRun decides as a leader would. What it decides is never sent.
type dryRun struct{}

func (dryRun) Leading() bool            { return true }
func (dryRun) Changed() <-chan struct{} { return nil }
func (dryRun) Release()                 {}

// A standby takes over within 17 s of the leader's death: it notes a renewal at most one
// pause late, waits for the Lease to expire, and tries at most one pause later; client-go
// makes a pause up to 2.2 times as long. Its usual 15 s and 2 s add up to nearly 24 s.
const (
	leaseDuration = 12 * time.Second
	leaseRenew    = 8 * time.Second
	leaseRetry    = time.Second
)

// sourceName is what the one source is called, in slices' labels among other places.
const sourceName = "default"

// build makes all stages. It reads files and asks nobody; its error names all that is wrong.
func build(cfg *Config, version string, log *slog.Logger) (*writer, error) {
	w := &writer{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	w.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	cluster, namespace, errCluster := clusterConfig(cfg, version)
	var errLink error
	w.link, errLink = link.NewClient(link.Config{
		Half: "writer", Name: sourceName, Files: cfg.files(), Logger: log, Registerer: w.registry,
	}, cfg.InventorySAN)
	if err := errors.Join(errCluster, errLink); err != nil {
		return nil, err
	}
	dry := cfg.Store == "memory"
	leading := func() bool { return dry || w.lease.Leading() }
	cluster.Wrap(applier.Guard(func() bool { return !dry && leading() }))
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("client of the consuming cluster: %w", err)
	}

	w.conn, err = grpc.NewClient(cfg.Inventory, w.link.DialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("INVENTORY_ADDRESS=%q: want host:port: %w", cfg.Inventory, err)
	}
	w.source = subscriber.New(subscriber.Config{
		Source: sourceName, Conn: w.conn, Log: log, Metrics: subscriber.NewMetrics(w.registry),
		DoubtObservations: cfg.EmptyThreshold,
	})
	mode, err := prober.ParseMode(cfg.ProbeMode)
	if err != nil {
		return nil, err
	}
	spec := targets.Spec{
		Namespace: cfg.Namespace, Service: cfg.Service, ManagedBy: cfg.managedBy(), Writer: namespace,
		FirstName: cfg.sliceName(), Port: cfg.Port, Probing: mode != prober.Off, Allowed: cfg.allows,
	}
	w.targets, err = targets.New(targets.Config{Client: client, Target: spec, Logger: log})
	if err != nil {
		return nil, err
	}
	w.prober = prober.New(prober.Config{Log: log, Registerer: w.registry})
	identity := applier.Identity()
	store, events := applier.Kubernetes(client), kubernetes.Interface(client)
	var lead lease = dryRun{}
	if dry { // a rehearsal takes the Lease from nobody, and tells nobody
		store, events = applier.Memory(os.Stdout, store), nil
	} else {
		w.lease, err = applier.NewLease(applier.LeaseConfig{
			Client: client, Namespace: namespace, Name: "slicefeed-" + cfg.Class, Identity: identity,
			Duration: leaseDuration, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry,
			Logger: log, Registerer: w.registry,
		})
		if err != nil {
			return nil, err
		}
		lead = w.lease
	}
	if cfg.ShrinkWindow == 0 {
		log.Warn("the shrink guard is off: all endpoints of a source may leave at once on its word alone", "setting", "SHRINK_WINDOW=0")
	}
	w.reporter = applier.NewReporter(applier.ReporterConfig{Client: events, Instance: identity, Logger: log})
	w.control = &control{
		spec: spec, source: w.source, targets: w.targets, prober: w.prober, lease: lead, told: w.reporter,
		probe: prober.Spec{Mode: mode, Path: cfg.ProbePath, Interval: cfg.ProbeInterval, Timeout: cfg.ProbeTimeout},
		limits: verdict.Limits{
			MaxStaleness: cfg.MaxStaleness, EmptyThreshold: cfg.EmptyThreshold, ShrinkWindow: cfg.ShrinkWindow,
			ListOut: true, Probing: mode != prober.Off,
		},
		cidrs: settings.Prefixes(cfg.Subnets),
		applier: applier.New(applier.Config{
			Store: store, Leading: leading, Reporter: w.reporter, Logger: log, Metrics: applier.NewMetrics(w.registry),
		}),
		metrics: newMetrics(w.registry), log: log,
	}
	return w, nil
}

// Run writes until ctx is done.
func (w *writer) Run(ctx context.Context) error {
	defer w.conn.Close() //nolint:errcheck // all that it can say is that it is closed
	var listeners [2]net.Listener
	var problems []error
	for n, l := range []struct{ setting, address string }{{"ADMIN_ADDRESS", w.cfg.Admin}, {"DEBUG_ADDRESS", w.cfg.Debug}} {
		var err error
		listeners[n], err = admin.Listen(ctx, l.setting, l.address)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w:\n%w", settings.ErrConfiguration, err)
	}
	doors := &admin.Server{
		Admin: listeners[0], Debug: listeners[1], Gatherer: w.registry, Logger: w.log,
		Ready: []admin.Check{{Name: "consuming-cluster", OK: w.synced}},
	}

	g, ctx := errgroup.WithContext(ctx)
	// The Lease is given up last: the next leader may begin at once, and must not meet a
	// write of ours that is still under way.
	leaseCtx, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	g.Go(func() error { return w.link.Run(ctx) })
	g.Go(func() error { return w.source.Run(ctx) })
	g.Go(func() error { return w.targets.Run(ctx) })
	g.Go(func() error { return w.prober.Run(ctx) })
	if w.lease != nil {
		g.Go(func() error { return w.lease.Run(leaseCtx) })
	}
	g.Go(func() error { return w.reporter.Run(ctx) })
	g.Go(func() error {
		defer giveUp()
		return w.control.Run(ctx)
	})
	g.Go(func() error { return doors.Run(ctx) })
	return g.Wait()
}

// synced is the readiness: the consuming cluster was read once. The inventory does not
// count: what is served must not wait for a half that may be down for good.
func (w *writer) synced() error {
	if w.targets.Get().Synced {
		return nil
	}
	return errors.New("the Services and EndpointSlices of the consuming cluster have not been read yet")
}

// serviceAccountNamespace is where a Pod finds its own namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// clusterConfig returns how to reach the consuming cluster, and our own namespace there: the
// Pod's, or that of the kubeconfig's context.
func clusterConfig(cfg *Config, version string) (*rest.Config, string, error) {
	var cluster *rest.Config
	var namespace string
	var err error
	if cfg.Kubeconfig == "" {
		cluster, err = rest.InClusterConfig()
		if err == nil {
			var text []byte
			text, err = os.ReadFile(serviceAccountNamespace)
			namespace = strings.TrimSpace(string(text))
		}
	} else {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}, nil)
		cluster, err = loader.ClientConfig()
		if err == nil {
			namespace, _, err = loader.Namespace()
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("TARGET_KUBECONFIG=%q: want a kubeconfig, or a Pod with a ServiceAccount: %w", cfg.Kubeconfig, err)
	}
	cluster.UserAgent = "slicefeed-writer/" + version
	cluster.ContentType = "application/vnd.kubernetes.protobuf"
	cluster.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	cluster.QPS = -1 // the API server protects itself; a failover must not wait in line here
	return cluster, namespace, nil
}

package app

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os/exec"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/exports"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/kube"
	"github.com/slicefeed/slicefeed/services/inventory/kubeservice"
	"github.com/slicefeed/slicefeed/services/inventory/records"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// newSource creates the source that SOURCE_KIND names.
func newSource(cfg *Config, version string, log *slog.Logger, registry prometheus.Registerer) (roster.Source, error) {
	if !cfg.UsesCluster() {
		return newRecordsSource(cfg, log, registry)
	}
	client, err := newClient(cfg, version, registry)
	if err != nil {
		return nil, err
	}
	if cfg.SourceKind == "service" {
		service, _ := contract.ParseService(cfg.SourceService) // package settings accepts no other form
		return newServiceSource(cfg, client, service, log, kube.NewMetrics(registry)), nil
	}
	rules, err := newNodeRules(cfg)
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Config{Client: client, Rules: rules, Log: log, Registerer: registry}), nil
}

// newClient creates the client of the secured cluster.
func newClient(cfg *Config, version string, registry prometheus.Registerer) (kubernetes.Interface, error) {
	config, err := cfg.LoadCluster(version)
	if err != nil {
		return nil, err
	}
	cluster.Observe(config, "inventory", registry)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client of the secured cluster: %w", err)
	}
	return client, nil
}

// newServiceSource creates the source of one Service's endpoints.
func newServiceSource(
	cfg *Config,
	client kubernetes.Interface,
	service types.NamespacedName,
	log *slog.Logger,
	metrics *kube.Metrics,
) *kubeservice.Endpoints {
	var exported labels.Selector
	if cfg.ExportsServices() {
		exported, _ = parseExportSelector(cfg.ExportSelector) // Validate reports its error
	}
	return kubeservice.New(kubeservice.Config{
		Client: client, Service: service, Exported: exported, Log: log, Metrics: metrics,
	})
}

func newNodeRules(cfg *Config) (rules kube.Rules, err error) {
	if rules.Selector, err = labels.Parse(cfg.NodeSelector); err != nil {
		return rules, err
	}
	rules.DrainCordoned = cfg.Cordoned == "drain"
	if cfg.Workload != "" {
		if rules.Workload, err = kube.ParseWorkload(cfg.Workload); err != nil {
			return rules, err
		}
	}
	return rules, err
}

func newRecordsSource(cfg *Config, log *slog.Logger, registry prometheus.Registerer) (roster.Source, error) {
	var reader records.Reader
	var name string
	var err error
	switch cfg.SourceKind {
	case "file":
		reader, name = records.NewFileReader(cfg.RecordsFile), "the file "+cfg.RecordsFile
	case "command":
		args, errArgs := records.ParseArgs(cfg.CommandArgs)
		name = "the command " + cfg.Command
		if reader, err = records.NewCommandReader(append([]string{cfg.Command}, args...), log); err != nil {
			err = &settings.Problem{Setting: "INVENTORY_COMMAND", Value: cfg.Command, Expected: "a program that can be run: " + err.Error()}
		}
		err = errors.Join(err, errArgs)
	case "static":
		reader, name = records.Text(cfg.StaticRecords), "INVENTORY_STATIC"
	default:
		err = &settings.Problem{Setting: "SOURCE_KIND", Value: cfg.SourceKind, Expected: "a kind that newSource creates"}
	}
	if err != nil {
		return nil, err
	}
	return records.New(records.Config{Reader: reader, Name: name, Log: log, Registerer: registry}), nil
}

// maxVerifySpread is how much sooner than after a minute an exported Service is verified.
const maxVerifySpread = 15 * time.Second

// newRosterConfig returns how the roster resolves addresses, and how often it reads the source and the cloud.
func newRosterConfig(cfg *Config) roster.Config {
	c := roster.Config{
		CIDRs:           settings.ToPrefixes(cfg.Subnets),
		ExportLabels:    cfg.ExportLabels,
		ListInterval:    cfg.CloudPollInterval,
		ConfirmInterval: cfg.SourcePollInterval,
	}
	switch {
	case cfg.UsesCloud():
		c.Method = roster.ByCloud
	case cfg.SourceKind == "kubernetes":
		c.Method = roster.ByNodeAddress
	default:
		c.Method = roster.ByRecord
	}
	if !cfg.UsesCluster() {
		c.VerifyInterval = cfg.SourcePollInterval // a verification is the only read
	}
	if cfg.ExportsServices() { // they start together, and must not all verify in the same moment of each minute
		c.VerifyInterval = time.Minute - mathrand.N(maxVerifySpread)
	}
	return c
}

// LoadCluster returns how to connect to the API server of the secured cluster.
func (c *Config) LoadCluster(version string) (*rest.Config, error) {
	config, _, err := cluster.Load("slicefeed-inventory/"+version, "SECURED_KUBECONFIG", c.Kubeconfig, c.KubeContext)
	return config, err
}

// CheckFiles reads the files that the settings name, and reports all problems.
func (c *Config) CheckFiles(version string, checks settings.FileChecks) error {
	problems := []error{
		c.TLSFiles().
			Check(x509.ExtKeyUsageServerAuth, link.Files{Cert: "TLS_CERT_FILE", Key: "TLS_KEY_FILE", PeerCA: "TLS_PEER_CA_FILE"}, checks),
		settings.CheckFile("ALLOWED_CLIENTS_FILE", c.ClientsFile, parseError(link.ReadClients)),
		settings.CheckFile("INVENTORY_COMMAND", c.Command, parseError(exec.LookPath)),
		settings.CheckFile("IONOS_CA_FILE", c.CAFile, parseError(link.ReadCertificates)),
	}
	if checks.Strict {
		problems = append(problems, settings.CheckFile("IONOS_TOKEN_FILE", c.TokenFile, func(path string) error {
			_, err := ionos.TokenSource{File: path}.Read()
			return err
		}))
	}
	if checks.Cluster && c.UsesCluster() {
		_, err := c.LoadCluster(version)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// newCloud creates the client of the cloud. It returns nil if addresses come from elsewhere.
func newCloud(cfg *Config, version string, log *slog.Logger, registry prometheus.Registerer) (collector.Cloud, error) {
	if !cfg.UsesCloud() {
		return nil, nil
	}
	client, err := ionos.New(ionos.Config{
		APIURL:     cfg.APIURL,
		CAFile:     cfg.CAFile,
		TokenFile:  cfg.TokenFile,
		Token:      cfg.Token,
		Pairs:      cfg.LANPairs(),
		Budget:     cfg.RequestBudget,
		UserAgent:  "slicefeed-inventory/" + version,
		Log:        log,
		Registerer: registry,
	})
	if err != nil {
		return nil, err
	}
	return client, nil
}

// newNodeCollector creates the stages up to the set of the feed.
func newNodeCollector(cfg *Config, version string, log *slog.Logger, registry prometheus.Registerer) (*collector.Collector, error) {
	src, errSource := newSource(cfg, version, log, registry)
	cloud, errCloud := newCloud(cfg, version, log, registry)
	if err := errors.Join(errSource, errCloud); err != nil {
		return nil, err
	}
	return assembleCollector(cfg, collector.Config{
		Source: src, Cloud: cloud, Set: feed.NewSet("", rand.Text()), Log: log,
		Registerer: registry, Propagation: collector.NewPropagation(registry),
	}), nil
}

func assembleCollector(cfg *Config, stages collector.Config) *collector.Collector {
	stages.Roster, stages.Log = newRosterConfig(cfg), stages.Log.With("source", cfg.SourceKind)
	return collector.New(stages)
}

// newExports creates the stages of an inventory that exports Services.
func newExports(cfg *Config, version string, log *slog.Logger, registry prometheus.Registerer) (*exports.Exports, error) {
	if cfg.SourceService != "" {
		return nil, &settings.Problem{
			Setting:  "SOURCE_SERVICE",
			Value:    cfg.SourceService,
			Expected: "no value, because SOURCE_SERVICE_SELECTOR is also set",
		}
	}
	client, err := newClient(cfg, version, registry)
	if err != nil {
		return nil, err
	}
	selector, err := parseExportSelector(cfg.ExportSelector)
	if err != nil {
		return nil, err
	}
	// Not of each Service: they would be two thirds of its series.
	watches, propagation := kube.NewMetrics(registry), collector.NewPropagation(registry)
	return exports.New(exports.Config{
		NewCollector: func(service types.NamespacedName, set *feed.Set, registerer prometheus.Registerer) (*collector.Collector, func()) {
			log := log.With("service", service.String())
			src := newServiceSource(cfg, client, service, log, watches)
			return assembleCollector(cfg, collector.Config{
				Source: src, Set: set, Log: log, Registerer: registerer, Propagation: propagation,
			}), src.Recheck
		},
		NewCatalog: func(namespace string) exports.Catalog {
			return kubeservice.NewCatalog(kubeservice.Config{
				Client: client, Service: types.NamespacedName{Namespace: namespace}, Exported: selector, Log: log, Metrics: watches,
			})
		},
		Selector: selector,
		CheckReachable: func(ctx context.Context) error {
			_, err := client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
			return err
		},
		Registerer: registry, Log: log,
	}), nil
}

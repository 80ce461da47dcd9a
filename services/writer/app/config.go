package app

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Config holds all settings of the writer. It is the single source of its flags, environment
// names, defaults and documentation.
type Config struct {
	Inventory    string   `flag:"inventory-address" required:"!SOURCES_FILE" only:"!SOURCES_FILE" placeholder:"host:port"       group:"Source" help:"address of the only inventory, which is then the source named default"`
	InventorySAN link.SAN `flag:"inventory-san"     required:"!SOURCES_FILE" only:"!SOURCES_FILE" placeholder:"URI or DNS name" group:"Source" help:"SAN that the inventory's certificate must have, exactly; it replaces the verification of the host name"`
	SourcesFile  string   `flag:"sources-file"                                                    placeholder:"file"            group:"Source" help:"YAML with several sources, instead of INVENTORY_ADDRESS, INVENTORY_SAN and SECURED_SUBNET_CIDR; read at the start"`
	CertFile     string   `flag:"tls-cert-file"     required:"true"                               placeholder:"file"            group:"Source" help:"PEM certificate of the writer, with the EKU clientAuth; reloaded on change"`
	KeyFile      string   `flag:"tls-key-file"      required:"true"                               placeholder:"file"            group:"Source" help:"PEM private key of the certificate; reloaded on change"`
	PeerCA       string   `flag:"tls-peer-ca-file"  required:"!SOURCES_FILE"                      placeholder:"file"            group:"Source" help:"PEM of the CAs that sign the *inventory's* certificate; reloaded on change; required unless each source in SOURCES_FILE has its own"`

	Subnets      []settings.Subnet   `flag:"secured-subnet-cidr" env:"SECURED_SUBNET_PREFIX" required:"!SOURCES_FILE" only:"!SOURCES_FILE" placeholder:"CIDR"          group:"Allowlist" help:"CIDRs that the source's addresses must be in; an address outside them is never written or probed"`
	AllowedPorts []sources.PortRange `flag:"allowed-ports"                                                                                 placeholder:"port or range" group:"Allowlist" help:"ports that are written and probed, besides TARGET_PORT; a source in SOURCES_FILE can have its own" default:"30000-32767"`

	Kubeconfig string        `flag:"target-kubeconfig" placeholder:"file"              group:"Targets" help:"kubeconfig of the consuming cluster; in-cluster configuration when unset"`
	Class      string        `flag:"class"             placeholder:"short DNS label"   group:"Targets" help:"name of this installation: Services with the label slicefeed.dev/class=CLASS are its targets, and slicefeed-CLASS is its Lease"                      default:"default"`
	Watch      []string      `flag:"watch-namespaces"  placeholder:"namespace or *"    group:"Targets" help:"namespaces of those Services; * is all of them, which needs a ClusterRole; the writer's own namespace and TARGET_NAMESPACE when unset"`
	Imports    bool          `flag:"service-imports"                                   group:"Targets" help:"ServiceImports (multicluster.x-k8s.io) with that label are targets too; needs their CustomResourceDefinition, and permission to list and watch them" default:"false"`
	ZoneMap    []ZoneMapping `flag:"zone-map"          placeholder:"secured=consuming" group:"Targets" help:"names in the consuming cluster of the secured cluster's zones; endpoints in other zones get none, as all do when unset"`

	Namespace string `flag:"target-namespace"          required:"TARGET_SERVICE_NAME" placeholder:"DNS label"   group:"Named target" help:"namespace of the Service"`
	Service   string `flag:"target-service-name"       required:"TARGET_NAMESPACE"    placeholder:"DNS label"   group:"Named target" help:"Service without a selector to manage, even without a label"`
	SliceName string `flag:"target-endpointslice-name"                                placeholder:"DNS name"    group:"Named target" help:"name of its first EndpointSlice, which is taken over if it exists; the Service's name and -slicefeed when unset" only:"TARGET_SERVICE_NAME"`
	ManagedBy string `flag:"target-managed-by"                                        placeholder:"label value" group:"Named target" help:"label endpointslice.kubernetes.io/managed-by of its slices; slicefeed-CLASS when unset, as for other targets"    only:"TARGET_SERVICE_NAME"`
	Port      uint16 `flag:"target-port"                                              placeholder:"port"        group:"Named target" help:"port number written for the Service's only port; its targetPort when unset, as with several ports"               only:"TARGET_SERVICE_NAME"`

	ProbeMode     string        `flag:"health-check-mode"     default:"tcp" enum:"off,tcp,http,https,grpc" group:"Probes" help:"how the writer probes each endpoint"`
	ProbePath     string        `flag:"health-check-path"     default:"/"                                  group:"Probes" help:"path that http and https request; 200 to 399 pass, redirects are not followed, certificates are not verified" placeholder:"path"`
	ProbeInterval time.Duration `flag:"health-check-interval" default:"2s"                                 group:"Probes" help:"how often each endpoint is probed"                                                                                               min:"200ms" max:"5m"`
	ProbeTimeout  time.Duration `flag:"health-check-timeout"  default:"1s"                                 group:"Probes" help:"how long a probe waits for a response; it can be longer than the interval"                                                       min:"50ms"  max:"1m"`

	EmptyThreshold int           `flag:"empty-result-threshold" default:"3"     min:"1"  max:"10"     group:"Guards" help:"consecutive complete observations that confirm an empty source"`
	ShrinkWindow   time.Duration `flag:"shrink-window"          default:"60s"   min:"0s" max:"1h"     group:"Guards" help:"period in which at most half of a source's ready endpoints are drained or removed on its report alone, and none in a new leader's first; 0 turns this guard off"`
	MaxEndpoints   int           `flag:"max-endpoints"          default:"10000" min:"1"  max:"100000" group:"Guards" help:"endpoints that one source may report for one Service; a report with more of them is not used, and nothing changes"`
	MaxStaleness   time.Duration `flag:"max-staleness"          default:"15m"   min:"1s" max:"24h"    group:"Guards" help:"maximum age of a source's last synced membership while the source is trusted"`

	Listen     string `flag:"listen-address"       placeholder:"[host]:port" group:"Endpoint API" help:"where slicefeed.writer.v1 is served (gRPC over mutual TLS); not served when unset"`
	ListenCert string `flag:"listen-cert-file"     placeholder:"file"        group:"Endpoint API" help:"PEM certificate of the listener, with the EKU serverAuth; reloaded on change"      required:"LISTEN_ADDRESS" only:"LISTEN_ADDRESS"`
	ListenKey  string `flag:"listen-key-file"      placeholder:"file"        group:"Endpoint API" help:"PEM private key of that certificate; reloaded on change"                           required:"LISTEN_ADDRESS" only:"LISTEN_ADDRESS"`
	ClientCA   string `flag:"client-ca-file"       placeholder:"file"        group:"Endpoint API" help:"PEM of the CAs that sign the *clients'* certificates; reloaded on change"          required:"LISTEN_ADDRESS" only:"LISTEN_ADDRESS"`
	Clients    string `flag:"allowed-clients-file" placeholder:"file"        group:"Endpoint API" help:"YAML list of allowed clients, each with SAN and role; reloaded on change"          required:"LISTEN_ADDRESS" only:"LISTEN_ADDRESS"`

	Store string `flag:"store-kind"    default:"kubernetes"     enum:"kubernetes,kubectl,memory" group:"Running" help:"kubernetes writes (kubectl is its old name); memory prints what it would write: a dry run"`
	Admin string `flag:"admin-address" default:":8080"                                           group:"Running" help:"/metrics, /livez and /readyz"                                                              placeholder:"[host]:port"`
	Debug string `flag:"debug-address" default:"127.0.0.1:6060"                                  group:"Running" help:"/statusz, /debug/pprof, gRPC channelz and the operator service; keep it on loopback"       placeholder:"address:port"`

	ClusterName string `flag:"cluster-name" placeholder:"name" group:"Metrics" help:"label cluster of every metric; none when unset"`

	Log command.LogSettings `group:"Log"`
}

// ZoneMapping maps a zone of the secured cluster to its name in the consuming cluster.
type ZoneMapping struct{ Secured, Consuming string }

// UnmarshalText parses "secured=consuming".
func (z *ZoneMapping) UnmarshalText(text []byte) error {
	secured, consuming, hasBoth := strings.Cut(string(text), "=")
	if !hasBoth || secured == "" || consuming == "" || len(validation.IsValidLabelValue(consuming)) > 0 {
		return errors.New(settings.Forms["secured=consuming"].Want)
	}
	*z = ZoneMapping{secured, consuming}
	return nil
}

// Validate reports every problem that involves more than one setting or needs parsing.
func (c *Config) Validate() (problems []*settings.Problem) {
	if slices.Contains(c.Watch, preflight.AllNamespaces) && len(c.Watch) > 1 {
		problems = append(problems, &settings.Problem{
			Setting: "WATCH_NAMESPACES", Value: strings.Join(c.Watch, ","), Expected: "* alone, which means all namespaces",
		})
	}
	if c.Class == targets.ClassNone {
		problems = append(problems, &settings.Problem{
			Setting: "CLASS", Value: c.Class, Expected: "another name: a Service with this label opts out",
		})
	}
	if strings.HasSuffix(c.ManagedBy, ".k8s.io") {
		problems = append(problems, &settings.Problem{
			Setting: "TARGET_MANAGED_BY", Value: c.ManagedBy,
			Expected: "a value that does not end in .k8s.io, which is reserved for the controllers of Kubernetes",
		})
	}
	return problems
}

// watchedNamespaces returns the namespaces whose labeled Services are targets, sorted, or only preflight.AllNamespaces.
func (c *Config) watchedNamespaces(own string) []string {
	all := slices.Clone(c.Watch)
	if len(all) == 0 {
		all = []string{own}
	}
	if slices.Contains(all, preflight.AllNamespaces) {
		return []string{preflight.AllNamespaces}
	}
	if c.Namespace != "" {
		all = append(all, c.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TLSFiles are the files of the writer's end of the links to all inventories. A source may have other CAs.
func (c *Config) TLSFiles() link.Files {
	return link.Files{Cert: c.CertFile, Key: c.KeyFile, PeerCA: c.PeerCA}
}

// LoadSources returns the configured sources, sorted by name.
func (c *Config) LoadSources() ([]sources.Source, error) {
	defaults := sources.Source{
		Name: targets.DefaultSource, Address: c.Inventory, SAN: c.InventorySAN, CAFile: c.PeerCA,
		CIDRs: c.Subnets, Ports: c.AllowedPorts,
	}
	if c.SourcesFile == "" {
		return []sources.Source{defaults}, nil
	}
	return sources.Read(c.SourcesFile, defaults)
}

// CheckFiles reads the files that the settings name, and reports all problems.
func (c *Config) CheckFiles(version string, checks settings.FileChecks) error {
	listener := link.Files{Cert: c.ListenCert, Key: c.ListenKey, PeerCA: c.ClientCA}
	problems := []error{
		c.TLSFiles().
			Check(x509.ExtKeyUsageClientAuth, link.Files{Cert: "TLS_CERT_FILE", Key: "TLS_KEY_FILE", PeerCA: "TLS_PEER_CA_FILE"}, checks),
		listener.Check(
			x509.ExtKeyUsageServerAuth,
			link.Files{Cert: "LISTEN_CERT_FILE", Key: "LISTEN_KEY_FILE", PeerCA: "CLIENT_CA_FILE"},
			checks,
		),
		settings.CheckFile("ALLOWED_CLIENTS_FILE", c.Clients, func(path string) error {
			_, err := link.ReadClients(path)
			return err
		}),
	}
	if c.SourcesFile != "" {
		configured, err := c.LoadSources()
		problems = append(problems, err)
		for _, s := range configured {
			if s.CAFile != c.PeerCA {
				problems = append(
					problems,
					link.Files{PeerCA: s.CAFile}.Check(0, link.Files{PeerCA: "SOURCES_FILE: caFile of " + s.Name}, checks),
				)
			}
		}
	}
	if checks.Cluster {
		_, _, err := c.LoadCluster(version)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// TargetsConfig returns which Services are targets, and their default settings.
func (c *Config) TargetsConfig(namespace string, configured []sources.Source) (targets.Config, error) {
	mode, err := probe.ParseMode(c.ProbeMode)
	if err != nil {
		return targets.Config{}, err
	}
	config := targets.Config{
		Class: c.Class, Writer: namespace, Namespaces: c.watchedNamespaces(namespace), ServiceImports: c.Imports, Sources: configured,
		Defaults: targets.Settings{
			Probe:       probe.Spec{Mode: mode, Path: c.ProbePath, Interval: c.ProbeInterval, Timeout: c.ProbeTimeout},
			ListUnready: true,
		},
	}
	config.NamedTarget = targets.Target{
		Key: targets.Key{Namespace: c.Namespace, Name: c.Service}, ManagedBy: c.ManagedBy, FirstName: c.SliceName, FixedPort: c.Port,
	}
	return config, nil
}

// LoadCluster returns how to reach the consuming cluster, and the writer's own namespace.
func (c *Config) LoadCluster(version string) (*rest.Config, string, error) {
	return cluster.Load("slicefeed-writer/"+version, "TARGET_KUBECONFIG", c.Kubeconfig, "")
}

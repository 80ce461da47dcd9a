package app

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/kube"
	"github.com/slicefeed/slicefeed/services/inventory/records"
)

// Config holds all settings of the inventory. It is the single source of its flags, environment
// names, defaults and documentation.
type Config struct {
	SourceKind         string        `flag:"source-kind"             default:"kubernetes" enum:"kubernetes,service,file,command,static" group:"Source" help:"where the nodes come from: the workers of a cluster (kubernetes), the endpoints of a Service (service), or JSON records from a file, a command or INVENTORY_STATIC (file, command, static)"`
	Kubeconfig         string        `flag:"secured-kubeconfig"                                                                         group:"Source" help:"kubeconfig of the secured cluster (kubernetes, service); in-cluster configuration when unset"                                                                                                  placeholder:"file"`
	KubeContext        string        `flag:"secured-kubectl-context"                                                                    group:"Source" help:"context of the kubeconfig; its current context when unset"                                                                                                                                     placeholder:"name"`
	NodeSelector       string        `flag:"node-selector"                                                                              group:"Source" help:"label selector of the workers to publish (kubernetes); all when unset"                                                                                                                         placeholder:"label selector"                                   only:"SOURCE_KIND=kubernetes"`
	ExportLabels       []string      `flag:"export-labels"                                                                              group:"Source" help:"keys of the node labels that are published (kubernetes), to every client: Services select by them with the annotation node-selector; none when unset"                                          placeholder:"label key"                                        only:"SOURCE_KIND=kubernetes"`
	Cordoned           string        `flag:"cordoned"                default:"keep"       enum:"keep,drain"                             group:"Source" help:"what a cordon does (kubernetes): keep leaves the node state unchanged, drain makes it DRAINING"`
	Workload           string        `flag:"workload"                                                                                   group:"Source" help:"Pods that a node needs (kubernetes), by their labels or by their Deployment, StatefulSet or DaemonSet: it is READY only while one of them is ready on it, and DRAINING once the last has left" placeholder:"namespace/label selector, or namespace/kind/name" only:"SOURCE_KIND=kubernetes"`
	SourceService      string        `flag:"source-service"                                                                             group:"Source" help:"Service whose endpoints are published (service); with SOURCE_SERVICE_SELECTOR, the one that the command list reads"                                                                            placeholder:"namespace/name"                                   only:"SOURCE_KIND=service"    required:"SOURCE_KIND=service,!SOURCE_SERVICE_SELECTOR"`
	ExportSelector     string        `flag:"source-service-selector"                                                                    group:"Source" help:"label selector of the Services that are exported, each as a set of its own that clients request by name (service); instead of SOURCE_SERVICE"                                                  placeholder:"label selector"                                   only:"SOURCE_KIND=service"`
	RecordsFile        string        `flag:"inventory-file-path"                                                                        group:"Source" help:"file with the JSON records of the nodes; reloaded on change (file)"                                                                                                                            placeholder:"file"                                             only:"SOURCE_KIND=file"       required:"SOURCE_KIND=file"`
	Command            string        `flag:"inventory-command"                                                                          group:"Source" help:"program that prints the JSON records; run without a shell (command)"                                                                                                                           placeholder:"program"                                          only:"SOURCE_KIND=command"    required:"SOURCE_KIND=command"`
	CommandArgs        string        `flag:"inventory-command-args"                                                                     group:"Source" help:"arguments of the program, separated by white space or as a JSON array of strings (command)"                                                                                                    placeholder:"arguments"                                        only:"SOURCE_KIND=command"`
	StaticRecords      string        `flag:"inventory-static"                                                                           group:"Source" help:"JSON records of the nodes (static)"                                                                                                                                                            placeholder:"JSON"                                             only:"SOURCE_KIND=static"     required:"SOURCE_KIND=static"`
	SourcePollInterval time.Duration `flag:"source-poll-interval"    default:"5s"                                                       group:"Source" help:"how often file and command are read; for every kind, also the minimum time between two observations that confirm an anomaly, which is at least 5s"                                                                                                                                                                                                  min:"1s" max:"1m"`

	Resolver string            `flag:"resolver"            default:"ionos" enum:"ionos,node-address" group:"Address resolution" help:"where a worker's private address comes from (kubernetes): the NICs of its IONOS server, or the InternalIP of the Node; other kinds report addresses themselves"`
	Subnets  []settings.Subnet `flag:"secured-subnet-cidr"                                           group:"Address resolution" help:"CIDRs of the private network; addresses outside them are ignored"                                                                                               env:"SECURED_SUBNET_PREFIX" required:"true" unset:"the CIDRs of the private network, such as 10.0.0.0/24, which inventory scripts assumed as 10.0.0. if nothing was set" placeholder:"CIDR"`

	Token             string        `flag:"ionos-token"          secret:"true" group:"IONOS API (resolver ionos)" help:"API token; read access is enough. Prefer IONOS_TOKEN_FILE"`
	TokenFile         string        `flag:"ionos-token-file"                   group:"IONOS API (resolver ionos)" help:"file with the API token; read for each request, so that rotation needs no restart"    required:"SOURCE_KIND=kubernetes,RESOLVER=ionos,!IONOS_TOKEN" only:"!IONOS_TOKEN" placeholder:"file"`
	Datacenters       []string      `flag:"ionos-datacenter-id"                group:"IONOS API (resolver ionos)" help:"datacenter of the workers; several need as many LANs, in the same order"              required:"SOURCE_KIND=kubernetes,RESOLVER=ionos"                                  placeholder:"UUID"`
	LANs              []string      `flag:"ionos-private-lan-id"               group:"IONOS API (resolver ionos)" help:"private LAN of the workers in that datacenter"                                        required:"SOURCE_KIND=kubernetes,RESOLVER=ionos"                                  placeholder:"LAN number"`
	APIURL            string        `flag:"ionos-api-url"                      group:"IONOS API (resolver ionos)" help:"URL of the IONOS API"                                                                                                                                                   placeholder:"URL"        default:"https://api.ionos.com"`
	CAFile            string        `flag:"ionos-ca-file"                      group:"IONOS API (resolver ionos)" help:"PEM of the CA that verifies the IONOS API's certificate; the system's CAs when unset"                                                                                   placeholder:"file"`
	CloudPollInterval time.Duration `flag:"ionos-poll-interval"                group:"IONOS API (resolver ionos)" help:"how often the cloud is listed while every node has an address"                                                                                                                                   default:"60s"                   min:"1s" max:"10m"`

	RequestBudget int `flag:"ionos-request-budget" default:"120" min:"2" max:"6000" placeholder:"number" group:"IONOS API (resolver ionos)" help:"maximum number of requests to the IONOS API in any minute, for any purpose; beyond it a listing takes longer but does not fail"`

	ListenAddress string `flag:"listen-address" default:":9443"          placeholder:"[host]:port"  group:"Listeners" help:"where subscribers connect (gRPC over mutual TLS)"`
	AdminAddress  string `flag:"admin-address"  default:":8080"          placeholder:"[host]:port"  group:"Listeners" help:"/metrics, /livez and /readyz"`
	DebugAddress  string `flag:"debug-address"  default:"127.0.0.1:6060" placeholder:"address:port" group:"Listeners" help:"/statusz, /debug/pprof, gRPC channelz and the operator service; keep it on loopback"`

	CertFile    string `flag:"tls-cert-file"        required:"true" placeholder:"file" group:"Link" help:"PEM certificate of the inventory, with a DNS SAN and the EKU serverAuth; reloaded on change"`
	KeyFile     string `flag:"tls-key-file"         required:"true" placeholder:"file" group:"Link" help:"PEM private key of the certificate; reloaded on change"`
	PeerCAFile  string `flag:"tls-peer-ca-file"     required:"true" placeholder:"file" group:"Link" help:"PEM of the CAs that sign the *subscribers'* certificates; reloaded on change"`
	ClientsFile string `flag:"allowed-clients-file" required:"true" placeholder:"file" group:"Link" help:"YAML list of allowed clients, each with SAN, role and the exported Services that it may read; reloaded on change"`

	ClusterName string `flag:"cluster-name" placeholder:"name" group:"Metrics" help:"label cluster of every metric; none when unset"`

	Log command.LogSettings `group:"Log"`
}

// Validate reports every problem that involves more than one setting or needs parsing.
func (c *Config) Validate() (problems []*settings.Problem) {
	for _, s := range []struct {
		setting, value, want string

		parse func(string) error
	}{
		{"NODE_SELECTOR", c.NodeSelector, "a label selector such as pool=blue", parseError(parseSelector)},
		{"WORKLOAD", c.Workload, settings.Forms["namespace/label selector, or namespace/kind/name"].Want, parseError(kube.ParseWorkload)},
		{"SOURCE_SERVICE_SELECTOR", c.ExportSelector, "a label selector that not every Service matches, such as slicefeed.dev/export=true", parseError(parseExportSelector)},
		{"INVENTORY_COMMAND_ARGS", c.CommandArgs, "arguments separated by white space, or a JSON array of strings", parseError(records.ParseArgs)},
		{"INVENTORY_STATIC", c.StaticRecords, "the records as JSON", records.Check},
	} {
		if s.value == "" {
			continue
		}
		if err := s.parse(s.value); err != nil {
			problems = append(problems, &settings.Problem{Setting: s.setting, Value: s.value, Expected: s.want + ": " + err.Error()})
		}
	}
	if n := len(c.ExportLabels); n > contract.MaxLabels {
		problems = append(problems, &settings.Problem{
			Setting: "EXPORT_LABELS", Value: fmt.Sprintf("%d keys", n), Expected: fmt.Sprintf("at most %d keys", contract.MaxLabels),
		})
	}
	if c.UsesCloud() && len(c.Datacenters) != len(c.LANs) && len(c.Datacenters) > 0 && len(c.LANs) > 0 {
		problems = append(problems, &settings.Problem{
			Setting:  "IONOS_PRIVATE_LAN_ID",
			Value:    strings.Join(c.LANs, ","),
			Expected: "as many LANs as IONOS_DATACENTER_ID has datacenters, in the same order",
		})
	}
	return problems
}

// parseError turns a parser into a check that returns only its error.
func parseError[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

func parseSelector(text string) (labels.Selector, error) { return labels.Parse(text) }

// parseExportSelector reads a label selector. It rejects one that selects every
// Service: the owner of a Service decides whether it is exported.
func parseExportSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err == nil && selector.Empty() {
		err = errors.New("selects every Service")
	}
	return selector, err
}

// ExportsServices reports whether the inventory publishes a set for each Service that it exports, rather than one set.
func (c *Config) ExportsServices() bool { return c.ExportSelector != "" }

// UsesCluster reports whether the source is a Kubernetes cluster.
func (c *Config) UsesCluster() bool { return c.SourceKind == "kubernetes" || c.SourceKind == "service" }

// UsesCloud reports whether addresses come from the cloud.
func (c *Config) UsesCloud() bool { return c.SourceKind == "kubernetes" && c.Resolver == "ionos" }

// LANPairs returns the pairs of datacenter and LAN.
func (c *Config) LANPairs() []ionos.Pair {
	pairs := make([]ionos.Pair, len(c.LANs))
	for i := range pairs {
		pairs[i] = ionos.Pair{Datacenter: c.Datacenters[i], LAN: c.LANs[i]}
	}
	return pairs
}

// TLSFiles returns the files of the link.
func (c *Config) TLSFiles() link.Files {
	return link.Files{Cert: c.CertFile, Key: c.KeyFile, PeerCA: c.PeerCAFile}
}

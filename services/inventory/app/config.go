package app

import (
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/kubenodes"
	"github.com/slicefeed/slicefeed/services/inventory/records"
)

// Config is all that can be set at the inventory: the one source of its flags,
// environment names, defaults and documentation.
type Config struct {
	SourceKind         string        `flag:"source-kind" default:"kubernetes" enum:"kubernetes,service,file,command,static" group:"What to tell" help:"where the nodes come from: the workers of a cluster, the endpoints of a Service of a cluster, or records that a file, a command or a text gives"`
	Kubeconfig         string        `flag:"secured-kubeconfig" placeholder:"file" group:"What to tell" help:"kubeconfig of the secured cluster (kubernetes, service); in-cluster when unset"`
	KubeContext        string        `flag:"secured-kubectl-context" placeholder:"name" group:"What to tell" help:"context of the kubeconfig; its current one when unset"`
	NodeSelector       string        `flag:"node-selector" placeholder:"label selector" group:"What to tell" help:"which workers count (kubernetes); all when unset"`
	Cordoned           string        `flag:"cordoned" default:"keep" enum:"keep,drain" group:"What to tell" help:"what a cordon means (kubernetes): keep changes nothing, drain drains the node"`
	Workload           string        `flag:"workload" placeholder:"namespace/label selector" group:"What to tell" help:"a node is ready only while a ready Pod of this runs on it, and drains when the last has left (kubernetes)"`
	SourceService      string        `flag:"source-service" placeholder:"namespace/name" group:"What to tell" help:"the Service whose endpoints are told (service)"`
	RecordsFile        string        `flag:"inventory-file-path" placeholder:"file" group:"What to tell" help:"JSON records of the nodes, watched (file)"`
	Command            string        `flag:"inventory-command" placeholder:"program" group:"What to tell" help:"a program that prints the JSON records; no shell (command)"`
	CommandArgs        string        `flag:"inventory-command-args" placeholder:"words" group:"What to tell" help:"its arguments, words between white space or a JSON array of strings (command)"`
	StaticRecords      string        `flag:"inventory-static" placeholder:"JSON" group:"What to tell" help:"the JSON records themselves (static)"`
	SourcePollInterval time.Duration `flag:"source-poll-interval" default:"5s" min:"1s" max:"1m" group:"What to tell" help:"how often file and command are read; for every kind, the least time between two observations while the set is in doubt, which is 5s at least"`

	Resolver string            `flag:"resolver" default:"ionos" enum:"ionos,node-address" group:"Where the nodes are" help:"how a worker's private address is found (kubernetes): by the NICs of its IONOS server, or by the InternalIP of the Node; other kinds tell addresses themselves"`
	Subnets  []settings.Subnet `flag:"secured-subnet-cidr" env:"SECURED_SUBNET_PREFIX" required:"true" placeholder:"CIDR" group:"Where the nodes are" help:"the private network: addresses outside of it do not count"`

	Token             string        `flag:"ionos-token" secret:"true" group:"The cloud API (resolver ionos)" help:"API token, read access is enough; better give IONOS_TOKEN_FILE"`
	TokenFile         string        `flag:"ionos-token-file" placeholder:"file" group:"The cloud API (resolver ionos)" help:"file with the API token, read again for each request, so that rotation needs no restart"`
	Datacenters       []string      `flag:"ionos-datacenter-id" placeholder:"UUID" group:"The cloud API (resolver ionos)" help:"the datacenter of the workers; several pair with as many LANs, in order"`
	LANs              []string      `flag:"ionos-private-lan-id" placeholder:"number" group:"The cloud API (resolver ionos)" help:"the private LAN of the workers in that datacenter"`
	APIURL            string        `flag:"ionos-api-url" default:"https://api.ionos.com" placeholder:"URL" group:"The cloud API (resolver ionos)" help:"where the cloud API is"`
	CAFile            string        `flag:"ionos-ca-file" placeholder:"file" group:"The cloud API (resolver ionos)" help:"PEM of the CA that the cloud API's certificate is verified with; the system's when unset"`
	CloudPollInterval time.Duration `flag:"ionos-poll-interval" default:"60s" min:"1s" max:"10m" group:"The cloud API (resolver ionos)" help:"how often the cloud is listed while nothing is unresolved"`

	RequestBudget int `flag:"ionos-request-budget" default:"120" min:"2" max:"6000" placeholder:"number" group:"The cloud API (resolver ionos)" help:"the most requests to the cloud API in any minute, whatever asks for them; beyond it a listing takes longer, it does not fail"`

	ListenAddress string `flag:"listen-address" default:":9443" placeholder:"host:port" group:"Listeners" help:"where subscribers connect (gRPC over mutual TLS)"`
	AdminAddress  string `flag:"admin-address" default:":8080" placeholder:"host:port" group:"Listeners" help:"/metrics, /livez and /readyz"`
	DebugAddress  string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"host:port" group:"Listeners" help:"/statusz, /debug/pprof and gRPC channelz; keep it on loopback"`

	CertFile    string `flag:"tls-cert-file" required:"true" placeholder:"file" group:"The link" help:"PEM certificate of this half, with a DNS SAN and the EKU serverAuth; re-read"`
	KeyFile     string `flag:"tls-key-file" required:"true" placeholder:"file" group:"The link" help:"PEM private key of the certificate; re-read"`
	PeerCAFile  string `flag:"tls-peer-ca-file" required:"true" placeholder:"file" group:"The link" help:"PEM of the CAs that sign the *subscribers'* certificates; re-read"`
	ClientsFile string `flag:"allowed-clients-file" required:"true" placeholder:"file" group:"The link" help:"YAML list of who may call: SAN, role and view; re-read"`
}

// Validate reports every problem that no single setting shows.
func (c *Config) Validate() error {
	var problems []error
	add := func(setting, value, want string) {
		problems = append(problems, &settings.Problem{Setting: setting, Value: value, Expected: want})
	}
	if _, err := labels.Parse(c.NodeSelector); err != nil {
		add("NODE_SELECTOR", c.NodeSelector, "a label selector such as pool=blue: "+err.Error())
	}
	c.validateSource(add)
	if c.usesCloud() {
		switch {
		case c.Token == "" && c.TokenFile == "":
			add("IONOS_TOKEN_FILE", "", "a file with an API token (or IONOS_TOKEN), since SOURCE_KIND is kubernetes and RESOLVER is ionos")
		case c.Token != "" && c.TokenFile != "":
			add("IONOS_TOKEN_FILE", c.TokenFile, "to be the only token: IONOS_TOKEN is set too")
		}
		if len(c.Datacenters) == 0 {
			add("IONOS_DATACENTER_ID", "", "the UUID of the workers' datacenter, since SOURCE_KIND is kubernetes and RESOLVER is ionos")
		}
		if len(c.LANs) == 0 {
			add("IONOS_PRIVATE_LAN_ID", "", "the number of the workers' private LAN, since SOURCE_KIND is kubernetes and RESOLVER is ionos")
		}
		if len(c.Datacenters) != len(c.LANs) && len(c.Datacenters) > 0 && len(c.LANs) > 0 {
			add("IONOS_PRIVATE_LAN_ID", "", "as many LANs as there are datacenters, in the same order")
		}
	}
	return errors.Join(problems...)
}

// validateSource reports what the kind of source lacks, and what only another kind could use:
// what is set and has no effect is taken for a slip.
func (c *Config) validateSource(add func(setting, value, want string)) {
	for _, s := range []struct {
		setting, value, kind string

		required bool
		parse    func(string) error
		want     string
	}{
		{"NODE_SELECTOR", c.NodeSelector, "kubernetes", false, nil, ""},
		{"WORKLOAD", c.Workload, "kubernetes", false, parseError(kubenodes.ParseWorkload), "a namespace and a label selector, such as ingress/app=gateway"},
		{"SOURCE_SERVICE", c.SourceService, "service", true, parseError(parseServiceRef), "the Service to follow, such as shop/web"},
		{"INVENTORY_FILE_PATH", c.RecordsFile, "file", true, nil, "the file with the records"},
		{"INVENTORY_COMMAND", c.Command, "command", true, nil, "the program that prints the records"},
		{"INVENTORY_COMMAND_ARGS", c.CommandArgs, "command", false, parseError(records.ParseArgs), "words, or a JSON array of strings"},
		{"INVENTORY_STATIC", c.StaticRecords, "static", true, parseError(records.NewStaticReader), "the records as JSON"},
	} {
		switch {
		case s.value == "" && s.required && c.SourceKind == s.kind:
			add(s.setting, "", s.want+", since SOURCE_KIND is "+s.kind)
		case s.value != "" && c.SourceKind != s.kind:
			add(s.setting, s.value, "SOURCE_KIND="+s.kind+", or no value: it has no effect with "+c.SourceKind)
		case s.value != "" && s.parse != nil:
			if err := s.parse(s.value); err != nil {
				add(s.setting, s.value, s.want+": "+err.Error())
			}
		}
	}
}

func parseError[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

// serviceRef is a Service of a cluster.
type serviceRef struct{ namespace, name string }

func parseServiceRef(text string) (serviceRef, error) {
	namespace, name, ok := strings.Cut(text, "/")
	problems := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Label(name)...)
	if !ok || len(problems) > 0 {
		return serviceRef{}, errors.New("it is no namespace, slash and name")
	}
	return serviceRef{namespace, name}, nil
}

// usesCluster reports whether the source is a cluster.
func (c *Config) usesCluster() bool { return c.SourceKind == "kubernetes" || c.SourceKind == "service" }

// usesCloud reports whether the cloud resolves addresses.
func (c *Config) usesCloud() bool { return c.SourceKind == "kubernetes" && c.Resolver == "ionos" }

func (c *Config) lanPairs() []ionos.Pair {
	pairs := make([]ionos.Pair, len(c.LANs))
	for i := range pairs {
		pairs[i] = ionos.Pair{Datacenter: c.Datacenters[i], LAN: c.LANs[i]}
	}
	return pairs
}

func (c *Config) tlsFiles() link.Files {
	return link.Files{Cert: c.CertFile, Key: c.KeyFile, PeerCA: c.PeerCAFile}
}

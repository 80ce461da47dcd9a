package app

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
)

// Config is all that can be set at the inventory: the one source of its flags,
// environment names, defaults and documentation.
type Config struct {
	SourceKind string `flag:"source-kind" default:"kubernetes" enum:"kubernetes" group:"What to tell" help:"where the nodes come from: the workers of a Kubernetes cluster"`
	Kubeconfig string `flag:"secured-kubeconfig" placeholder:"file" group:"What to tell" help:"kubeconfig of the secured cluster; in-cluster when unset"`
	Context    string `flag:"secured-kubectl-context" placeholder:"name" group:"What to tell" help:"context of the kubeconfig; its current one when unset"`
	Selector   string `flag:"node-selector" placeholder:"label selector" group:"What to tell" help:"which workers count; all when unset"`
	Cordoned   string `flag:"cordoned" default:"keep" enum:"keep,drain" group:"What to tell" help:"what a cordon means: keep changes nothing, drain drains the node"`

	Resolver string            `flag:"resolver" default:"ionos" enum:"ionos,node-address" group:"Where the nodes are" help:"how a node's private address is found: by the NICs of its IONOS server, or by the InternalIP of the Node"`
	Subnets  []settings.Subnet `flag:"secured-subnet-cidr" env:"SECURED_SUBNET_PREFIX" required:"true" placeholder:"CIDR" group:"Where the nodes are" help:"the private network: addresses outside of it do not count"`

	Token        string        `flag:"ionos-token" secret:"true" group:"The cloud API (resolver ionos)" help:"API token, read access is enough; better give IONOS_TOKEN_FILE"`
	TokenFile    string        `flag:"ionos-token-file" placeholder:"file" group:"The cloud API (resolver ionos)" help:"file with the API token, read again for each request, so that rotation needs no restart"`
	Datacenters  []string      `flag:"ionos-datacenter-id" placeholder:"UUID" group:"The cloud API (resolver ionos)" help:"the datacenter of the workers; several pair with as many LANs, in order"`
	LANs         []string      `flag:"ionos-private-lan-id" placeholder:"number" group:"The cloud API (resolver ionos)" help:"the private LAN of the workers in that datacenter"`
	APIURL       string        `flag:"ionos-api-url" default:"https://api.ionos.com" placeholder:"URL" group:"The cloud API (resolver ionos)" help:"where the cloud API is"`
	CAFile       string        `flag:"ionos-ca-file" placeholder:"file" group:"The cloud API (resolver ionos)" help:"PEM of the CA that the cloud API's certificate is verified with; the system's when unset"`
	PollInterval time.Duration `flag:"ionos-poll-interval" default:"60s" min:"1s" max:"10m" group:"The cloud API (resolver ionos)" help:"how often the cloud is listed while nothing is unresolved"`

	Pace time.Duration `flag:"source-poll-interval" default:"5s" min:"1s" max:"1m" group:"The cloud API (resolver ionos)" help:"least time between two observations when the set is in doubt, and between two listings of the cloud"`

	Listen string `flag:"listen-address" default:":9443" placeholder:"host:port" group:"Listeners" help:"where subscribers connect (gRPC over mutual TLS)"`
	Admin  string `flag:"admin-address" default:":8080" placeholder:"host:port" group:"Listeners" help:"/metrics, /livez and /readyz"`
	Debug  string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"host:port" group:"Listeners" help:"/debug/pprof and gRPC channelz; keep it on loopback"`

	CertFile string `flag:"tls-cert-file" required:"true" placeholder:"file" group:"The link" help:"PEM certificate of this half, with a DNS SAN and the EKU serverAuth; re-read"`
	KeyFile  string `flag:"tls-key-file" required:"true" placeholder:"file" group:"The link" help:"PEM private key of the certificate; re-read"`
	PeerCA   string `flag:"tls-peer-ca-file" required:"true" placeholder:"file" group:"The link" help:"PEM of the CAs that sign the *subscribers'* certificates; re-read"`
	Clients  string `flag:"allowed-clients-file" required:"true" placeholder:"file" group:"The link" help:"YAML list of who may call: SAN, role and view; re-read"`
}

// Validate reports every problem that no single setting shows.
func (c *Config) Validate() error {
	var problems []error
	add := func(setting, value, want string) {
		problems = append(problems, &settings.Problem{Setting: setting, Value: value, Want: want})
	}
	if _, err := labels.Parse(c.Selector); err != nil {
		add("NODE_SELECTOR", c.Selector, "a label selector such as pool=blue: "+err.Error())
	}
	if c.Resolver == "ionos" {
		switch {
		case c.Token == "" && c.TokenFile == "":
			add("IONOS_TOKEN_FILE", "", "a file with an API token (or IONOS_TOKEN), since RESOLVER is ionos")
		case c.Token != "" && c.TokenFile != "":
			add("IONOS_TOKEN_FILE", c.TokenFile, "to be the only token: IONOS_TOKEN is set too")
		}
		if len(c.Datacenters) == 0 {
			add("IONOS_DATACENTER_ID", "", "the UUID of the workers' datacenter, since RESOLVER is ionos")
		}
		if len(c.LANs) == 0 {
			add("IONOS_PRIVATE_LAN_ID", "", "the number of the workers' private LAN, since RESOLVER is ionos")
		}
		if len(c.Datacenters) != len(c.LANs) && len(c.Datacenters) > 0 && len(c.LANs) > 0 {
			add("IONOS_PRIVATE_LAN_ID", "", "as many LANs as there are datacenters, in the same order")
		}
	}
	return errors.Join(problems...)
}

func (c *Config) pairs() []ionos.Pair {
	pairs := make([]ionos.Pair, len(c.LANs))
	for i := range pairs {
		pairs[i] = ionos.Pair{Datacenter: c.Datacenters[i], LAN: c.LANs[i]}
	}
	return pairs
}

func (c *Config) files() link.Files {
	return link.Files{Cert: c.CertFile, Key: c.KeyFile, PeerCA: c.PeerCA}
}

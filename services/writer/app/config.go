package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Config is all that can be set at the writer: the one source of its flags, environment
// names, defaults and documentation.
type Config struct {
	Inventory    string   `flag:"inventory-address" required:"true" placeholder:"host:port" group:"The source" help:"where the inventory listens"`
	InventorySAN link.SAN `flag:"inventory-san" required:"true" placeholder:"URI or DNS name" group:"The source" help:"the SAN that the inventory's certificate must bear, exactly; replaces the check of its host name"`
	CertFile     string   `flag:"tls-cert-file" required:"true" placeholder:"file" group:"The source" help:"PEM certificate of this half, with the EKU clientAuth; re-read"`
	KeyFile      string   `flag:"tls-key-file" required:"true" placeholder:"file" group:"The source" help:"PEM private key of the certificate; re-read"`
	PeerCA       string   `flag:"tls-peer-ca-file" required:"true" placeholder:"file" group:"The source" help:"PEM of the CAs that sign the *inventory's* certificate; re-read"`

	Subnets      []settings.Subnet `flag:"secured-subnet-cidr" env:"SECURED_SUBNET_PREFIX" required:"true" placeholder:"CIDR" group:"The fence" help:"what the source may point to: an address outside of it is never written nor probed"`
	AllowedPorts []PortRange       `flag:"allowed-ports" default:"30000-32767" placeholder:"port or range" group:"The fence" help:"ports that may be written and probed, besides TARGET_PORT"`

	Kubeconfig string `flag:"target-kubeconfig" placeholder:"file" group:"The target" help:"kubeconfig of the consuming cluster; in-cluster when unset"`
	Namespace  string `flag:"target-namespace" required:"true" placeholder:"name" group:"The target" help:"namespace of the Service"`
	Service    string `flag:"target-service-name" required:"true" placeholder:"name" group:"The target" help:"the selector-less Service to keep pointed at the nodes"`
	SliceName  string `flag:"target-endpointslice-name" placeholder:"name" group:"The target" help:"name of its first EndpointSlice, taken over if it is there; the Service's name and -slicefeed when unset"`
	ManagedBy  string `flag:"target-managed-by" placeholder:"label value" group:"The target" help:"endpointslice.kubernetes.io/managed-by of the slices that are ours; slicefeed- and CLASS when unset"`
	Port       uint16 `flag:"target-port" placeholder:"port" group:"The target" help:"the number written for the Service's only port; its targetPort when unset, as with several ports"`
	Class      string `flag:"class" default:"default" placeholder:"name" group:"The target" help:"name of this installation, and of its Lease: slicefeed- and CLASS"`

	ProbeMode     string        `flag:"health-check-mode" default:"tcp" enum:"off,tcp,http,https,grpc" group:"Probes" help:"how the writer itself checks each endpoint"`
	ProbePath     string        `flag:"health-check-path" default:"/" placeholder:"path" group:"Probes" help:"what http and https ask for; 200 to 399 pass, redirects are not followed, certificates are not verified"`
	ProbeInterval time.Duration `flag:"health-check-interval" default:"2s" min:"200ms" max:"5m" group:"Probes" help:"how often each endpoint is probed"`
	ProbeTimeout  time.Duration `flag:"health-check-timeout" default:"1s" min:"50ms" max:"1m" group:"Probes" help:"how long a probe waits for its answer"`

	EmptyThreshold int           `flag:"empty-result-threshold" default:"3" min:"1" max:"10" group:"Guards" help:"complete observations in a row that make an empty source believed"`
	ShrinkWindow   time.Duration `flag:"shrink-window" default:"60s" min:"0s" max:"1h" group:"Guards" help:"in which at most half of a source's ready endpoints leave on its word alone, and none in a new leader's first; 0 turns this guard off"`
	MaxStaleness   time.Duration `flag:"max-staleness" default:"15m" min:"1s" max:"24h" group:"Guards" help:"how old the source's word that it sees the cluster's members may be"`

	Store string `flag:"store-kind" default:"kubernetes" enum:"kubernetes,kubectl,memory" group:"Running" help:"kubernetes writes (kubectl is its old name); memory prints what it would write: a dry run"`
	Admin string `flag:"admin-address" default:":8080" placeholder:"host:port" group:"Running" help:"/metrics, /livez and /readyz"`
	Debug string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"host:port" group:"Running" help:"/debug/pprof and gRPC channelz; keep it on loopback"`
}

// PortRange is a port or a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// UnmarshalText reads "8080" or "30000-32767".
func (r *PortRange) UnmarshalText(text []byte) error {
	first, last, isRange := strings.Cut(string(text), "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return errors.New("a port such as 8080, or a range such as 30000-32767")
	}
	*r = PortRange{uint16(a), uint16(b)}
	return nil
}

// Validate reports every problem that no single setting shows.
func (c *Config) Validate() error {
	var problems []error
	add := func(setting, value, want string) {
		problems = append(problems, &settings.Problem{Setting: setting, Value: value, Want: want})
	}
	check := func(setting, value, what string, wrong []string) {
		if value != "" && len(wrong) > 0 {
			add(setting, value, what+": "+strings.Join(wrong, "; "))
		}
	}
	check("TARGET_NAMESPACE", c.Namespace, "the name of a namespace", validation.IsDNS1123Label(c.Namespace))
	check("TARGET_SERVICE_NAME", c.Service, "the name of a Service", validation.IsDNS1123Label(c.Service))
	check("TARGET_ENDPOINTSLICE_NAME", c.SliceName, "the name of an EndpointSlice", validation.IsDNS1123Subdomain(c.SliceName))
	check("TARGET_MANAGED_BY", c.ManagedBy, "a label value", validation.IsValidLabelValue(c.ManagedBy))
	if strings.HasSuffix(c.ManagedBy, ".k8s.io") {
		add("TARGET_MANAGED_BY", c.ManagedBy, "a value of your own: those that end in .k8s.io are Kubernetes' own controllers'")
	}
	check("CLASS", c.Class, "a short DNS label", validation.IsDNS1123Label("slicefeed-"+c.Class))
	if !strings.HasPrefix(c.ProbePath, "/") {
		add("HEALTH_CHECK_PATH", c.ProbePath, "a path that begins with a slash")
	}
	if c.ProbeTimeout > c.ProbeInterval {
		add("HEALTH_CHECK_TIMEOUT", c.ProbeTimeout.String(), fmt.Sprintf("at most HEALTH_CHECK_INTERVAL, which is %s", c.ProbeInterval))
	}
	return errors.Join(problems...)
}

func (c *Config) managedBy() string {
	if c.ManagedBy != "" {
		return c.ManagedBy
	}
	return "slicefeed-" + c.Class
}

func (c *Config) sliceName() string {
	if c.SliceName != "" {
		return c.SliceName
	}
	return c.Service + "-slicefeed"
}

// allows reports whether the fence lets a port be written and probed.
func (c *Config) allows(port uint16) bool {
	if port == c.Port && port != 0 {
		return true
	}
	for _, r := range c.AllowedPorts {
		if r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}

func (c *Config) files() link.Files {
	return link.Files{Cert: c.CertFile, Key: c.KeyFile, PeerCA: c.PeerCA}
}

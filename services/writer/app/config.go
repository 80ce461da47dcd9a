package app

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// Config is all that can be set at the writer: the one source of its flags, environment
// names, defaults and documentation.
type Config struct {
	Inventory    string   `flag:"inventory-address" placeholder:"host:port" group:"The source" help:"where the inventory listens, if there is one: the source named default"`
	InventorySAN link.SAN `flag:"inventory-san" placeholder:"URI or DNS name" group:"The source" help:"the SAN that the inventory's certificate must bear, exactly; replaces the check of its host name"`
	SourcesFile  string   `flag:"sources-file" placeholder:"file" group:"The source" help:"YAML with several sources, in place of INVENTORY_ADDRESS, INVENTORY_SAN and SECURED_SUBNET_CIDR; read at the start"`
	CertFile     string   `flag:"tls-cert-file" required:"true" placeholder:"file" group:"The source" help:"PEM certificate of this half, with the EKU clientAuth; re-read"`
	KeyFile      string   `flag:"tls-key-file" required:"true" placeholder:"file" group:"The source" help:"PEM private key of the certificate; re-read"`
	PeerCA       string   `flag:"tls-peer-ca-file" placeholder:"file" group:"The source" help:"PEM of the CAs that sign the *inventory's* certificate; re-read; mandatory unless each source in SOURCES_FILE has its own"`

	Subnets      []settings.Subnet   `flag:"secured-subnet-cidr" env:"SECURED_SUBNET_PREFIX" placeholder:"CIDR" group:"The fence" help:"what the source may point to: an address outside of it is never written nor probed"`
	AllowedPorts []sources.PortRange `flag:"allowed-ports" default:"30000-32767" placeholder:"port or range" group:"The fence" help:"ports that may be written and probed, besides TARGET_PORT; a source in SOURCES_FILE may have its own"`

	Kubeconfig string        `flag:"target-kubeconfig" placeholder:"file" group:"The targets" help:"kubeconfig of the consuming cluster; in-cluster when unset"`
	Class      string        `flag:"class" default:"default" placeholder:"name" group:"The targets" help:"name of this installation: Services with the label slicefeed.dev/class of this value are its targets, and its Lease is slicefeed- and CLASS"`
	Watch      []string      `flag:"watch-namespaces" placeholder:"namespace" group:"The targets" help:"where such Services are looked for; * is everywhere, and needs a ClusterRole; our own namespace and TARGET_NAMESPACE when unset"`
	ZoneMap    []ZoneMapping `flag:"zone-map" placeholder:"theirs=ours" group:"The targets" help:"what a zone of the secured cluster is called in the consuming one; endpoints in others get no zone, as all do when unset"`

	Namespace string `flag:"target-namespace" placeholder:"name" group:"One target by name" help:"namespace of the Service"`
	Service   string `flag:"target-service-name" placeholder:"name" group:"One target by name" help:"a selector-less Service to keep pointed at the nodes, without any label"`
	SliceName string `flag:"target-endpointslice-name" placeholder:"name" group:"One target by name" help:"name of its first EndpointSlice, taken over if it is there; the Service's name and -slicefeed when unset"`
	ManagedBy string `flag:"target-managed-by" placeholder:"label value" group:"One target by name" help:"endpointslice.kubernetes.io/managed-by of its slices; slicefeed- and CLASS when unset, as for all others"`
	Port      uint16 `flag:"target-port" placeholder:"port" group:"One target by name" help:"the number written for the Service's only port; its targetPort when unset, as with several ports"`

	ProbeMode     string        `flag:"health-check-mode" default:"tcp" enum:"off,tcp,http,https,grpc" group:"Probes" help:"how the writer itself checks each endpoint"`
	ProbePath     string        `flag:"health-check-path" default:"/" placeholder:"path" group:"Probes" help:"what http and https ask for; 200 to 399 pass, redirects are not followed, certificates are not verified"`
	ProbeInterval time.Duration `flag:"health-check-interval" default:"2s" min:"200ms" max:"5m" group:"Probes" help:"how often each endpoint is probed"`
	ProbeTimeout  time.Duration `flag:"health-check-timeout" default:"1s" min:"50ms" max:"1m" group:"Probes" help:"how long a probe waits for its answer; it may be longer than the interval"`

	EmptyThreshold int           `flag:"empty-result-threshold" default:"3" min:"1" max:"10" group:"Guards" help:"complete observations in a row that make an empty source believed"`
	ShrinkWindow   time.Duration `flag:"shrink-window" default:"60s" min:"0s" max:"1h" group:"Guards" help:"in which at most half of a source's ready endpoints leave on its word alone, and none in a new leader's first; 0 turns this guard off"`
	MaxStaleness   time.Duration `flag:"max-staleness" default:"15m" min:"1s" max:"24h" group:"Guards" help:"how old the source's word that it sees the cluster's members may be"`

	Listen     string `flag:"listen-address" placeholder:"host:port" group:"Who may ask" help:"where slicefeed.writer.v1 is served (gRPC over mutual TLS); it is not when unset"`
	ListenCert string `flag:"listen-cert-file" placeholder:"file" group:"Who may ask" help:"PEM certificate of that listener, with the EKU serverAuth; re-read"`
	ListenKey  string `flag:"listen-key-file" placeholder:"file" group:"Who may ask" help:"PEM private key of that certificate; re-read"`
	ClientCA   string `flag:"client-ca-file" placeholder:"file" group:"Who may ask" help:"PEM of the CAs that sign the *clients'* certificates; re-read"`
	Clients    string `flag:"allowed-clients-file" placeholder:"file" group:"Who may ask" help:"YAML with the SANs that may connect, and their roles; re-read"`

	Store string `flag:"store-kind" default:"kubernetes" enum:"kubernetes,kubectl,memory" group:"Running" help:"kubernetes writes (kubectl is its old name); memory prints what it would write: a dry run"`
	Admin string `flag:"admin-address" default:":8080" placeholder:"host:port" group:"Running" help:"/metrics, /livez and /readyz"`
	Debug string `flag:"debug-address" default:"127.0.0.1:6060" placeholder:"host:port" group:"Running" help:"/statusz, /debug/pprof and gRPC channelz; keep it on loopback"`
}

// ZoneMapping says what a zone of the secured cluster is called in the consuming one.
type ZoneMapping struct{ Secured, Consuming string }

// UnmarshalText reads "theirs=ours".
func (z *ZoneMapping) UnmarshalText(text []byte) error {
	secured, consuming, hasBoth := strings.Cut(string(text), "=")
	if !hasBoth || secured == "" || consuming == "" || len(validation.IsValidLabelValue(consuming)) > 0 {
		return errors.New("two names of a zone, such as de/fra=zone-a")
	}
	*z = ZoneMapping{secured, consuming}
	return nil
}

// Validate reports every problem that no single setting shows.
func (c *Config) Validate() error {
	var v problemList
	c.validateSource(&v)
	c.validateTargets(&v)
	if !strings.HasPrefix(c.ProbePath, "/") {
		v.add("HEALTH_CHECK_PATH", c.ProbePath, "a path that begins with a slash")
	}
	listener := []settingValue{
		{"LISTEN_CERT_FILE", c.ListenCert}, {"LISTEN_KEY_FILE", c.ListenKey}, {"CLIENT_CA_FILE", c.ClientCA}, {"ALLOWED_CLIENTS_FILE", c.Clients},
	}
	if c.Listen != "" {
		v.requireSet("a file, since LISTEN_ADDRESS is set", listener...)
	} else {
		v.requireUnset("LISTEN_ADDRESS beside it, which opens the listener that it is for", listener...)
	}
	return errors.Join(v...)
}

func (c *Config) validateSource(v *problemList) {
	single := []settingValue{
		{"INVENTORY_ADDRESS", c.Inventory}, {"INVENTORY_SAN", string(c.InventorySAN)}, {"SECURED_SUBNET_CIDR", joinSubnets(c.Subnets)},
	}
	if c.SourcesFile != "" {
		v.requireUnset("none of it beside SOURCES_FILE, where each source has its own", single...)
		return
	}
	v.requireSet("that of the inventory, or SOURCES_FILE with several", single...)
	v.requireSet("a file", settingValue{"TLS_PEER_CA_FILE", c.PeerCA})
}

func (c *Config) validateTargets(v *problemList) {
	v.checkName("TARGET_NAMESPACE", c.Namespace, "the name of a namespace", validation.IsDNS1123Label(c.Namespace))
	v.checkName("TARGET_SERVICE_NAME", c.Service, "the name of a Service", validation.IsDNS1123Label(c.Service))
	v.checkName("TARGET_ENDPOINTSLICE_NAME", c.SliceName, "the name of an EndpointSlice", validation.IsDNS1123Subdomain(c.SliceName))
	v.checkName("TARGET_MANAGED_BY", c.ManagedBy, "a label value", validation.IsValidLabelValue(c.ManagedBy))
	if strings.HasSuffix(c.ManagedBy, ".k8s.io") {
		v.add("TARGET_MANAGED_BY", c.ManagedBy, "a value of your own: those that end in .k8s.io are Kubernetes' own controllers'")
	}
	both := []settingValue{{"TARGET_NAMESPACE", c.Namespace}, {"TARGET_SERVICE_NAME", c.Service}}
	if c.Namespace != "" || c.Service != "" {
		v.requireSet("a name: the target given by name has both", both...)
	} else {
		port := ""
		if c.Port != 0 {
			port = strconv.Itoa(int(c.Port))
		}
		v.requireUnset("TARGET_NAMESPACE and TARGET_SERVICE_NAME beside it, since it is theirs",
			settingValue{"TARGET_ENDPOINTSLICE_NAME", c.SliceName}, settingValue{"TARGET_MANAGED_BY", c.ManagedBy}, settingValue{"TARGET_PORT", port})
	}
	class := validation.IsDNS1123Label(c.Class) // it is a label's value too
	if len(class) == 0 {
		class = validation.IsDNS1123Label("slicefeed-" + c.Class)
	}
	v.checkName("CLASS", c.Class, "a short DNS label", class)
	for _, namespace := range c.Watch {
		if namespace != allNamespaces {
			v.checkName("WATCH_NAMESPACES", namespace, "names of namespaces, or *", validation.IsDNS1123Label(namespace))
		} else if len(c.Watch) > 1 {
			v.add("WATCH_NAMESPACES", strings.Join(c.Watch, ","), "* alone: it is all namespaces")
		}
	}
}

// allNamespaces stands for all namespaces.
const allNamespaces = "*"

// settingValue is a setting and its value.
type settingValue struct{ setting, value string }

// problemList are those found so far.
type problemList []error

func (v *problemList) add(setting, value, want string) {
	*v = append(*v, &settings.Problem{Setting: setting, Value: value, Expected: want})
}

func (v *problemList) checkName(setting, value, what string, violations []string) {
	if value != "" && len(violations) > 0 {
		v.add(setting, value, what+": "+strings.Join(violations, "; "))
	}
}

// requireSet adds a problem for each that is not set, refuse for each that is.
func (v *problemList) requireSet(what string, all ...settingValue) {
	for _, s := range all {
		if s.value == "" {
			v.add(s.setting, "", what)
		}
	}
}

func (v *problemList) requireUnset(what string, all ...settingValue) {
	for _, s := range all {
		if s.value != "" {
			v.add(s.setting, s.value, what)
		}
	}
}

func joinSubnets(subnets []settings.Subnet) string {
	var all []string
	for _, p := range settings.ToPrefixes(subnets) {
		all = append(all, p.String())
	}
	return strings.Join(all, ",")
}

func (c *Config) managedByLabel() string {
	if c.ManagedBy != "" {
		return c.ManagedBy
	}
	return "slicefeed-" + c.Class
}

func (c *Config) firstSliceName() string {
	if c.SliceName != "" {
		return c.SliceName
	}
	return c.Service + "-slicefeed"
}

// watchedNamespaces are the namespaces whose labelled Services are ours.
func (c *Config) watchedNamespaces(own string) []string {
	if len(c.Watch) > 0 {
		return c.Watch
	}
	if c.Namespace != "" && c.Namespace != own {
		return []string{own, c.Namespace}
	}
	return []string{own}
}

func (c *Config) tlsFiles() link.Files {
	return link.Files{Cert: c.CertFile, Key: c.KeyFile, PeerCA: c.PeerCA}
}

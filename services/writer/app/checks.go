package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// runPreflight checks what serve depends on. What serve and plan report themselves is not among it.
func runPreflight(ctx context.Context, inv command.Invocation[Config]) error {
	c, err := newChecker(inv.Config, inv.Version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, inv.Format, c.checks())
}

// checker is a configuration, and the cluster to check it with.
type checker struct {
	cfg       *Config
	sources   []sources.Source
	targets   targets.Config
	client    kubernetes.Interface
	host      string // of the API server
	namespace string // of the writer and its Lease
}

func newChecker(cfg *Config, version string) (*checker, error) {
	cluster, namespace, errCluster := cfg.LoadCluster(version)
	configured, errSources := cfg.LoadSources()
	if err := errors.Join(errCluster, errSources); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("create client of the consuming cluster: %w", err)
	}
	targetsConfig, err := cfg.TargetsConfig(namespace, configured)
	return &checker{cfg, configured, targetsConfig, client, cluster.Host, namespace}, err
}

// checks returns the checks that the configuration requires. Those after the API server need it.
func (c *checker) checks() []preflight.Check {
	files := c.cfg.TLSFiles()
	all := []preflight.Check{preflight.Certificates("certificate", link.Files{Cert: files.Cert, Key: files.Key},
		link.Files{Cert: "TLS_CERT_FILE", Key: "TLS_KEY_FILE"}, x509.ExtKeyUsageClientAuth)}
	for _, s := range c.sources {
		all = append(
			all,
			preflight.Certificates(c.nameOf(s, "peer CA"), link.Files{PeerCA: s.CAFile},
				link.Files{PeerCA: c.settingOf(s, "TLS_PEER_CA_FILE", "caFile")}, 0),
			preflight.Check{
				Name: c.nameOf(s, "inventory"),
				Run:  func(ctx context.Context) (string, error) { return c.checkInventory(ctx, s) },
			},
			preflight.Check{
				Name: c.nameOf(s, "allowlist"),
				Run:  func(ctx context.Context) (string, error) { return c.checkAllowlist(ctx, s) },
			},
		)
	}
	needed, excess := c.permissions()
	all = append(all, (&preflight.Cluster{
		Client: c.client, Host: c.host, Setting: "TARGET_KUBECONFIG", Chart: "deploy/slicefeed-writer", Needed: needed, Excess: excess,
	}).Checks()...)
	if c.writes() {
		all = append(all, preflight.Check{Name: "admission policy", Run: c.checkPolicy})
	}
	return all
}

// nameOf returns the name of a source's check. An only source needs none.
func (c *checker) nameOf(s sources.Source, check string) string {
	if c.cfg.SourcesFile == "" {
		return check
	}
	return s.Name + ": " + check
}

// settingOf returns where to change a setting of a source.
func (c *checker) settingOf(s sources.Source, name, key string) string {
	if c.cfg.SourcesFile == "" {
		return name
	}
	return fmt.Sprintf("%s of %s in SOURCES_FILE", key, s.Name)
}

// writes reports whether serve writes; it does not in a dry run.
func (c *checker) writes() bool { return c.cfg.Store != "memory" }

// checkInventory calls the inventory once. Any response will do.
func (c *checker) checkInventory(ctx context.Context, s sources.Source) (string, error) {
	inventory, err := s.NewClient(c.cfg.TLSFiles(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	conn, err := inventory.Dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // only fails if it is closed already
	var header, trailer metadata.MD
	_, err = inventoryv1.NewInventoryServiceClient(conn).ListNodes(
		ctx, &inventoryv1.ListNodesRequest{Names: []string{"preflight"}}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err = c.explainCall(s, err, inventory.HandshakeError(), len(header)+len(trailer) > 0); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s at %s", s.SAN, s.Address), nil
}

// explainCall adds advice to the error of a call, or returns that of the handshake before it.
func (c *checker) explainCall(s sources.Source, err error, handshake *link.HandshakeError, responded bool) error {
	switch code := status.Code(err); {
	case code == codes.OK,
		code == codes.Unavailable && responded, // no complete observation yet, which the inventory reports itself
		code == codes.FailedPrecondition:       // it exports Services, and requires the name of one
		return nil
	case code == codes.PermissionDenied:
		return fmt.Errorf("%s; add the writer's SAN to the inventory's ALLOWED_CLIENTS_FILE", status.Convert(err).Message())
	case code == codes.Unavailable && handshake != nil:
		return handshake
	}
	return fmt.Errorf("%s; check %s, that the inventory runs, and the network in between",
		status.Convert(err).Message(), c.settingOf(s, "INVENTORY_ADDRESS", "address"))
}

// checkAllowlist fails if the allowlist contains the API server of the consuming cluster: a compromised inventory could
// then make a Service point there, and receive the credentials of that Service's clients.
func (c *checker) checkAllowlist(ctx context.Context, s sources.Source) (string, error) {
	apiServer, err := url.Parse(c.host)
	if err != nil {
		return "", fmt.Errorf("parse address of the API server: %w", err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", apiServer.Hostname())
	if err != nil {
		return "", preflight.Warning("address of the API server: %w; compare it with the allowlist yourself", err)
	}
	port, err := strconv.ParseUint(apiServer.Port(), 10, 16)
	if err != nil {
		port = 443
	}
	return c.compareAllowlist(s, addresses, uint16(port))
}

func (c *checker) compareAllowlist(s sources.Source, apiServer []netip.Addr, port uint16) (string, error) {
	setting := c.settingOf(s, "SECURED_SUBNET_CIDR", "cidrs")
	for _, a := range apiServer {
		a = a.Unmap()
		if !contains(s.CIDRs, a) {
			continue
		}
		problem := fmt.Sprintf("%s in %s is this cluster's API server", netip.AddrPortFrom(a, port), setting)
		if s.AllowsPort(port) || port == c.targets.NamedTarget.FixedPort {
			return "", fmt.Errorf("%s, and its port is allowed; narrow %s or the ports", problem, setting)
		}
		return "", preflight.Warning("%s, though its port is not allowed; narrow %s", problem, setting)
	}
	return fmt.Sprintf("%s, without this cluster's API server", s.CIDRs), nil
}

func contains(allowlist []settings.Subnet, a netip.Addr) bool {
	return slices.ContainsFunc(allowlist, func(s settings.Subnet) bool { return s.Contains(a) })
}

// permissions returns what the writer does in the consuming cluster, and what it never does.
func (c *checker) permissions() (needed, excess []preflight.Permission) {
	in := func(group, resource string, verbs ...string) preflight.Permission {
		return preflight.Permission{Group: group, Resource: resource, Verbs: verbs, Namespaces: c.targets.Namespaces}
	}
	const discovery, imports = "discovery.k8s.io", targets.GroupServiceImport
	needed = []preflight.Permission{in("", "services", "list", "watch")}
	excess = []preflight.Permission{
		in("", "services", "update"), in("", "endpoints", "update"), in("", "secrets", "list"), in("", "pods", "create"),
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings", Verbs: []string{"delete"}},
	}
	if c.targets.ServiceImports {
		needed = append(needed, in(imports, "serviceimports", "list", "watch"))
		excess = append(excess, in(imports, "serviceimports", "update"))
	}
	elsewhere := in(discovery, "endpointslices", "update")
	if elsewhere.Namespaces = []string{preflight.AllNamespaces}; !slices.Equal(c.targets.Namespaces, elsewhere.Namespaces) {
		excess = append(excess, elsewhere)
	}
	if !c.writes() {
		return append(needed, in(discovery, "endpointslices", "get", "list", "watch")), excess
	}
	lease := in("coordination.k8s.io", "leases", "create")
	lease.Namespaces = []string{c.namespace}
	own := lease
	own.Name, own.Verbs = "slicefeed-"+c.cfg.Class, []string{"get", "update"}
	return append(needed, in(discovery, "endpointslices", "get", "list", "watch", "create", "update", "delete"),
		in("events.k8s.io", "events", "create", "patch"), lease, own), excess
}

// checkPolicy tries to write an address that is outside all allowlists. An admission policy must deny that. It is a dry
// run: nothing is stored.
func (c *checker) checkPolicy(ctx context.Context) (string, error) {
	outside := c.outsideAddress()
	if !outside.IsValid() {
		return "", preflight.Warning("no address is outside the allowlist; narrow it to the network of the secured cluster")
	}
	for _, namespace := range c.targets.Namespaces {
		if namespace == preflight.AllNamespaces {
			namespace = c.namespace
		}
		managedBy := "slicefeed-" + c.cfg.Class
		if named := c.targets.NamedTarget; named.Namespace == namespace && named.ManagedBy != "" {
			managedBy = named.ManagedBy
		}
		_, err := c.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "slicefeed-preflight-", Labels: map[string]string{
				discoveryv1.LabelServiceName: "slicefeed-preflight",
				discoveryv1.LabelManagedBy:   managedBy,
				targets.LabelWriter:          c.namespace,
			}},
			AddressType: planner.FamilyOf(outside),
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{outside.String()}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return "", preflight.Warning("none denies %s, which is outside the allowlist, in namespace %s; "+
				"install the policy of the chart, or deploy/manifests/writer-policy.yaml", outside, namespace)
		case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") && !strings.Contains(err.Error(), "admission webhook"):
			return "", fmt.Errorf("dry run of a slice in namespace %s: %w", namespace, err)
		}
	}
	return fmt.Sprintf("denies %s, which is outside the allowlist", outside), nil
}

// outsideAddress returns an address reserved for documentation that no source may report, of a family that one may;
// invalid if there is none.
func (c *checker) outsideAddress() netip.Addr {
	var allowed []settings.Subnet
	for _, s := range c.sources {
		allowed = append(allowed, s.CIDRs...)
	}
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"} {
		a := netip.MustParseAddr(text)
		ofFamily := func(s settings.Subnet) bool { return s.Addr().Is4() == a.Is4() }
		if slices.ContainsFunc(allowed, ofFamily) && !contains(allowed, a) {
			return a
		}
	}
	return netip.Addr{}
}

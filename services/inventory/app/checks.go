package app

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/kube"
)

// runPreflight checks what serve depends on. What serve and list report themselves is not among it.
func runPreflight(ctx context.Context, inv command.Invocation[Config]) error {
	checks, err := newChecks(inv.Config, inv.Version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, inv.Format, checks)
}

func newChecks(cfg *Config, version string) ([]preflight.Check, error) {
	files := cfg.TLSFiles()
	checks := []preflight.Check{
		preflight.Certificates("certificate", link.Files{Cert: files.Cert, Key: files.Key},
			link.Files{Cert: "TLS_CERT_FILE", Key: "TLS_KEY_FILE"}, x509.ExtKeyUsageServerAuth),
		preflight.Certificates("peer CA", link.Files{PeerCA: files.PeerCA}, link.Files{PeerCA: "TLS_PEER_CA_FILE"}, 0),
	}
	cloud, err := newCloud(cfg, version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	if client, ok := cloud.(*ionos.Client); ok {
		for _, pair := range cfg.LANPairs() {
			checks = append(checks, preflight.Check{
				Name: fmt.Sprintf("LAN %s of datacenter %.8s", pair.LAN, pair.Datacenter),
				Run: func(ctx context.Context) (string, error) {
					d, err := client.Describe(ctx, pair)
					if err != nil {
						return "", fmt.Errorf(
							"%w; check IONOS_DATACENTER_ID, IONOS_PRIVATE_LAN_ID and the token's permissions for both",
							err,
						)
					}
					return checkLAN(d, settings.ToPrefixes(cfg.Subnets))
				},
			})
		}
	}
	if !cfg.UsesCluster() {
		return checks, nil
	}
	cluster, err := cfg.LoadCluster(version)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("create client of the secured cluster: %w", err)
	}
	return append(checks, (&preflight.Cluster{
		Client: client, Host: cluster.Host, Setting: "SECURED_KUBECONFIG", Chart: "deploy/slicefeed-inventory",
		Needed: neededPermissions(cfg),
		Excess: []preflight.Permission{
			{Resource: "nodes", Verbs: []string{"patch", "delete"}},
			{Resource: "secrets", Verbs: []string{"list"}},
			{Resource: "pods", Verbs: []string{"create"}},
		},
	}).Checks()...), nil
}

// checkLAN checks that a LAN is private, and that some of its addresses are in the allowed CIDRs.
func checkLAN(d ionos.Description, allowed []netip.Prefix) (string, error) {
	text := fmt.Sprintf("%q in %q", d.LAN, d.Datacenter)
	if d.Public {
		return "", fmt.Errorf("%s is public; set IONOS_PRIVATE_LAN_ID to the private LAN", text)
	}
	if len(d.Prefixes) == 0 {
		return text + ", no known addresses", nil
	}
	if !slices.ContainsFunc(d.Prefixes, func(p netip.Prefix) bool { return slices.ContainsFunc(allowed, p.Overlaps) }) {
		return "", fmt.Errorf(
			"%s has addresses in %s, none in %s; check SECURED_SUBNET_CIDR and IONOS_PRIVATE_LAN_ID",
			text,
			d.Prefixes,
			allowed,
		)
	}
	return fmt.Sprintf("%s, addresses in %s", text, d.Prefixes), nil
}

// neededPermissions returns what the inventory does in the secured cluster.
func neededPermissions(cfg *Config) []preflight.Permission {
	follow := []string{"list", "watch"}
	if cfg.SourceKind == "service" {
		return servicePermissions(cfg)
	}
	needed := []preflight.Permission{{Resource: "nodes", Verbs: follow}}
	if w, err := kube.ParseWorkload(cfg.Workload); err == nil {
		needed = append(needed, preflight.Permission{Resource: "pods", Namespaces: []string{w.Namespace}, Verbs: follow})
	}
	return needed
}

// servicePermissions returns what it takes to read the Service of the source, or those that clients may see.
func servicePermissions(cfg *Config) (needed []preflight.Permission) {
	patterns := []string{cfg.SourceService}
	if cfg.ExportsServices() {
		patterns = nil
		grants, err := link.ReadClients(cfg.ClientsFile)
		if err != nil {
			return nil // serve reports it
		}
		for _, g := range grants {
			patterns = append(patterns, g.Services...)
		}
	}
	var namespaces []string
	slices.Sort(patterns)
	for _, pattern := range slices.Compact(patterns) {
		namespace, name, _ := strings.Cut(pattern, "/")
		service := preflight.Permission{Resource: "services", Name: name, Namespaces: []string{namespace}, Verbs: []string{"get"}}
		if cfg.ExportsServices() {
			service.Name, service.Verbs = "", []string{"get", "list", "watch"}
		}
		if slices.Contains(namespaces, namespace) {
			continue
		}
		namespaces, needed = append(namespaces, namespace), append(needed, service)
	}
	if len(namespaces) > 0 {
		needed = append(needed, preflight.Permission{
			Group: "discovery.k8s.io", Resource: "endpointslices", Namespaces: namespaces, Verbs: []string{"list", "watch"},
		})
	}
	return needed
}

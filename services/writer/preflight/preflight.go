// Package preflight checks everything that serve of the writer depends on, in the order in which one
// would fix problems. It guarantees that it changes nothing: what it tries to write is a dry run.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// groupTimeout bounds a check that makes many requests.
const groupTimeout = time.Minute

// Names of checks that other checks depend on.
const (
	inventoryCheckName   = "inventory"
	initialSyncCheckName = "initial sync"
	servicesCheckName    = "Services"
)

// Where the writer's credential gets its permissions, and the policy that restricts them.
const (
	chartDirectory = "deploy/slicefeed-writer"
	policyFile     = "deploy/manifests/writer-policy.yaml"
)

// Run checks everything that serve depends on, and prints a line for each check.
func Run(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	pc, err := newChecker(inv.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, pc.checks())
}

// checker is a configuration and the connections to check it with.
type checker struct {
	cfg       *config.Config
	sources   []*sourceCheck
	targets   targets.Config
	client    kubernetes.Interface
	cluster   preflight.Cluster
	namespace string // of the writer and its Lease

	resolutions []targets.Resolution // of the targets that servicesCheck found
}

func newChecker(cfg *config.Config, version string) (*checker, error) {
	cluster, namespace, errCluster := cfg.LoadCluster(version)
	configured, errSources := cfg.LoadSources()
	if err := errors.Join(errCluster, errSources); err != nil {
		return nil, err
	}
	clock := &preflight.Clock{}
	cluster.Wrap(clock.Wrap)
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("create client of the consuming cluster: %w", err)
	}
	pc, err := newOfflineChecker(cfg, namespace, configured)
	if err != nil {
		return nil, err
	}
	pc.client = client
	pc.cluster = preflight.Cluster{
		Client: client.Discovery().RESTClient(), Reviews: client.AuthorizationV1().SelfSubjectAccessReviews(),
		Host: cluster.Host, Clock: clock, Component: "the writer", Setting: "TARGET_KUBECONFIG", Role: chartDirectory,
	}
	return pc, nil
}

// newOfflineChecker returns a checker that has no cluster yet.
func newOfflineChecker(cfg *config.Config, namespace string, configured []sources.Source) (*checker, error) {
	pc := &checker{cfg: cfg, namespace: namespace}
	for _, s := range configured {
		pc.sources = append(pc.sources, &sourceCheck{Source: s, checker: pc})
	}
	var err error
	pc.targets, err = cfg.TargetsConfig(namespace, configured)
	return pc, err
}

// checks returns the checks that the configuration requires, in the order in which one would fix
// problems.
func (pc *checker) checks() []preflight.Check {
	all := pc.certificateChecks()
	for _, sc := range pc.sources {
		all = append(all, sc.linkChecks()...)
	}
	all = append(all, pc.cluster.Checks(pc.requiredPermissions(), pc.excessPermissions())...)
	all = append(all, pc.servicesCheck())
	if pc.writesSlices() {
		all = append(all, preflight.Check{
			Name: "admission policy", DependsOn: []string{preflight.APIServer, pc.permissionsCheckName("create", slicesAPI)}, Timeout: groupTimeout, Run: pc.checkPolicy,
		})
	}
	for _, sc := range pc.sources {
		all = append(all, preflight.Check{Name: sc.checkName("allowlist"), Run: sc.checkAllowlist})
	}
	for _, sc := range pc.sources {
		all = append(all, sc.probeCheck())
	}
	return all
}

// certificateChecks checks the writer's certificate and key, and each file of CAs once.
func (pc *checker) certificateChecks() []preflight.Check {
	var all []preflight.Check
	for i, sc := range pc.sources {
		if slices.ContainsFunc(pc.sources[:i], func(earlier *sourceCheck) bool { return earlier.CAFile == sc.CAFile }) {
			continue
		}
		for _, c := range (preflight.Identity{Files: sc.tlsFiles()}).Checks() {
			switch {
			case c.Name == preflight.PeerCA:
				c.Name = sc.peerCACheckName()
			case i > 0:
				continue
			}
			all = append(all, c)
		}
	}
	return all
}

// writesSlices reports whether serve writes; it does not in a dry run.
func (pc *checker) writesSlices() bool { return pc.cfg.Store != "memory" }

// Resources and their groups.
var (
	servicesAPI = [2]string{"", "services"}
	slicesAPI   = [2]string{"discovery.k8s.io", "endpointslices"}
	eventsAPI   = [2]string{"events.k8s.io", "events"}
	leasesAPI   = [2]string{"coordination.k8s.io", "leases"}
)

// watchedNamespaces returns the namespaces that the writer watches, or only config.AllNamespaces.
func (pc *checker) watchedNamespaces() []string {
	if slices.Contains(pc.targets.Namespaces, config.AllNamespaces) {
		return []string{config.AllNamespaces}
	}
	all := slices.Clone(pc.targets.Namespaces)
	if pc.targets.NamedTarget.Service != "" {
		all = append(all, pc.targets.NamedTarget.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// permissionsFor returns the permission in each watched namespace.
func (pc *checker) permissionsFor(verb string, resource [2]string) []preflight.Permission {
	var all []preflight.Permission
	for _, namespace := range pc.watchedNamespaces() {
		all = append(all, preflight.Permission{Verb: verb, Group: resource[0], Resource: resource[1], Namespace: namespace})
	}
	return all
}

// permissionsCheckName returns the name of the check of those permissions.
func (pc *checker) permissionsCheckName(verb string, resource [2]string) string {
	return preflight.PermissionsName(pc.permissionsFor(verb, resource)...)
}

// requiredPermissions returns what the writer does in the consuming cluster.
func (pc *checker) requiredPermissions() []preflight.Permission {
	var all []preflight.Permission
	for _, verb := range []string{"list", "watch"} {
		all = append(all, pc.permissionsFor(verb, servicesAPI)...)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		all = append(all, pc.permissionsFor(verb, slicesAPI)...)
	}
	if !pc.writesSlices() {
		return all
	}
	for _, verb := range []string{"create", "update", "delete"} {
		all = append(all, pc.permissionsFor(verb, slicesAPI)...)
	}
	all = append(all, pc.permissionsFor("create", eventsAPI)...)
	all = append(all, pc.permissionsFor("patch", eventsAPI)...)
	lease := preflight.Permission{Verb: "create", Group: leasesAPI[0], Resource: leasesAPI[1], Namespace: pc.namespace}
	all = append(all, lease)
	for _, verb := range []string{"get", "update"} {
		lease.Verb, lease.Name = verb, "slicefeed-"+pc.cfg.Class
		all = append(all, lease)
	}
	return all
}

// excessPermissions returns permissions that the writer never uses, and that would help an attacker with
// its credential.
func (pc *checker) excessPermissions() []preflight.Permission {
	all := []preflight.Permission{{Verb: "update", Group: slicesAPI[0], Resource: slicesAPI[1], Namespace: config.AllNamespaces}}
	if slices.Contains(pc.watchedNamespaces(), config.AllNamespaces) {
		all = nil // the writer needs it
	}
	all = append(all, pc.permissionsFor("update", servicesAPI)...)
	all = append(all, pc.permissionsFor("update", [2]string{"", "endpoints"})...)
	all = append(all, pc.permissionsFor("list", [2]string{"", "secrets"})...)
	all = append(all, pc.permissionsFor("create", [2]string{"", "pods"})...)
	return append(all, preflight.Permission{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"})
}

// abbreviate lists a few names and the number of the others.
func abbreviate(names []string) string {
	const maxNames = 3
	if len(names) <= maxNames+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

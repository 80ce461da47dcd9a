// Package preflight checks everything that serve of the writer depends on, in the order in which one
// would fix problems. It guarantees that it changes nothing: what it tries to write is a dry run.
package preflight

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/planner"
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
	importsCheckName     = "ServiceImports"
)

// policyFile is the policy that restricts the writer's credential.
const policyFile = "deploy/manifests/writer-policy.yaml"

// Run checks everything that serve depends on, and prints a line for each check, or a preflight.Report.
func Run(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	pc, err := newChecker(inv.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, inv.Format, pc.checks())
}

// checker is a configuration and the connections to check it with.
type checker struct {
	cfg       *config.Config
	sources   []*sourceCheck
	targets   targets.Config
	client    kubernetes.Interface
	imports   dynamic.Interface // only used with SERVICE_IMPORTS
	cluster   *preflight.Cluster
	namespace string // of the writer and its Lease

	resolutions []targets.Resolution // of the targets that servicesCheck found
}

func newChecker(cfg *config.Config, version string) (*checker, error) {
	cluster, namespace, errCluster := cfg.LoadCluster(version)
	configured, errSources := cfg.LoadSources()
	if err := errors.Join(errCluster, errSources); err != nil {
		return nil, err
	}
	connected, err := (&preflight.Cluster{Component: "the writer", Setting: "TARGET_KUBECONFIG", Role: "deploy/slicefeed-writer"}).Connect(
		cluster,
	)
	if err != nil {
		return nil, err
	}
	pc, err := newOfflineChecker(cfg, namespace, configured)
	if err != nil {
		return nil, err
	}
	pc.client, pc.cluster = connected.Client, connected
	pc.imports, err = dynamic.NewForConfig(cluster)
	return pc, err
}

// newOfflineChecker returns a checker that has no cluster yet.
func newOfflineChecker(cfg *config.Config, namespace string, configured []sources.Source) (*checker, error) {
	pc := &checker{cfg: cfg, namespace: namespace, cluster: &preflight.Cluster{}}
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
	if pc.targets.ServiceImports {
		all = append(
			all,
			preflight.Check{Name: importsCheckName, DependsOn: dependsOn(pc.permissions(importsAPI, "list")), Run: pc.checkImports},
		)
	}
	all = append(all, preflight.Check{
		Name:      servicesCheckName,
		DependsOn: dependsOn(slices.Concat(pc.permissions(servicesAPI, "list"), pc.permissions(slicesAPI, "list"))),
		Timeout:   groupTimeout,
		Run:       pc.checkServices,
	})
	if pc.writesSlices() {
		all = append(
			all,
			preflight.Check{
				Name:      "admission policy",
				DependsOn: dependsOn(pc.permissions(slicesAPI, "create")),
				Timeout:   groupTimeout,
				Run:       pc.checkPolicy,
			},
		)
	}
	for _, sc := range pc.sources {
		all = append(all, preflight.Check{Name: sc.checkName("allowlist"), Run: sc.checkAllowlist})
	}
	for _, sc := range pc.sources {
		all = append(all, sc.probeCheck())
	}
	return all
}

// dependsOn returns the names of the checks of the API server and of these permissions.
func dependsOn(permissions []preflight.Permission) []string {
	names := []string{preflight.APIServer}
	for _, p := range permissions {
		names = append(names, p.String())
	}
	return names
}

// certificateChecks checks the writer's certificate and key, and each file of CAs once.
func (pc *checker) certificateChecks() []preflight.Check {
	var all []preflight.Check
	for i, sc := range pc.sources {
		if slices.ContainsFunc(pc.sources[:i], func(earlier *sourceCheck) bool { return earlier.CAFile == sc.CAFile }) {
			continue
		}
		files := pc.cfg.TLSFiles()
		files.PeerCA = sc.CAFile
		for _, c := range (preflight.Identity{Files: files}).Checks() {
			if c.Name == preflight.PeerCA {
				c.Name = sc.peerCACheckName()
			} else if i > 0 {
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
	importsAPI  = [2]string{planner.GroupServiceImport, "serviceimports"}
	slicesAPI   = [2]string{"discovery.k8s.io", "endpointslices"}
	eventsAPI   = [2]string{"events.k8s.io", "events"}
	leasesAPI   = [2]string{"coordination.k8s.io", "leases"}
)

// permissions returns a permission for each verb, in all watched namespaces.
func (pc *checker) permissions(resource [2]string, verbs ...string) []preflight.Permission {
	var all []preflight.Permission
	for _, verb := range verbs {
		all = append(all, preflight.Permission{Verb: verb, Group: resource[0], Resource: resource[1], Namespaces: pc.targets.Namespaces})
	}
	return all
}

// requiredPermissions returns what the writer does in the consuming cluster.
func (pc *checker) requiredPermissions() []preflight.Permission {
	all := slices.Concat(pc.permissions(servicesAPI, "list", "watch"), pc.permissions(slicesAPI, "get", "list", "watch"))
	if pc.targets.ServiceImports {
		all = append(all, pc.permissions(importsAPI, "list", "watch")...)
	}
	if !pc.writesSlices() {
		return all
	}
	all = slices.Concat(all, pc.permissions(slicesAPI, "create", "update", "delete"), pc.permissions(eventsAPI, "create", "patch"))
	for _, lease := range pc.permissions(leasesAPI, "create", "get", "update") {
		lease.Namespaces = []string{pc.namespace}
		if lease.Verb != "create" {
			lease.Name = "slicefeed-" + pc.cfg.Class
		}
		all = append(all, lease)
	}
	return all
}

// excessPermissions returns permissions that the writer never uses, and that would help an attacker with
// its credential.
func (pc *checker) excessPermissions() []preflight.Permission {
	all := slices.Concat(pc.permissions(servicesAPI, "update"), pc.permissions([2]string{"", "endpoints"}, "update"),
		pc.permissions([2]string{"", "secrets"}, "list"), pc.permissions([2]string{"", "pods"}, "create"),
		[]preflight.Permission{{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}})
	if pc.targets.ServiceImports {
		all = append(all, pc.permissions(importsAPI, "update")...)
	}
	if everywhere := []string{config.AllNamespaces}; !slices.Equal(pc.targets.Namespaces, everywhere) {
		all = append(all, preflight.Permission{Verb: "update", Group: slicesAPI[0], Resource: slicesAPI[1], Namespaces: everywhere})
	}
	return all
}

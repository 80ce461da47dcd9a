package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Names of checks that others need.
const (
	inventoryCheckName   = "inventory"
	initialSyncCheckName = "first word"
	servicesCheckName    = "Services"
)

// What gives the writer's credential its permissions, and what narrows them down.
const (
	chartDirectory = "deploy/slicefeed-writer"
	policyFile     = "deploy/manifests/writer-policy.yaml"
)

// runPreflight makes the checks before the flight.
func runPreflight(ctx context.Context, version string, inv command.Invocation[Config]) error {
	f, err := newPreflightChecker(inv.Config, version)
	if err != nil {
		return settings.NewConfigError(err)
	}
	return preflight.Run(ctx, inv.Out, f.checks())
}

// preflightChecker is a configuration, and who is asked whether it can work.
type preflightChecker struct {
	cfg       *Config
	sources   []*sourceCheck
	targets   targets.Config
	client    kubernetes.Interface
	cluster   preflight.Cluster
	namespace string // our own, of the Lease

	resolutions []targets.Resolution // of the Services that are ours, as a check has found them
}

func newPreflightChecker(cfg *Config, version string) (*preflightChecker, error) {
	config, namespace, errCluster := loadClusterConfig(cfg, version)
	configured, errSources := cfg.loadSources()
	if err := errors.Join(errCluster, errSources); err != nil {
		return nil, err
	}
	clock := &preflight.Clock{}
	config.Wrap(clock.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the consuming cluster: %w", err)
	}
	f, err := newOfflineChecker(cfg, namespace, configured)
	if err != nil {
		return nil, err
	}
	f.client = client
	f.cluster = preflight.Cluster{
		Client: client.Discovery().RESTClient(), Reviews: client.AuthorizationV1().SelfSubjectAccessReviews(),
		Host: config.Host, Clock: clock, Component: "the writer", Setting: "TARGET_KUBECONFIG", Role: chartDirectory,
	}
	return f, nil
}

// newOfflineChecker is a flight to which a cluster is still wanting.
func newOfflineChecker(cfg *Config, namespace string, configured []sources.Source) (*preflightChecker, error) {
	f := &preflightChecker{cfg: cfg, namespace: namespace}
	for _, s := range configured {
		f.sources = append(f.sources, &sourceCheck{Source: s, checker: f})
	}
	var err error
	f.targets, err = cfg.targetsConfig(namespace, configured)
	return f, err
}

// checks are those that the configuration asks for, in the order in which one would mend things.
func (f *preflightChecker) checks() []preflight.Check {
	all := f.certificateChecks()
	for _, o := range f.sources {
		all = append(all, o.linkChecks()...)
	}
	all = append(all, f.cluster.Checks(f.requiredPermissions(), f.excessPermissions())...)
	all = append(all, f.servicesCheck())
	if f.writesSlices() {
		all = append(all, preflight.Check{
			Name: "admission policy", DependsOn: []string{preflight.APIServer, f.permissionsCheckName("create", slicesAPI)}, Timeout: groupTimeout, Run: f.checkPolicy,
		})
	}
	for _, o := range f.sources {
		all = append(all, preflight.Check{Name: o.checkName("fence"), Run: o.checkAllowlist})
	}
	for _, o := range f.sources {
		all = append(all, o.probeCheck())
	}
	return all
}

// certificateChecks is our certificate and its key, and each file of CAs that a source has.
func (f *preflightChecker) certificateChecks() []preflight.Check {
	var all []preflight.Check
	for i, o := range f.sources {
		if slices.ContainsFunc(f.sources[:i], func(before *sourceCheck) bool { return before.CAFile == o.CAFile }) {
			continue
		}
		for _, c := range (preflight.Identity{Files: o.tlsFiles()}).Checks() {
			switch {
			case c.Name == preflight.PeerCA:
				c.Name = o.peerCACheckName()
			case i > 0:
				continue
			}
			all = append(all, c)
		}
	}
	return all
}

// writesSlices is false in a dry run.
func (f *preflightChecker) writesSlices() bool { return f.cfg.Store != "memory" }

// Resources and their groups.
var (
	servicesAPI = [2]string{"", "services"}
	slicesAPI   = [2]string{"discovery.k8s.io", "endpointslices"}
	eventsAPI   = [2]string{"events.k8s.io", "events"}
	leasesAPI   = [2]string{"coordination.k8s.io", "leases"}
)

// watchedNamespaces are the namespaces that the writer looks into, or that it is everywhere.
func (f *preflightChecker) watchedNamespaces() []string {
	if slices.Contains(f.targets.Namespaces, preflight.AllNamespaces) {
		return []string{allNamespaces}
	}
	all := slices.Clone(f.targets.Namespaces)
	if f.targets.NamedTarget.Service != "" {
		all = append(all, f.targets.NamedTarget.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// permissionsFor are permissions in each namespace that is watched.
func (f *preflightChecker) permissionsFor(verb string, resource [2]string) []preflight.Permission {
	var all []preflight.Permission
	for _, namespace := range f.watchedNamespaces() {
		all = append(all, preflight.Permission{Verb: verb, Group: resource[0], Resource: resource[1], Namespace: namespace})
	}
	return all
}

// permissionsCheckName is the name of their check.
func (f *preflightChecker) permissionsCheckName(verb string, resource [2]string) string {
	return preflight.PermissionsName(f.permissionsFor(verb, resource)...)
}

// requiredPermissions is what the writer does in the consuming cluster.
func (f *preflightChecker) requiredPermissions() []preflight.Permission {
	var all []preflight.Permission
	for _, verb := range []string{"list", "watch"} {
		all = append(all, f.permissionsFor(verb, servicesAPI)...)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		all = append(all, f.permissionsFor(verb, slicesAPI)...)
	}
	if !f.writesSlices() {
		return all
	}
	for _, verb := range []string{"create", "update", "delete"} {
		all = append(all, f.permissionsFor(verb, slicesAPI)...)
	}
	all = append(all, f.permissionsFor("create", eventsAPI)...)
	all = append(all, f.permissionsFor("patch", eventsAPI)...)
	lease := preflight.Permission{Verb: "create", Group: leasesAPI[0], Resource: leasesAPI[1], Namespace: f.namespace}
	all = append(all, lease)
	for _, verb := range []string{"get", "update"} {
		lease.Verb, lease.Name = verb, "slicefeed-"+f.cfg.Class
		all = append(all, lease)
	}
	return all
}

// excessPermissions is what a thief of the credential would like, and the writer never does.
func (f *preflightChecker) excessPermissions() []preflight.Permission {
	all := []preflight.Permission{{Verb: "update", Group: slicesAPI[0], Resource: slicesAPI[1], Namespace: allNamespaces}}
	if slices.Contains(f.watchedNamespaces(), preflight.AllNamespaces) {
		all = nil // it does
	}
	all = append(all, f.permissionsFor("update", servicesAPI)...)
	all = append(all, f.permissionsFor("update", [2]string{"", "endpoints"})...)
	all = append(all, f.permissionsFor("list", [2]string{"", "secrets"})...)
	all = append(all, f.permissionsFor("create", [2]string{"", "pods"})...)
	return append(all, preflight.Permission{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"})
}

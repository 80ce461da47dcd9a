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
	checkInventory = "inventory"
	checkWord      = "first word"
	checkServices  = "Services"
)

// What gives the writer's credential its permissions, and what narrows them down.
const (
	chartDirectory = "deploy/slicefeed-writer"
	policyFile     = "deploy/manifests/writer-policy.yaml"
)

// runPreflight makes the checks before the flight.
func runPreflight(ctx context.Context, version string, call command.Call[Config]) error {
	f, err := newFlight(call.Config, version)
	if err != nil {
		return settings.Wrong(err)
	}
	return preflight.Run(ctx, call.Out, f.checks())
}

// flight is a configuration, and who is asked whether it can work.
type flight struct {
	cfg       *Config
	origins   []*origin
	targets   targets.Config
	client    kubernetes.Interface
	cluster   preflight.Cluster
	namespace string // our own, of the Lease

	views []targets.View // of the Services that are ours, as a check has found them
}

func newFlight(cfg *Config, version string) (*flight, error) {
	config, namespace, errCluster := clusterConfig(cfg, version)
	configured, errSources := cfg.configured()
	if err := errors.Join(errCluster, errSources); err != nil {
		return nil, err
	}
	clock := &preflight.Clock{}
	config.Wrap(clock.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the consuming cluster: %w", err)
	}
	f, err := prepared(cfg, namespace, configured)
	if err != nil {
		return nil, err
	}
	f.client = client
	f.cluster = preflight.Cluster{
		Client: client.Discovery().RESTClient(), Reviews: client.AuthorizationV1().SelfSubjectAccessReviews(),
		Host: config.Host, Clock: clock, Half: "the writer", Setting: "TARGET_KUBECONFIG", Role: chartDirectory,
	}
	return f, nil
}

// prepared is a flight to which a cluster is still wanting.
func prepared(cfg *Config, namespace string, configured []sources.Source) (*flight, error) {
	f := &flight{cfg: cfg, namespace: namespace}
	for _, s := range configured {
		f.origins = append(f.origins, &origin{Source: s, flight: f})
	}
	var err error
	f.targets, err = cfg.wanted(namespace, configured)
	return f, err
}

// checks are those that the configuration asks for, in the order in which one would mend things.
func (f *flight) checks() []preflight.Check {
	all := f.identity()
	for _, o := range f.origins {
		all = append(all, o.checks()...)
	}
	all = append(all, f.cluster.Checks(f.needed(), f.excessive())...)
	all = append(all, f.services())
	if f.writes() {
		all = append(all, preflight.Check{
			Name: "admission policy", Needs: []string{preflight.APIServer, f.line("create", slicesAPI)}, Within: manyPatience, Run: f.policy,
		})
	}
	for _, o := range f.origins {
		all = append(all, preflight.Check{Name: o.check("fence"), Run: o.fence})
	}
	for _, o := range f.origins {
		all = append(all, o.probes())
	}
	return all
}

// identity is our certificate and its key, and each file of CAs that a source has.
func (f *flight) identity() []preflight.Check {
	var all []preflight.Check
	for i, o := range f.origins {
		if slices.ContainsFunc(f.origins[:i], func(before *origin) bool { return before.CAFile == o.CAFile }) {
			continue
		}
		for _, c := range (preflight.Identity{Files: o.files()}).Checks() {
			switch {
			case c.Name == preflight.PeerCA:
				c.Name = o.ca()
			case i > 0:
				continue
			}
			all = append(all, c)
		}
	}
	return all
}

// writes is false in a dry run.
func (f *flight) writes() bool { return f.cfg.Store != "memory" }

// Resources and their groups.
var (
	servicesAPI = [2]string{"", "services"}
	slicesAPI   = [2]string{"discovery.k8s.io", "endpointslices"}
	eventsAPI   = [2]string{"events.k8s.io", "events"}
	leasesAPI   = [2]string{"coordination.k8s.io", "leases"}
)

// watched are the namespaces that the writer looks into, or that it is everywhere.
func (f *flight) watched() []string {
	if slices.Contains(f.targets.Namespaces, preflight.Anywhere) {
		return []string{everywhere}
	}
	all := slices.Clone(f.targets.Namespaces)
	if f.targets.Named.Service != "" {
		all = append(all, f.targets.Named.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// may are permissions in each namespace that is watched.
func (f *flight) may(verb string, resource [2]string) []preflight.Permission {
	var all []preflight.Permission
	for _, namespace := range f.watched() {
		all = append(all, preflight.Permission{Verb: verb, Group: resource[0], Resource: resource[1], Namespace: namespace})
	}
	return all
}

// line is the name of their check.
func (f *flight) line(verb string, resource [2]string) string {
	return preflight.Line(f.may(verb, resource)...)
}

// needed is what the writer does in the consuming cluster.
func (f *flight) needed() []preflight.Permission {
	var all []preflight.Permission
	for _, verb := range []string{"list", "watch"} {
		all = append(all, f.may(verb, servicesAPI)...)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		all = append(all, f.may(verb, slicesAPI)...)
	}
	if !f.writes() {
		return all
	}
	for _, verb := range []string{"create", "update", "delete"} {
		all = append(all, f.may(verb, slicesAPI)...)
	}
	all = append(all, f.may("create", eventsAPI)...)
	all = append(all, f.may("patch", eventsAPI)...)
	lease := preflight.Permission{Verb: "create", Group: leasesAPI[0], Resource: leasesAPI[1], Namespace: f.namespace}
	all = append(all, lease)
	for _, verb := range []string{"get", "update"} {
		lease.Verb, lease.Name = verb, "slicefeed-"+f.cfg.Class
		all = append(all, lease)
	}
	return all
}

// excessive is what a thief of the credential would like, and the writer never does.
func (f *flight) excessive() []preflight.Permission {
	all := []preflight.Permission{{Verb: "update", Group: slicesAPI[0], Resource: slicesAPI[1], Namespace: everywhere}}
	if slices.Contains(f.watched(), preflight.Anywhere) {
		all = nil // it does
	}
	all = append(all, f.may("update", servicesAPI)...)
	all = append(all, f.may("update", [2]string{"", "endpoints"})...)
	all = append(all, f.may("list", [2]string{"", "secrets"})...)
	all = append(all, f.may("create", [2]string{"", "pods"})...)
	return append(all, preflight.Permission{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"})
}

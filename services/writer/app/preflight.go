package app

import (
	"context"
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Names of checks that others need.
const (
	checkInventory = "inventory"
	checkWord      = "first word"
	checkService   = "Service"
)

// manifests is the directory of the manifests that the writer's credential wants.
const manifests = "deploy/slicefeed-writer"

// runPreflight makes the checks before the flight.
func runPreflight(ctx context.Context, version string, call command.Call[Config]) error {
	f, err := newFlight(call.Config, version)
	if err != nil {
		return fmt.Errorf("%w:\n- %w", settings.ErrConfiguration, err)
	}
	return preflight.Run(ctx, call.Out, f.checks())
}

// flight is a configuration, and who is asked whether it can work.
type flight struct {
	cfg       *Config
	client    kubernetes.Interface
	cluster   preflight.Cluster
	namespace string // our own, of the Lease
	mode      prober.Mode

	// What checks have found out, for those that need them.
	word   subscriber.Snapshot
	target targets.Target
}

func newFlight(cfg *Config, version string) (*flight, error) {
	f := &flight{cfg: cfg}
	config, namespace, err := clusterConfig(cfg, version)
	if err != nil {
		return nil, err
	}
	clock := &preflight.Clock{}
	config.Wrap(clock.Wrap)
	f.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the consuming cluster: %w", err)
	}
	f.namespace = namespace
	f.cluster = preflight.Cluster{
		Client: f.client, Host: config.Host, Clock: clock, Half: "the writer", Setting: "TARGET_KUBECONFIG", Role: manifests,
	}
	f.mode, err = prober.ParseMode(cfg.ProbeMode)
	return f, err
}

// checks are those that the configuration asks for, in the order in which one would mend things.
func (f *flight) checks() []preflight.Check {
	all := preflight.Identity{Files: f.cfg.files()}.Checks()
	all = append(all,
		preflight.Check{Name: checkInventory, Needs: []string{preflight.OwnCertificate, preflight.OwnKey, preflight.PeerCA}, Run: f.inventory},
		preflight.Check{Name: checkWord, Needs: []string{checkInventory}, Run: f.firstWord},
	)
	all = append(all, f.cluster.Checks(f.needed(), f.excessive())...)
	all = append(all, preflight.Check{
		Name: checkService, Needs: f.names(preflight.APIServer, f.may("list", servicesAPI), f.may("list", slicesAPI)), Run: f.service,
	})
	if f.writes() {
		all = append(all, preflight.Check{
			Name: "admission policy", Needs: f.names(preflight.APIServer, f.may("create", slicesAPI)), Run: f.policy,
		})
	}
	all = append(all, preflight.Check{Name: "fence", Run: f.fence})
	if f.mode != prober.Off {
		all = append(all, preflight.Check{Name: "probes", Needs: []string{checkWord, checkService}, Run: f.probes})
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

// may is a permission in the target's namespace.
func (f *flight) may(verb string, resource [2]string) preflight.Permission {
	return preflight.Permission{Verb: verb, Group: resource[0], Resource: resource[1], Namespace: f.cfg.Namespace}
}

// names are those of checks: of permissions too.
func (f *flight) names(first string, permissions ...preflight.Permission) []string {
	all := []string{first}
	for _, p := range permissions {
		all = append(all, p.String())
	}
	return all
}

// needed is what the writer does in the consuming cluster.
func (f *flight) needed() []preflight.Permission {
	var all []preflight.Permission
	for _, resource := range [][2]string{servicesAPI, slicesAPI} {
		for _, verb := range []string{"get", "list", "watch"} {
			all = append(all, f.may(verb, resource))
		}
	}
	if !f.writes() {
		return all
	}
	for _, verb := range []string{"create", "update", "delete"} {
		all = append(all, f.may(verb, slicesAPI))
	}
	all = append(all, f.may("create", eventsAPI), f.may("patch", eventsAPI))
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
	anywhere := f.may("update", slicesAPI)
	anywhere.Namespace = preflight.Anywhere
	return []preflight.Permission{
		anywhere,
		f.may("update", servicesAPI),
		f.may("update", [2]string{"", "endpoints"}),
		f.may("list", [2]string{"", "secrets"}),
		f.may("create", [2]string{"", "pods"}),
		{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	}
}

// service wants a Service of a shape that can be served.
func (f *flight) service(ctx context.Context) (string, error) {
	svc, err := f.client.CoreV1().Services(f.cfg.Namespace).Get(ctx, f.cfg.Service, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		svc, err = nil, nil
	}
	if err != nil {
		return "", fmt.Errorf("read the Service: %w", err)
	}
	list, err := f.client.DiscoveryV1().EndpointSlices(f.cfg.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list EndpointSlices: %w", err)
	}
	existing := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		existing[i] = &list.Items[i]
	}
	wanted, err := f.cfg.wanted(f.namespace, []sources.Source{{Name: defaultSource, Ports: f.cfg.AllowedPorts}})
	if err != nil {
		return "", err
	}
	view, _ := targets.Resolve(wanted, targets.Found{Key: targets.Key{Namespace: f.cfg.Namespace, Name: f.cfg.Service}, Service: svc, Slices: existing})
	if view.Refusal != nil {
		return "", view.Refusal
	}
	target := view.Target
	f.target = target
	ours := 0
	for _, slice := range existing {
		if target.Desired().Owns(slice) {
			ours++
		}
	}
	if len(target.Foreign) > 0 {
		return "", preflight.Warning("consumers add the endpoints of slices that others manage to ours: %s: delete them unless that is meant", strings.Join(target.Foreign, ", "))
	}
	var ports []string
	for _, p := range target.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", *p.Port, *p.Protocol))
	}
	return fmt.Sprintf("%s/%s can be served, at port %s; slices of ours: %d", target.Namespace, target.Name, strings.Join(ports, ", "), ours), nil
}

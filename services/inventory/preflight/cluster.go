package preflight

import (
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/kubenodes"
)

// requiredPermissions returns the permissions that the inventory uses in the secured cluster.
func requiredPermissions(cfg *config.Config) []preflight.Permission {
	if cfg.SourceKind == "service" {
		s, _ := config.ParseServiceRef(cfg.SourceService) // Validate reports its error
		return []preflight.Permission{
			{Verb: "get", Resource: "services", Namespace: s.Namespace, Name: s.Name},
			{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: s.Namespace},
			{Verb: "watch", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: s.Namespace},
		}
	}
	all := []preflight.Permission{{Verb: "list", Resource: "nodes"}, {Verb: "watch", Resource: "nodes"}}
	if w, err := kubenodes.ParseWorkload(cfg.Workload); err == nil {
		all = append(all,
			preflight.Permission{Verb: "list", Resource: "pods", Namespace: w.Namespace},
			preflight.Permission{Verb: "watch", Resource: "pods", Namespace: w.Namespace})
	}
	return all
}

// excessPermissions are permissions that the inventory never uses and that would help an attacker
// with its credential.
var excessPermissions = []preflight.Permission{
	{Verb: "patch", Resource: "nodes"},
	{Verb: "delete", Resource: "nodes"},
	{Verb: "list", Resource: "secrets"},
	{Verb: "create", Resource: "pods"},
}

func (c *preflightChecker) clusterChecks() []preflight.Check {
	return preflight.Cluster{
		Client: c.cluster.RESTClient(), Reviews: c.cluster.AccessReviews(),
		Host: c.host, Clock: c.clock, Component: "the inventory", Setting: "SECURED_KUBECONFIG", Role: "deploy/slicefeed-inventory",
	}.Checks(requiredPermissions(c.cfg), excessPermissions)
}

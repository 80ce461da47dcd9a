package app

import (
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/inventory/kubenodes"
)

// requiredPermissions is what the inventory does in the secured cluster.
func requiredPermissions(cfg *Config) []preflight.Permission {
	if cfg.SourceKind == "service" {
		s, _ := parseServiceRef(cfg.SourceService) // its error is one of configuration, and told there
		return []preflight.Permission{
			{Verb: "get", Resource: "services", Namespace: s.namespace, Name: s.name},
			{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: s.namespace},
			{Verb: "watch", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: s.namespace},
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

// excessPermissions is what a thief of the credential would like, and the inventory never does.
var excessPermissions = []preflight.Permission{
	{Verb: "patch", Resource: "nodes"},
	{Verb: "delete", Resource: "nodes"},
	{Verb: "list", Resource: "secrets"},
	{Verb: "create", Resource: "pods"},
}

func (f *preflightChecker) clusterChecks() []preflight.Check {
	return preflight.Cluster{
		Client: f.cluster.RESTClient(), Reviews: f.cluster.AccessReviews(),
		Host: f.host, Clock: f.clock, Component: "the inventory", Setting: "SECURED_KUBECONFIG", Role: "deploy/slicefeed-inventory",
	}.Checks(requiredPermissions(f.cfg), excessPermissions)
}

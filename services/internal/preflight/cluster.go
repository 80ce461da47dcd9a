package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Permission is a verb that a credential may use on a resource. Namespace is empty for resources that
// have none.
type Permission struct{ Verb, Group, Resource, Namespace, Name string }

// AllNamespaces is the Namespace of a Permission that applies to all namespaces.
const AllNamespaces = "*"

func (p Permission) String() string {
	text := p.Verb + " " + p.Resource
	if p.Name != "" {
		text += " " + p.Name
	}
	switch p.Namespace {
	case "":
	case AllNamespaces:
		text += " in all namespaces"
	default:
		text += " in " + p.Namespace
	}
	return text
}

// PermissionsName returns the name of the check for permissions that differ only in their namespace.
func PermissionsName(same ...Permission) string {
	const maxListed = 3
	p := same[0]
	if len(same) > maxListed {
		p.Namespace = ""
		return fmt.Sprintf("%s in %d namespaces", p, len(same))
	}
	return p.inNamespaces(same)
}

// inNamespaces describes the permission in the namespaces of same.
func (p Permission) inNamespaces(same []Permission) string {
	namespaces := make([]string, len(same))
	for i := range same {
		namespaces[i] = same[i].Namespace
	}
	p.Namespace = strings.Join(namespaces, ", ")
	return p.String()
}

// accessReviewer reviews the permissions of its credential.
type accessReviewer interface {
	Create(context.Context, *authorizationv1.SelfSubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error)
}

// Cluster is an API server, and a component's credential for it.
type Cluster struct {
	Client    rest.Interface // of any group
	Reviews   accessReviewer
	Host      string
	Clock     *Clock // wraps the client's transport
	Component string // that uses it: "the inventory"
	Setting   string // that has its kubeconfig
	Role      string // directory of the chart with the role that it needs
}

// Names of checks that Cluster.Checks returns. PermissionsName returns those for permissions.
const (
	APIServer         = "API server"
	APIClock          = "API server clock"
	ExcessPermissions = "excess permissions"
)

// Checks returns the checks of the API server: that it responds, its clock, each needed permission (one
// line for those that differ only in their namespace), and that the credential has none of the excessive
// permissions, which would make it useful to a thief.
func (c Cluster) Checks(needed, excessive []Permission) []Check {
	all := []Check{
		{Name: APIServer, Run: c.checkReachable},
		{Name: APIClock, DependsOn: []string{APIServer}, Run: func(context.Context) (string, error) { return c.Clock.CheckSkew() }},
	}
	for _, same := range groupByNamespace(needed) {
		all = append(all, Check{Name: PermissionsName(same...), DependsOn: []string{APIServer}, Run: func(ctx context.Context) (string, error) {
			return c.checkRequired(ctx, same)
		}})
	}
	return append(all, Check{Name: ExcessPermissions, DependsOn: []string{APIServer}, Run: func(ctx context.Context) (string, error) {
		return c.checkExcess(ctx, excessive)
	}})
}

// groupByNamespace groups permissions that differ only in their namespace.
func groupByNamespace(all []Permission) (groups [][]Permission) {
	at := map[Permission]int{}
	for _, p := range all {
		key := p
		key.Namespace = ""
		if p.Namespace == "" || p.Namespace == AllNamespaces {
			key = p
		}
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// checkRequired requires permissions that differ only in their namespace.
func (c Cluster) checkRequired(ctx context.Context, same []Permission) (string, error) {
	var missing []Permission
	for _, p := range same {
		switch allowed, err := c.isAllowed(ctx, p); {
		case err != nil:
			return "", err
		case !allowed:
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return "allowed", nil
	}
	return "", fmt.Errorf("permission to %s missing; bind the role of %s to the credential", missing[0].inNamespaces(missing), c.Role)
}

// checkReachable requests the version, which needs no permission.
func (c Cluster) checkReachable(ctx context.Context) (string, error) {
	text, err := c.Client.Get().AbsPath("/version").SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("%w; check the address and CA in %s, and the network", err, c.Setting)
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("response is not a version; check that %s has the address of an API server", c.Setting)
	}
	return v.GitVersion + " at " + c.Host, nil
}

// isAllowed reports whether the credential has a permission. The API server does not store the review.
func (c Cluster) isAllowed(ctx context.Context, p Permission) (bool, error) {
	namespace := p.Namespace
	if namespace == AllNamespaces {
		namespace = metav1.NamespaceAll
	}
	review, err := c.Reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: p.Verb, Group: p.Group, Resource: p.Resource, Name: p.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review permission to %s: %w", p, err)
	}
	return review.Status.Allowed, nil
}

// checkExcess warns of permissions that would make a stolen credential useful.
func (c Cluster) checkExcess(ctx context.Context, excessive []Permission) (string, error) {
	advice := "use a separate credential with the role of " + c.Role
	var found []string
	var problems []error
	for _, p := range append([]Permission{{Verb: "*", Group: "*", Resource: "*"}}, excessive...) {
		allowed, err := c.isAllowed(ctx, p)
		if err != nil {
			problems = append(problems, err)
		}
		if allowed && p.Verb == "*" {
			return "", Warning("all permissions; a stolen credential controls the cluster; %s", advice)
		}
		if allowed {
			found = append(found, p.String())
		}
	}
	switch {
	case len(problems) > 0:
		return "", errors.Join(problems...)
	case len(found) > 0:
		return "", Warning("%s; %s never needs them; %s", strings.Join(found, ", "), c.Component, advice)
	}
	return "none found", nil
}

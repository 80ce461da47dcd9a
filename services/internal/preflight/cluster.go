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

// Permission is something that a credential may do.
type Permission struct{ Verb, Group, Resource, Namespace, Name string }

// AllNamespaces as a Permission's namespace says: in every one.
const AllNamespaces = "*"

func (p Permission) String() string {
	words := p.Verb + " " + p.Resource
	if p.Name != "" {
		words += " " + p.Name
	}
	switch p.Namespace {
	case "":
	case AllNamespaces:
		words += " in all namespaces"
	default:
		words += " in " + p.Namespace
	}
	return words
}

// PermissionsName is the name of the check of permissions that differ only in their namespace.
func PermissionsName(same ...Permission) string {
	const few = 3
	p := same[0]
	if len(same) > few {
		p.Namespace = ""
		return fmt.Sprintf("%s in %d namespaces", p, len(same))
	}
	return p.inNamespaces(same)
}

// inNamespaces is the permission in the namespaces of these.
func (p Permission) inNamespaces(same []Permission) string {
	all := make([]string, len(same))
	for i := range same {
		all[i] = same[i].Namespace
	}
	p.Namespace = strings.Join(all, ", ")
	return p.String()
}

// accessReviewer asks what its credential may do.
type accessReviewer interface {
	Create(context.Context, *authorizationv1.SelfSubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error)
}

// Cluster is an API server, and a credential for it that a half was given.
type Cluster struct {
	Client    rest.Interface // of any group
	Reviews   accessReviewer
	Host      string
	Clock     *Clock // its client is wrapped by this
	Component string // whose it is: "the inventory"
	Setting   string // that names its kubeconfig
	Role      string // the directory of the chart that gives what is needed
}

// The names of checks that Cluster.Checks returns; those of permissions are their Line.
const (
	APIServer = "API server"
	APIClock  = "clock of the API server"
)

// Checks are that it answers, its clock, each permission that is needed (one line for those
// that differ only in their namespace), and that the credential has none of those that a
// thief would like.
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
	return append(all, Check{Name: "no more permissions", DependsOn: []string{APIServer}, Run: func(ctx context.Context) (string, error) {
		return c.checkExcess(ctx, excessive)
	}})
}

// groupByNamespace gathers permissions that differ only in their namespace.
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

// checkRequired wants permissions that differ only in their namespace.
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
	return "", fmt.Errorf("the credential may not %s: bind the role of %s to it", missing[0].inNamespaces(missing), c.Role)
}

// checkReachable asks for the version, which anyone may ask for.
func (c Cluster) checkReachable(ctx context.Context) (string, error) {
	text, err := c.Client.Get().AbsPath("/version").SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("%w: check %s, its address and its CA, and the network in between", err, c.Setting)
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("its answer is no version: is the address in %s that of an API server?", c.Setting)
	}
	return v.GitVersion + " at " + c.Host, nil
}

// isAllowed asks whether the credential has a permission. To ask creates nothing.
func (c Cluster) isAllowed(ctx context.Context, p Permission) (bool, error) {
	namespace := p.Namespace
	if namespace == AllNamespaces {
		namespace = metav1.NamespaceAll
	}
	answer, err := c.Reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: p.Verb, Group: p.Group, Resource: p.Resource, Name: p.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether the credential may %s: %w", p, err)
	}
	return answer.Status.Allowed, nil
}

// checkExcess wants the credential to be of little use to a thief.
func (c Cluster) checkExcess(ctx context.Context, excessive []Permission) (string, error) {
	advice := fmt.Sprintf("give %s one of its own, with the role of %s", c.Component, c.Role)
	var found []string
	var problems []error
	for _, p := range append([]Permission{{Verb: "*", Group: "*", Resource: "*"}}, excessive...) {
		allowed, err := c.isAllowed(ctx, p)
		if err != nil {
			problems = append(problems, err)
		}
		if allowed && p.Verb == "*" {
			return "", Warning("the credential may do everything: %s", advice)
		}
		if allowed {
			found = append(found, p.String())
		}
	}
	switch {
	case len(problems) > 0:
		return "", errors.Join(problems...)
	case len(found) > 0:
		return "", Warning("the credential may also %s, which %s never does: %s", strings.Join(found, ", "), c.Component, advice)
	}
	return "the credential may do nothing dangerous of what was tried", nil
}

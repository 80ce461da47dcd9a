package preflight

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Permission is a verb that a credential may use on a resource.
type Permission struct {
	Verb, Group, Resource, Name string
	Namespaces                  []string // in each of them; none for resources without namespaces
}

// AllNamespaces is the only one of Namespaces if a Permission applies to all.
const AllNamespaces = "*"

// String returns the name of the permission's check, which counts the namespaces if they are many.
func (p Permission) String() string {
	const maxListed = 3
	if len(p.Namespaces) > maxListed {
		return fmt.Sprintf("%s in %d namespaces", p.in(nil), len(p.Namespaces))
	}
	return p.in(p.Namespaces)
}

// in describes the permission in some of its namespaces.
func (p Permission) in(namespaces []string) string {
	text := strings.TrimSpace(p.Verb + " " + p.Resource + " " + p.Name)
	switch list := strings.Join(namespaces, ", "); list {
	case "":
		return text
	case AllNamespaces:
		return text + " in all namespaces"
	default:
		return text + " in " + list
	}
}

// Cluster is an API server, and a component's credential for it.
type Cluster struct {
	Component string // that uses it: "the inventory"
	Setting   string // that has its kubeconfig
	Role      string // directory of the chart with the role that it needs

	Client kubernetes.Interface // this and the following by Connect
	Host   string
	clock  *clock
}

// Connect returns the cluster with a client. It does not make a request.
func (c *Cluster) Connect(config *rest.Config) (*Cluster, error) {
	c.Host, c.clock = config.Host, &clock{}
	config.Wrap(c.clock.wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client of %s: %w", config.Host, err)
	}
	c.Client = client
	return c, nil
}

// Names of checks that Cluster.Checks returns. Those for permissions have the permission's text.
const (
	APIServer         = "API server"
	APIClock          = "API server clock"
	ExcessPermissions = "excess permissions"
)

// Checks returns the checks of the API server: that it responds, its clock, each needed permission, and
// that the credential has none of the excessive permissions, which would make it useful to a thief.
func (c *Cluster) Checks(needed, excessive []Permission) []Check {
	all := []Check{
		{Name: APIServer, Run: c.checkReachable},
		{Name: APIClock, DependsOn: []string{APIServer}, Run: func(context.Context) (string, error) { return CheckSkew(c.clock.read()) }},
	}
	for _, p := range needed {
		all = append(all, Check{Name: p.String(), DependsOn: []string{APIServer}, Run: func(ctx context.Context) (string, error) {
			_, missing, err := c.review(ctx, p)
			if len(missing) > 0 {
				err = fmt.Errorf("permission to %s missing; bind the role of %s to the credential", p.in(missing), c.Role)
			}
			return "allowed", err
		}})
	}
	return append(all, Check{Name: ExcessPermissions, DependsOn: []string{APIServer}, Run: func(ctx context.Context) (string, error) {
		return c.checkExcess(ctx, excessive)
	}})
}

// checkReachable requests the version, which needs no permission.
func (c *Cluster) checkReachable(ctx context.Context) (string, error) {
	text, err := c.Client.Discovery().RESTClient().Get().AbsPath("/version").SetHeader("Accept", "application/json").Do(ctx).Raw()
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

// review returns in which namespaces the credential has a permission, and in which not. Without namespaces, it returns
// an empty one. The API server does not store the reviews.
func (c *Cluster) review(ctx context.Context, p Permission) (allowed, missing []string, err error) {
	namespaces := p.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		review, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: strings.TrimSuffix(namespace, AllNamespaces), Verb: p.Verb, Group: p.Group, Resource: p.Resource, Name: p.Name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, nil, fmt.Errorf("review permission to %s: %w", p.in([]string{namespace}), err)
		}
		if review.Status.Allowed {
			allowed = append(allowed, namespace)
		} else {
			missing = append(missing, namespace)
		}
	}
	return allowed, missing, nil
}

// checkExcess warns of permissions that would make a stolen credential useful.
func (c *Cluster) checkExcess(ctx context.Context, excessive []Permission) (string, error) {
	advice := "use a separate credential with the role of " + c.Role
	everything, _, err := c.review(ctx, Permission{Verb: "*", Group: "*", Resource: "*"})
	if len(everything) > 0 {
		return "", Warning("all permissions; a stolen credential controls the cluster; %s", advice)
	}
	var found []string
	problems := []error{err}
	for _, p := range excessive {
		allowed, _, err := c.review(ctx, p)
		problems = append(problems, err)
		if len(allowed) > 0 {
			found = append(found, p.in(allowed))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	if len(found) > 0 {
		return "", Warning("%s; %s never needs them; %s", strings.Join(found, ", "), c.Component, advice)
	}
	return "none found", nil
}

// clock reads a server's clock from the Date header of its responses.
type clock struct{ last atomic.Pointer[clockReading] }

type clockReading struct{ theirs, readAt time.Time }

type roundTripFunc func(*http.Request) (*http.Response, error)

func (t roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// wrap returns a transport that records the clock from its responses.
func (c *clock) wrap(base http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		response, err := base.RoundTrip(r)
		if err == nil {
			if theirs, err := http.ParseTime(response.Header.Get("Date")); err == nil {
				c.last.Store(&clockReading{theirs, time.Now()})
			}
		}
		return response, err
	})
}

func (c *clock) read() (theirs, readAt time.Time) {
	reading := cmp.Or(c.last.Load(), &clockReading{})
	return reading.theirs, reading.readAt
}

// maxSkew bounds the difference of two clocks. Slicefeed compares no clocks, but tokens and certificates
// have times, and the strictest verifiers of tokens tolerate a minute.
const maxSkew = 30 * time.Second

// CheckSkew compares another clock with this machine's clock when it was read. The other one is zero if
// it is unknown.
func CheckSkew(theirs, readAt time.Time) (string, error) {
	if theirs.IsZero() {
		return "", Warning("no Date header in its responses; the clocks cannot be compared")
	}
	offset, text := theirs.Sub(readAt).Round(time.Second), "in sync"
	if offset.Abs() > 2*time.Second {
		text = fmt.Sprintf("%s %s this machine's", offset.Abs(), map[bool]string{true: "ahead of", false: "behind"}[offset > 0])
	}
	if offset.Abs() > maxSkew {
		return "", fmt.Errorf("%s; tokens and certificates that were just issued are rejected; synchronize both clocks (NTP)", text)
	}
	return text, nil
}

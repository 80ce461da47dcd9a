package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/inventory/kubenodes"
)

// permission is something that a credential may do.
type permission struct{ verb, group, resource, namespace, name string }

func (p permission) String() string {
	words := p.verb + " " + p.resource
	if p.name != "" {
		words += " " + p.name
	}
	if p.namespace != "" {
		words += " in " + p.namespace
	}
	return words
}

// needed is what the inventory does in the secured cluster.
func needed(cfg *Config) []permission {
	if cfg.SourceKind == "service" {
		s, _ := parseService(cfg.Service) // its error is one of configuration, and told there
		return []permission{
			{"get", "", "services", s.namespace, s.name},
			{"list", "discovery.k8s.io", "endpointslices", s.namespace, ""},
			{"watch", "discovery.k8s.io", "endpointslices", s.namespace, ""},
		}
	}
	all := []permission{{"get", "", "nodes", "", ""}, {"list", "", "nodes", "", ""}, {"watch", "", "nodes", "", ""}}
	if w, err := kubenodes.ParseWorkload(cfg.Workload); err == nil {
		all = append(all, permission{"list", "", "pods", w.Namespace, ""}, permission{"watch", "", "pods", w.Namespace, ""})
	}
	return all
}

// excessive is what a thief of the credential would like, and the inventory never does.
var excessive = []permission{
	{"*", "*", "*", "", ""},
	{"patch", "", "nodes", "", ""},
	{"delete", "", "nodes", "", ""},
	{"list", "", "secrets", "", ""},
	{"create", "", "pods", "", ""},
}

func (f *flight) clusterChecks() []preflight.Check {
	all := []preflight.Check{
		{Name: checkCluster, Run: f.reach},
		{Name: "clock of the API server", Needs: []string{checkCluster}, Run: func(context.Context) (string, error) {
			return skew(f.dates.offset())
		}},
	}
	for _, p := range needed(f.cfg) {
		all = append(all, preflight.Check{Name: p.String(), Needs: []string{checkCluster}, Run: func(ctx context.Context) (string, error) {
			allowed, err := f.may(ctx, p)
			switch {
			case err != nil:
				return "", err
			case !allowed:
				return "", fmt.Errorf("the credential may not %s: bind the role of deploy/slicefeed-inventory to it", p)
			}
			return "allowed", nil
		}})
	}
	return append(all, preflight.Check{Name: "no more permissions", Needs: []string{checkCluster}, Run: f.modest})
}

// reach asks for the version, which anyone may ask for.
func (f *flight) reach(ctx context.Context) (string, error) {
	text, err := f.cluster.Discovery().RESTClient().Get().AbsPath("/version").SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("%w: check SECURED_KUBECONFIG, its address and its CA, and the network in between", err)
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.GitVersion == "" {
		return "", errors.New("its answer is no version: is the address in SECURED_KUBECONFIG that of an API server?")
	}
	return v.GitVersion + " at " + f.host, nil
}

// may asks whether the credential has a permission. To ask creates nothing.
func (f *flight) may(ctx context.Context, p permission) (bool, error) {
	answer, err := f.cluster.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: p.namespace, Verb: p.verb, Group: p.group, Resource: p.resource, Name: p.name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether the credential may %s: %w", p, err)
	}
	return answer.Status.Allowed, nil
}

// modest wants the credential to be of little use to a thief.
func (f *flight) modest(ctx context.Context) (string, error) {
	var found []string
	for _, p := range excessive {
		allowed, err := f.may(ctx, p)
		if err != nil {
			return "", err
		}
		if allowed && p.verb == "*" {
			return "", preflight.Warning("the credential may do everything: give the inventory one of its own, with the role of deploy/slicefeed-inventory")
		}
		if allowed {
			found = append(found, p.String())
		}
	}
	if len(found) > 0 {
		return "", preflight.Warning("the credential may also %s, which the inventory never does: give it one of its own, with the role of deploy/slicefeed-inventory",
			strings.Join(found, ", "))
	}
	return "the credential may do nothing dangerous of what was tried", nil
}

// dates reads the clock of a server from its answers.
type dates struct {
	mu    sync.Mutex
	ahead time.Duration
	known bool
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func (d *dates) wrap(base http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		answer, err := base.RoundTrip(r)
		if err == nil {
			d.read(answer.Header.Get("Date"), time.Now())
		}
		return answer, err
	})
}

func (d *dates) read(header string, now time.Time) {
	at, err := http.ParseTime(header)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead, d.known = at.Sub(now), true
}

func (d *dates) offset() (ahead time.Duration, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ahead, d.known
}

// Package preflight runs the checks of a component one after the other, and prints them. It has those that both
// components share. It guarantees that each check ends within its timeout, and that text from outside cannot leave its
// line or control a terminal. It changes nothing.
package preflight

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

const (
	timeout      = 15 * time.Second // of a check
	maxTextBytes = 2000             // of a line, after the check's name and result
)

// Check is one dependency to check.
type Check struct {
	Name string
	Gate bool // if it fails, the checks after it do not run

	// Run returns what it observed. In its error, which may be a Warning, the advice follows the last semicolon.
	Run func(ctx context.Context) (observed string, err error)
}

type warning struct{ error }

// Warning returns an error about something that works, but needs the attention of a person. It does not fail a check.
func Warning(format string, args ...any) error { return warning{fmt.Errorf(format, args...)} }

// line is the result of a check.
type line struct {
	Name   string `json:"name"`
	Result string `json:"result"` // ok, warning or FAILED
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
}

// Run runs the checks and prints them, as a table one after the other. Its error says how many failed.
func Run(ctx context.Context, out io.Writer, format command.Format, checks []Check) error {
	width, failed, lines := 0, 0, []line{}
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	for _, c := range checks {
		l := c.run(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		lines = append(lines, l)
		if format.IsTable() {
			fmt.Fprintf(out, "%-*s  %-7s  %s\n", width, l.Name, l.Result, l.Text)
			if l.Advice != "" {
				fmt.Fprintf(out, "%*s  %s\n", width+9, "", l.Advice)
			}
		}
		if l.Result == "FAILED" {
			failed++
			if c.Gate {
				break
			}
		}
	}
	if !format.IsTable() {
		if err := format.Write(out, map[string][]line{"checks": lines}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(lines))
	}
	return nil
}

func (c Check) run(ctx context.Context) line {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := c.Run(ctx)
	l := line{Name: c.Name, Result: "ok"}
	if err != nil {
		l.Result, text = "FAILED", err.Error()
		if errors.As(err, new(warning)) {
			l.Result = "warning"
		}
		if at := strings.LastIndex(text, "; "); at >= 0 {
			text, l.Advice = text[:at], singleLine(text[at+1:])
		}
	}
	l.Text = singleLine(text)
	return l
}

func singleLine(text string) string {
	return display.Truncate(strings.Join(strings.Fields(display.Sanitize(text)), " "), maxTextBytes)
}

// Certificates returns a check of files of this end of a link. Problems name the setting of a file in names.
func Certificates(name string, files, names link.Files, usage x509.ExtKeyUsage) Check {
	return Check{Name: name, Run: func(context.Context) (string, error) {
		if err := files.Check(usage, names, settings.FileChecks{Strict: true}); err != nil {
			return "", err
		}
		var facts []string
		for _, path := range []string{files.Cert, files.PeerCA} {
			certs, _ := link.ReadCertificates(path) // an error was reported, or the file is not set
			for _, c := range certs {
				facts = append(facts, fmt.Sprintf("%s until %s", link.DescribeCertificate(c), c.NotAfter.UTC().Format(time.DateOnly)))
			}
		}
		return strings.Join(facts, ", "), nil
	}}
}

// Cluster is an API server, and what a component's credential needs there.
type Cluster struct {
	Client  kubernetes.Interface
	Host    string
	Setting string // that has its kubeconfig
	Chart   string // folder of the chart that has the role

	Needed []Permission
	Excess []Permission // that the component never uses, and that would be of use to a thief of the credential
}

// Permission is what may be done with a resource.
type Permission struct {
	Group, Resource, Name string

	Verbs      []string
	Namespaces []string // nil: the resource has none; AllNamespaces alone: all
}

// AllNamespaces stands for all namespaces.
const AllNamespaces = "*"

// Checks returns the checks of the API server: that it responds, each needed permission, and those in excess.
func (c *Cluster) Checks() []Check {
	checks := []Check{{Name: "API server", Gate: true, Run: func(ctx context.Context) (string, error) {
		// The version needs no permission.
		if err := c.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
			return "", fmt.Errorf("%s: %w; check the address and CA in %s, and the network", c.Host, err, c.Setting)
		}
		return c.Host, nil
	}}}
	for _, p := range c.Needed {
		checks = append(checks, Check{Name: strings.TrimSpace(p.Resource + " " + p.Name), Run: func(ctx context.Context) (string, error) {
			allowed, missing, err := p.review(ctx, c.Client)
			if len(missing) > 0 {
				err = fmt.Errorf("may not %s; bind the role of %s to the credential", strings.Join(missing, ", "), c.Chart)
			}
			return "may " + strings.Join(allowed, ", "), err
		}})
	}
	return append(checks, Check{Name: "excess permissions", Run: func(ctx context.Context) (string, error) {
		var found []string
		for _, p := range c.Excess {
			allowed, _, err := p.review(ctx, c.Client)
			if err != nil {
				return "", err
			}
			found = append(found, allowed...)
		}
		if len(found) > 0 {
			return "", Warning("may %s, and never does; use a separate credential with the role of %s", strings.Join(found, ", "), c.Chart)
		}
		return "none found", nil
	}})
}

// review returns what of the permission the credential has, and what not, for each verb and namespace. The API server does
// not store the reviews.
func (p Permission) review(ctx context.Context, client kubernetes.Interface) (allowed, missing []string, err error) {
	namespaces := p.Namespaces
	if namespaces == nil {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		for _, verb := range p.Verbs {
			text := strings.Join(strings.Fields(verb+" "+p.Resource+" "+p.Name), " ")
			if namespace == AllNamespaces {
				text += " in all namespaces"
			} else if namespace != "" {
				text += " in " + namespace
			}
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: strings.TrimSuffix(namespace, AllNamespaces), Verb: verb, Group: p.Group, Resource: p.Resource, Name: p.Name,
				}},
			}, metav1.CreateOptions{})
			switch {
			case err != nil:
				return nil, nil, fmt.Errorf("review permission to %s: %w", text, err)
			case review.Status.Allowed:
				allowed = append(allowed, text)
			default:
				missing = append(missing, text)
			}
		}
	}
	return allowed, missing, nil
}

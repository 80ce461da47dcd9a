package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/clientlist"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
)

// checkClients reads the client list. If Services are exported, each client needs some.
func (c *preflightChecker) checkClients() (string, error) {
	list, err := clientlist.Open(c.cfg.ClientsFile)
	if err != nil || !c.cfg.ExportsServices() {
		return "valid", err
	}
	var without []string
	for _, g := range list.Grants() {
		if len(g.Services) == 0 {
			without = append(without, string(g.SAN))
		}
	}
	switch {
	case len(without) == len(list.Grants()):
		return "", errors.New("no client has services, so none may see an exported Service; add services such as [shop/web] to each client")
	case len(without) > 0:
		return "", preflight.Warning(
			"clients without services see no exported Service: %s; add services such as [shop/web] to them",
			display.List(without),
		)
	}
	return "valid", nil
}

// grantedServices returns the patterns of all clients, sorted.
func (c *preflightChecker) grantedServices() []string {
	list, err := clientlist.Open(c.cfg.ClientsFile)
	if err != nil {
		return nil // checkClients reports it
	}
	var all []string
	for _, g := range list.Grants() {
		all = append(all, g.Services...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// exportPermissions returns the permissions that exported Services need. A Service that clients may see by its name alone
// needs a permission for that name, which checkExported uses.
func (c *preflightChecker) exportPermissions() (all []preflight.Permission) {
	var whole, namespaces []string // in which clients may see any Service, and some
	for _, pattern := range c.grantedServices() {
		namespace, _, _ := strings.Cut(pattern, "/")
		namespaces = append(namespaces, namespace)
		if strings.Contains(pattern, "*") {
			whole = append(whole, namespace)
		}
	}
	if whole = mergeNamespaces(whole); len(whole) > 0 {
		all = append(all, preflight.Permission{Verb: "get", Resource: "services", Namespaces: whole})
	}
	if namespaces = mergeNamespaces(namespaces); len(namespaces) > 0 { // else checkClients fails
		all = append(all, slicePermissions(namespaces)...)
	}
	return all
}

// mergeNamespaces returns sorted namespaces without duplicates, or preflight.AllNamespaces alone if it is among them.
func mergeNamespaces(sorted []string) []string {
	if slices.Contains(sorted, preflight.AllNamespaces) {
		return []string{preflight.AllNamespaces}
	}
	return slices.Compact(sorted)
}

// checkExported reads each Service that a client may see by its name, and checks that it is exported.
func (c *preflightChecker) checkExported(ctx context.Context) (string, error) {
	selector, err := labels.Parse(c.cfg.ExportSelector)
	if err != nil {
		return "", err
	}
	named := 0
	var missing, unlabeled []string
	for _, pattern := range c.grantedServices() {
		if strings.Contains(pattern, "*") {
			continue
		}
		named++
		namespace, name, _ := strings.Cut(pattern, "/")
		service, err := c.cluster.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, pattern)
		case apierrors.IsForbidden(err):
			return "", fmt.Errorf(
				"permission to get services %s in %s missing; bind the role of %s to the credential",
				name,
				namespace,
				c.cluster.Role,
			)
		case err != nil:
			return "", fmt.Errorf("get Service %s: %w", pattern, err)
		case !selector.Matches(labels.Set(service.Labels)):
			unlabeled = append(unlabeled, pattern)
		}
	}
	var problems []string
	if len(missing) > 0 {
		problems = append(problems, "do not exist: "+display.List(missing)+"; create them, or correct services in ALLOWED_CLIENTS_FILE")
	}
	if len(unlabeled) > 0 {
		problems = append(problems, fmt.Sprintf("without the labels %s: %s; give them these labels", selector, display.List(unlabeled)))
	}
	if len(problems) > 0 {
		return "", preflight.Warning("%s", strings.Join(problems, "; "))
	}
	return fmt.Sprintf("named in ALLOWED_CLIENTS_FILE: %d, all exported", named), nil
}

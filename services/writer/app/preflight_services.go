package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// servicesCheck looks for every Service that is ours, and wants each of a shape that can be served.
func (f *preflightChecker) servicesCheck() preflight.Check {
	return checkGroup{
		Check: preflight.Check{
			Name: servicesCheckName, DependsOn: []string{preflight.APIServer, f.permissionsCheckName("list", servicesAPI), f.permissionsCheckName("list", slicesAPI)}, Timeout: groupTimeout,
		},
		linePrefix: "Service ",
		collect:    f.findServices,
		summarize: func(passed []string, all int) string {
			if len(passed) == 0 {
				return fmt.Sprintf("none of %d can be served", all)
			}
			return fmt.Sprintf("%d of %d can be served: %s", len(passed), all, abbreviate(passed))
		},
	}.toCheck()
}

// findServices judges each Service of the namespaces that are watched, as serve would.
func (f *preflightChecker) findServices(ctx context.Context) ([]finding, error) {
	for _, namespace := range f.watchedNamespaces() {
		if namespace == preflight.AllNamespaces {
			namespace = metav1.NamespaceAll
		}
		services, err := f.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list Services: %w", err)
		}
		existing, err := f.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list EndpointSlices: %w", err)
		}
		for _, found := range f.targetInputs(namespace, services.Items, existing.Items) {
			if view, _ := targets.Resolve(f.targets, found); view.Relevant {
				f.resolutions = append(f.resolutions, view)
			}
		}
	}
	if len(f.resolutions) == 0 {
		where := abbreviate(f.watchedNamespaces())
		if where == preflight.AllNamespaces {
			where = "any namespace"
		}
		return nil, preflight.Warning("no Service of %s is labelled %s: %s, and TARGET_SERVICE_NAME is not set: there is nothing to do", where, targets.LabelClass, f.targets.Class)
	}
	all := make([]finding, len(f.resolutions))
	for i, view := range f.resolutions {
		all[i] = evaluateService(view)
	}
	if len(all) == 1 { // the line's name does not say whose it is
		all[0] = all[0].withName()
	}
	return all, nil
}

// withName says of whom it speaks.
func (f finding) withName() finding {
	for _, text := range []*string{&f.warning, &f.failure} {
		if *text != "" {
			*text = f.name + ": " + *text
		}
	}
	return f
}

// targetInputs are all Services of a namespace (or of all), and the one given by name even if
// it is not there, sorted.
func (f *preflightChecker) targetInputs(namespace string, services []corev1.Service, existing []discoveryv1.EndpointSlice) []targets.Input {
	slicesByNamespace := map[string][]*discoveryv1.EndpointSlice{}
	for i := range existing {
		slicesByNamespace[existing[i].Namespace] = append(slicesByNamespace[existing[i].Namespace], &existing[i])
	}
	byKey := map[targets.Key]*corev1.Service{}
	if named := f.targets.NamedTarget; named.Service != "" && (named.Namespace == namespace || namespace == metav1.NamespaceAll) {
		byKey[targets.Key{Namespace: named.Namespace, Name: named.Service}] = nil
	}
	for i := range services {
		byKey[targets.Key{Namespace: services[i].Namespace, Name: services[i].Name}] = &services[i]
	}
	var all []targets.Input
	now := time.Now()
	for key, service := range byKey {
		all = append(all, targets.Input{Key: key, Service: service, Slices: slicesByNamespace[key.Namespace], Now: now})
	}
	slices.SortFunc(all, func(a, b targets.Input) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

// evaluateService says whether a Service can be served, and what someone should know of it.
func evaluateService(view targets.Resolution) finding {
	t := view.Target
	found := finding{name: t.String()}
	owned := 0
	for _, slice := range view.Slices {
		if t.Desired().Owns(slice) {
			owned++
		}
	}
	switch {
	case view.OptedOut:
		found.warning = fmt.Sprintf("it has left this writer, which deletes its slices of it: %d", owned)
	case view.PendingOptOut != nil:
		found.warning = view.PendingOptOut.Message
	case view.Rejection != nil:
		found.failure = view.Rejection.Message
	case view.Paused:
		found.warning = "it is paused: nothing is written for it"
	case view.AnnotationError != nil:
		found.warning = view.AnnotationError.Message
	case len(t.ForeignSlices)+len(t.OtherClassSlices) > 0:
		found.warning = fmt.Sprintf("consumers add the endpoints of slices that others manage to ours: %s: delete them unless that is meant", abbreviate(slices.Concat(t.ForeignSlices, t.OtherClassSlices)))
	}
	var ports []string
	for _, p := range t.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", *p.Port, *p.Protocol))
	}
	found.detail = fmt.Sprintf("%s can be served, at port %s; slices of ours: %d", t.Key, abbreviate(ports), owned)
	return found
}

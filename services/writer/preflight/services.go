package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// servicesCheck finds all targets, and checks whether each can be managed.
func (pc *checker) servicesCheck() preflight.Check {
	return preflight.Check{
		Name: servicesCheckName, DependsOn: []string{preflight.APIServer, pc.permissionsCheckName("list", servicesAPI), pc.permissionsCheckName("list", slicesAPI)},
		Timeout: groupTimeout, Run: pc.checkServices,
	}
}

func (pc *checker) checkServices(ctx context.Context) (string, error) {
	findings, err := pc.findServices(ctx)
	if err != nil {
		return "", err
	}
	if f := &findings[0]; len(findings) == 1 && f.Err != nil { // the name of the line does not have the Service
		f.Err = fmt.Errorf("%s: %w", f.Name, f.Err)
	}
	return preflight.Summarize("Service ", findings, func(passed []string) string {
		if len(passed) == 0 {
			return fmt.Sprintf("none of %d can be managed", len(findings))
		}
		return fmt.Sprintf("%d of %d can be managed: %s", len(passed), len(findings), abbreviate(passed))
	})
}

// findServices evaluates each Service in the watched namespaces, as serve does.
func (pc *checker) findServices(ctx context.Context) ([]preflight.Finding, error) {
	for _, namespace := range pc.watchedNamespaces() {
		if namespace == config.AllNamespaces {
			namespace = metav1.NamespaceAll
		}
		services, err := pc.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list Services: %w", err)
		}
		existing, err := pc.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list EndpointSlices: %w", err)
		}
		for _, input := range pc.targetInputs(namespace, services.Items, existing.Items) {
			if resolution, _ := targets.Resolve(pc.targets, input); resolution.Relevant {
				pc.resolutions = append(pc.resolutions, resolution)
			}
		}
	}
	if len(pc.resolutions) == 0 {
		where := abbreviate(pc.watchedNamespaces())
		if where == config.AllNamespaces {
			where = "any namespace"
		}
		return nil, preflight.Warning("no Service of %s is labeled %s: %s, and TARGET_SERVICE_NAME is not set; nothing will be written; label a Service", where, targets.LabelClass, pc.targets.Class)
	}
	all := make([]preflight.Finding, len(pc.resolutions))
	for i, resolution := range pc.resolutions {
		all[i] = evaluateService(resolution)
	}
	return all, nil
}

// targetInputs returns all Services of a namespace (or of all), and the named target even if it
// does not exist, sorted.
func (pc *checker) targetInputs(namespace string, services []corev1.Service, existing []discoveryv1.EndpointSlice) []targets.Input {
	slicesByNamespace := map[string][]*discoveryv1.EndpointSlice{}
	for i := range existing {
		slicesByNamespace[existing[i].Namespace] = append(slicesByNamespace[existing[i].Namespace], &existing[i])
	}
	byKey := map[targets.Key]*corev1.Service{}
	if named := pc.targets.NamedTarget; named.Service != "" && (named.Namespace == namespace || namespace == metav1.NamespaceAll) {
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

// evaluateService reports whether a Service can be managed, and warnings about it.
func evaluateService(resolution targets.Resolution) preflight.Finding {
	t := resolution.Target
	found := preflight.Finding{Name: t.String()}
	owned := 0
	for _, slice := range resolution.Slices {
		if t.Desired().Owns(slice) {
			owned++
		}
	}
	switch {
	case resolution.OptedOut:
		found.Err = preflight.Warning("opted out; its slices will be deleted: %d", owned)
	case resolution.PendingOptOut != nil:
		found.Err = preflight.Warning("%s", resolution.PendingOptOut.Message)
	case resolution.Rejection != nil:
		found.Err = errors.New(resolution.Rejection.Message)
	case resolution.Paused:
		found.Err = preflight.Warning("paused by annotation slicefeed.dev/paused; nothing is written; remove the annotation to resume")
	case resolution.AnnotationError != nil:
		found.Err = preflight.Warning("%s", resolution.AnnotationError.Message)
	case len(t.ForeignSlices)+len(t.OtherClassSlices) > 0:
		found.Err = preflight.Warning("EndpointSlices managed by others also belong to this Service: %s; consumers use their endpoints too; delete them unless this is intended", abbreviate(slices.Concat(t.ForeignSlices, t.OtherClassSlices)))
	}
	var ports []string
	for _, p := range t.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", *p.Port, *p.Protocol))
	}
	found.Observed = fmt.Sprintf("%s can be managed, port %s; owned slices: %d", t.Key, abbreviate(ports), owned)
	return found
}

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/targetwatch"
)

// checkServices finds all targets, and checks whether each can be managed.
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
		return fmt.Sprintf("%d of %d can be managed: %s", len(passed), len(findings), display.List(passed))
	})
}

// checkImports checks whether the API server has ServiceImports.
func (pc *checker) checkImports(ctx context.Context) (string, error) {
	labeled := 0
	for _, namespace := range pc.targets.Namespaces {
		imports, err := targetwatch.ListImports(ctx, pc.imports, strings.TrimSuffix(namespace, config.AllNamespaces))
		if err != nil {
			return "", fmt.Errorf("list ServiceImports: %w", err)
		}
		for _, svc := range imports {
			if pc.targets.IsLabeled(svc) {
				labeled++
			}
		}
	}
	return fmt.Sprintf("the API server serves them; labeled %s=%s: %d", targets.LabelClass, pc.targets.Class, labeled), nil
}

// findServices evaluates each Service and ServiceImport in the watched namespaces, as serve does, and the named target
// even if it does not exist.
func (pc *checker) findServices(ctx context.Context) ([]preflight.Finding, error) {
	services, existing := map[targets.Key]*corev1.Service{}, map[string][]*discoveryv1.EndpointSlice{}
	if named := pc.targets.NamedTarget.Key; named.Name != "" {
		services[named] = nil
	}
	for _, namespace := range pc.targets.Namespaces {
		namespace = strings.TrimSuffix(namespace, config.AllNamespaces) // client-go's name for all is empty
		serviceList, err := pc.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list Services: %w", err)
		}
		for i, service := range serviceList.Items {
			services[targets.Key{Namespace: service.Namespace, Name: service.Name}] = &serviceList.Items[i]
		}
		if pc.targets.ServiceImports {
			imports, err := targetwatch.ListImports(ctx, pc.imports, namespace)
			if err != nil && !errors.Is(err, targetwatch.ErrImportsNotServed) { // which is another check's
				return nil, fmt.Errorf("list ServiceImports: %w", err)
			}
			for _, svc := range imports {
				services[targets.KeyOf(svc)] = svc
			}
		}
		sliceList, err := pc.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list EndpointSlices: %w", err)
		}
		for i, slice := range sliceList.Items {
			existing[slice.Namespace] = append(existing[slice.Namespace], &sliceList.Items[i])
		}
	}
	now := time.Now()
	for key, service := range services {
		resolution, _ := targets.Resolve(pc.targets, targets.Input{Key: key, Service: service, Slices: existing[key.Namespace], Now: now})
		if resolution.Relevant {
			pc.resolutions = append(pc.resolutions, resolution)
		}
	}
	if len(pc.resolutions) == 0 {
		where := display.List(pc.targets.Namespaces)
		if where == config.AllNamespaces {
			where = "any namespace"
		}
		return nil, preflight.Warning(
			"no Service of %s is labeled %s: %s, and TARGET_SERVICE_NAME is not set; nothing will be written; label a Service",
			where,
			targets.LabelClass,
			pc.targets.Class,
		)
	}
	slices.SortFunc(pc.resolutions, func(a, b targets.Resolution) int {
		return a.Target.Compare(b.Target.Key)
	})
	var all []preflight.Finding
	for _, resolution := range pc.resolutions {
		all = append(all, pc.evaluateService(resolution))
	}
	return all, nil
}

// evaluateService reports whether a Service can be managed, and warnings about it.
func (pc *checker) evaluateService(resolution targets.Resolution) preflight.Finding {
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
		found.Err = preflight.Warning(
			"EndpointSlices managed by others also belong to this Service: %s; consumers use their endpoints too; delete them unless this is intended",
			display.List(slices.Concat(t.ForeignSlices, t.OtherClassSlices)),
		)
	}
	var ports []string
	for _, p := range t.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", *p.Port, *p.Protocol))
	}
	found.Observed = fmt.Sprintf("%s can be managed, port %s; owned slices: %d", t.Key, display.List(ports), owned)
	return found
}

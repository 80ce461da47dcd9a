package targets

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

const (
	// optOutGracePeriod is how long a Service stays managed after its label stopped naming this class.
	// kubectl replace of an old manifest removes the label by accident, and the writer of another class
	// needs time to list its first endpoints.
	optOutGracePeriod = time.Minute
	// ClassNone is the label value that opts out immediately.
	ClassNone = "none"
	// managedByPrefix starts the managed-by label of every class.
	managedByPrefix = "slicefeed-"
)

// resolveOptOut is Resolve for a Service that is not a target. Slices are deleted only if someone
// certainly opted out: the label was seen and has been absent for a minute, or it names another class.
// Otherwise a mistyped TARGET_SERVICE_NAME would empty the Service that it named before.
func (cfg *Config) resolveOptOut(resolution Resolution, in Input, candidates settingsCandidates) (Resolution, Memory) {
	svc, before := in.Service, in.Previous
	class := svc.Labels[LabelClass]
	leftovers := planner.WithdrawnSlices(resolution.Desired(), in.Slices)
	since := before.UnlabeledSince
	if since.IsZero() {
		since = in.Now
	}
	if since.Before(in.LeadingSince) { // while nobody could write, neither could the writer of the other class
		since = in.LeadingSince
	}
	expired := !in.Now.Before(since.Add(optOutGracePeriod))
	neverTarget := class == "" && !before.Labeled
	if neverTarget {
		leftovers = append(leftovers, cfg.formerSlices(&resolution.Target, in.Slices)...)
	}
	// A Service that lost the label stays relevant without slices, too: the cache may not yet show what
	// was written just before.
	if len(leftovers) == 0 && (neverTarget || class != "" || expired) {
		resolution.State = Gone
		return resolution, Memory{}
	}
	if neverTarget {
		resolution.Slices = leftovers
		resolution.reject(rejectOrphanedSlices(leftovers))
		return resolution, Memory{}
	}
	memory := before
	memory.Labeled, memory.UnlabeledSince = true, since
	if certain := expired || class == ClassNone; certain || class != "" && resolution.IsReplaced(class, in.Slices) {
		resolution.State, resolution.Slices = Leaving, leftovers
		if !certain {
			resolution.Successor = class
		}
		return resolution, memory
	}
	resolution.RecheckAt = since.Add(optOutGracePeriod)
	notice := optOutNotice(svc)
	if candidates.accepted == nil { // its previous settings are unknown
		resolution.reject(notice)
		return resolution, memory
	}
	cfg.resolveService(&resolution, in, candidates)
	resolution.Warning, resolution.OtherClassSlices = notice, nil // the notice says that another class takes over
	return resolution, memory
}

// publish makes the resolution of a Service that is no target one that is published, if the Service asks for that. Its
// other annotations do not count.
func (r *Resolution) publish(svc *corev1.Service) {
	const name = annotationPrefix + publishAnnotation
	text, given := svc.Annotations[name]
	if !given {
		return
	}
	settings, problems := parseAnnotations(Settings{}, map[string]string{name: text})
	switch {
	case len(problems) > 0:
		r.reject(newAnnotationRejection(problems))
	case settings.Publish:
		r.State = ReadOnly
		r.Slices = slices.DeleteFunc(slices.Clone(r.Slices), func(s *discoveryv1.EndpointSlice) bool {
			return s.Labels[discoveryv1.LabelServiceName] != svc.Name
		})
	}
}

// formerSlices returns the slices of a Service that this installation wrote when TARGET_MANAGED_BY was another one.
func (cfg *Config) formerSlices(t *Target, existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(existing), func(slice *discoveryv1.EndpointSlice) bool {
		return slice.Labels[LabelWriter] != cfg.Writer || slice.Labels[NameLabel(t.kind())] != t.Name || isOtherClass(slice)
	})
}

// IsReplaced reports whether slices of another class list a ready endpoint for each family in which the
// owned slices list one that consumers may use. Until then deleting the owned slices empties the
// Service: kube-proxy applies a delete immediately, and a later create up to a second later.
func (t *Target) IsReplaced(class string, existing []*discoveryv1.EndpointSlice) bool {
	return !slices.ContainsFunc(planner.WithdrawnSlices(t.Desired(), existing), func(owned *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(owned.Endpoints, isUsable) &&
			!slices.ContainsFunc(existing, func(other *discoveryv1.EndpointSlice) bool {
				return other.Namespace == t.Namespace && other.DeletionTimestamp == nil && other.AddressType == owned.AddressType &&
					other.Labels[discoveryv1.LabelManagedBy] == managedByPrefix+class &&
					other.Labels[NameLabel(t.kind())] == t.Name && slices.ContainsFunc(other.Endpoints, isReady)
			})
	})
}

// isReady and isUsable treat unset conditions as the API defines them.
func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

func isUsable(e discoveryv1.Endpoint) bool {
	return isReady(e) || e.Conditions.Serving == nil || *e.Conditions.Serving
}

// optOutNotice explains that a Service stays managed for a while.
func optOutNotice(svc *corev1.Service) *Rejection {
	if class := svc.Labels[LabelClass]; class != "" {
		return newRejection("ClassChanged", "Label %s now names class %s, which takes over within a minute.", LabelClass, class)
	}
	return newRejection("LabelRemoved", "Label %s was removed; the slices are deleted after a minute.", LabelClass)
}

// rejectOrphanedSlices rejects a Service that has owned slices for an unknown reason.
func rejectOrphanedSlices(leftovers []*discoveryv1.EndpointSlice) *Rejection {
	names := make([]string, len(leftovers))
	for i, slice := range leftovers {
		names[i] = slice.Name
	}
	slices.Sort(names)
	return newRejection("OrphanedSlices", "It is no target and has slices of this writer: %s.", display.List(names))
}

// isOtherClass reports whether another installation writes a slice.
func isOtherClass(slice *discoveryv1.EndpointSlice) bool {
	return strings.HasPrefix(slice.Labels[discoveryv1.LabelManagedBy], managedByPrefix)
}

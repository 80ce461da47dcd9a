package targets

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

const (
	// optOutGracePeriod is how long a Service stays managed after its label stopped naming this class.
	// kubectl replace of an old manifest removes the label by accident, and the writer of another class
	// needs time to list its first endpoints.
	optOutGracePeriod = time.Minute
	// classNone is the label value that opts out immediately.
	classNone = "none"
	// managedByPrefix starts the managed-by label of every class.
	managedByPrefix = "slicefeed-"
)

// optOut is what happens to the remaining owned slices of a Service that is not a target.
type optOut struct {
	leftovers []*discoveryv1.EndpointSlice // its remaining owned slices
	deleteNow bool                         // delete them now
	keepUntil time.Time                    // otherwise keep them until then; zero: until someone decides
	memory    Memory
}

// resolveOptOut is Resolve for a Service that is not a target.
func (cfg *Config) resolveOptOut(resolution Resolution, svc *corev1.Service, in Input) (Resolution, Memory) {
	d := cfg.evaluateOptOut(svc, in)
	switch {
	case d == nil:
		resolution.Relevant = false
		return resolution, Memory{}
	case d.deleteNow:
		resolution.OptedOut, resolution.Slices = true, d.leftovers
	case d.keepUntil.IsZero():
		resolution.Rejection, resolution.Slices = cfg.rejectOrphanedSlices(d.leftovers), d.leftovers
	default:
		resolution.RecheckAt, resolution.PendingOptOut = d.keepUntil, cfg.optOutNotice(svc)
		if last := in.Previous.acceptedSettings(resolution.Paused); last != nil {
			cfg.resolveService(&resolution, svc, in, settingsCandidates{accepted: last})
		} else { // its previous settings are unknown
			resolution.Rejection = resolution.PendingOptOut
		}
	}
	return resolution, d.memory
}

// evaluateOptOut decides about a Service that is not a target; nil: it does not concern this class.
// Slices are deleted only if someone certainly opted out: the label was seen and has been absent for a
// minute, or it names another class. Otherwise a mistyped TARGET_SERVICE_NAME would empty the Service
// that it named before.
func (cfg *Config) evaluateOptOut(svc *corev1.Service, in Input) *optOut {
	d := &optOut{leftovers: slices.DeleteFunc(slices.Clone(in.Slices), func(slice *discoveryv1.EndpointSlice) bool {
		return !cfg.isLeftover(slice, svc)
	})}
	before, class := in.Previous, svc.Labels[LabelClass]
	if class == "" && !before.Labeled {
		if len(d.leftovers) == 0 {
			return nil
		}
		return d
	}
	since := before.UnlabeledSince
	if since.IsZero() {
		since = in.Now
	}
	expired := !in.Now.Before(since.Add(optOutGracePeriod))
	// The cache may not yet show what was written just before the label was removed.
	if len(d.leftovers) == 0 && (class != "" || expired) {
		return nil
	}
	d.memory = Memory{Settings: before.Settings, ProbePort: before.ProbePort, Labeled: true, UnlabeledSince: since}
	d.deleteNow = expired || class == classNone || class != "" && cfg.isReplaced(d.leftovers, class, svc, in.Slices)
	if !d.deleteNow {
		d.keepUntil = since.Add(optOutGracePeriod)
	}
	return d
}

// isReplaced reports whether slices of another class list a ready endpoint for each family in which the
// owned slices list one that consumers may use. Until then deleting the owned slices empties the
// Service: kube-proxy applies a delete immediately, and a later create up to a second later.
func (cfg *Config) isReplaced(owned []*discoveryv1.EndpointSlice, class string, svc *corev1.Service, existing []*discoveryv1.EndpointSlice) bool {
	return !slices.ContainsFunc(owned, func(ownedSlice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(ownedSlice.Endpoints, isUsable) && !slices.ContainsFunc(existing, func(other *discoveryv1.EndpointSlice) bool {
			return other.Namespace == svc.Namespace && other.DeletionTimestamp == nil && other.AddressType == ownedSlice.AddressType &&
				other.Labels[discoveryv1.LabelManagedBy] == managedByPrefix+class && other.Labels[discoveryv1.LabelServiceName] == svc.Name &&
				slices.ContainsFunc(other.Endpoints, isReady)
		})
	})
}

// isReady and isUsable treat unset conditions as the API defines them.
func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

func isUsable(e discoveryv1.Endpoint) bool {
	return isReady(e) || e.Conditions.Serving == nil || *e.Conditions.Serving
}

// optOutNotice explains that a Service stays managed for a while, and how to decide.
func (cfg *Config) optOutNotice(svc *corev1.Service) *Rejection {
	relabel := fmt.Sprintf("kubectl label service -n %s %s --overwrite %s=", svc.Namespace, svc.Name, LabelClass)
	if class := svc.Labels[LabelClass]; class != "" {
		return newRejection(ReasonClassChanged, "Label %s now names class %s. This writer's slices are deleted once slices of that class list a ready endpoint, after one minute at the latest. To keep them: %s%s", LabelClass, class, relabel, cfg.Class)
	}
	return newRejection(ReasonLabelRemoved, "Label %s was removed. The Service stays managed for one minute, then its slices are deleted. To keep them: %s%s. To delete them now: %s%s", LabelClass, relabel, cfg.Class, relabel, classNone)
}

// rejectOrphanedSlices rejects a Service that has owned slices for an unknown reason.
func (cfg *Config) rejectOrphanedSlices(leftovers []*discoveryv1.EndpointSlice) *Rejection {
	names := make([]string, len(leftovers))
	for i, slice := range leftovers {
		names[i] = slice.Name
	}
	slices.Sort(names)
	return &Rejection{ReasonOrphanedSlices, formatList(fmt.Sprintf(
		"Owned slices remain for a Service that is not a target. Label it %s=%s to manage them again, or %s=%s to delete them. Slices", LabelClass, cfg.Class, LabelClass, classNone), names)}
}

// isLeftover reports whether this writer wrote a slice for this Service. A slice whose service-name
// label was changed to another Service may belong to that one by now.
func (cfg *Config) isLeftover(slice *discoveryv1.EndpointSlice, svc *corev1.Service) bool {
	if slice.Namespace != svc.Namespace || slice.DeletionTimestamp != nil ||
		slice.Labels[discoveryv1.LabelManagedBy] != cfg.managedBy() || slice.Labels[planner.LabelWriter] != cfg.Writer {
		return false
	}
	hasOwner, ownedByService := false, false
	for _, owner := range slice.OwnerReferences {
		if isServiceOwner(owner) {
			hasOwner, ownedByService = true, ownedByService || owner.UID == svc.UID
		}
	}
	switch slice.Labels[discoveryv1.LabelServiceName] {
	case svc.Name:
		return ownedByService || !hasOwner
	case "":
		return ownedByService
	}
	return false
}

// isOtherClass reports whether another installation writes a slice.
func isOtherClass(slice *discoveryv1.EndpointSlice) bool {
	return strings.HasPrefix(slice.Labels[discoveryv1.LabelManagedBy], managedByPrefix)
}

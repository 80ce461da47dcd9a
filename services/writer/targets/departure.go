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
	// departureGrace is how long a Service whose label no longer names this class stays managed.
	// kubectl replace of an old manifest removes the label by accident, and the writer of another
	// class needs time to list its first endpoints.
	departureGrace = time.Minute
	// classNone is the label's value that opts out at once.
	classNone = "none"
	// classPrefix begins the managed-by label of each class.
	classPrefix = "slicefeed-"
)

// departure is what becomes of a Service that does not belong to this class, as far as slices of
// this class are left of it.
type departure struct {
	slices []*discoveryv1.EndpointSlice // owned slices that are left of it
	leaves bool                         // they are deleted now
	until  time.Time                    // else they stay until then; zero: until someone decides
	memory Memory
}

// depart decides that. Slices are deleted only if it is certain that someone opted out: the label
// was seen and has been absent for a minute, or it names another class. Otherwise a mistyped
// TARGET_SERVICE_NAME would empty the Service that it used to name. Nil: the Service does not
// concern this class.
func (cfg *Config) depart(svc *corev1.Service, found Found) *departure {
	d := &departure{slices: slices.DeleteFunc(slices.Clone(found.Slices), func(slice *discoveryv1.EndpointSlice) bool {
		return !cfg.left(slice, svc)
	})}
	before, class := found.Before, svc.Labels[LabelClass]
	if class == "" && !before.Labelled {
		if len(d.slices) == 0 {
			return nil
		}
		return d
	}
	since := before.Unlabelled
	if since.IsZero() {
		since = found.Now
	}
	over := !found.Now.Before(since.Add(departureGrace))
	// The cache may not show yet what was written just before the label was removed.
	if len(d.slices) == 0 && (class != "" || over) {
		return nil
	}
	d.memory = Memory{Settings: before.Settings, ProbePort: before.ProbePort, Labelled: true, Unlabelled: since}
	d.leaves = over || class == classNone || class != "" && cfg.replaced(d.slices, class, svc, found.Slices)
	if !d.leaves {
		d.until = since.Add(departureGrace)
	}
	return d
}

// replaced reports whether slices of another class list a ready endpoint for each family in which
// the owned slices list one that consumers may use. Until then their deletion empties the Service:
// kube-proxy applies a delete at once, and what is created after it up to a second later.
func (cfg *Config) replaced(owned []*discoveryv1.EndpointSlice, class string, svc *corev1.Service, existing []*discoveryv1.EndpointSlice) bool {
	return !slices.ContainsFunc(owned, func(mine *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(mine.Endpoints, usable) && !slices.ContainsFunc(existing, func(theirs *discoveryv1.EndpointSlice) bool {
			return theirs.Namespace == svc.Namespace && theirs.DeletionTimestamp == nil && theirs.AddressType == mine.AddressType &&
				theirs.Labels[discoveryv1.LabelManagedBy] == classPrefix+class && theirs.Labels[discoveryv1.LabelServiceName] == svc.Name &&
				slices.ContainsFunc(theirs.Endpoints, isReady)
		})
	})
}

// isReady and usable read unset conditions as the API defines them.
func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

func usable(e discoveryv1.Endpoint) bool {
	return isReady(e) || e.Conditions.Serving == nil || *e.Conditions.Serving
}

// notice says that a Service stays managed for a while, and how to decide.
func (cfg *Config) notice(svc *corev1.Service) *Refusal {
	again := fmt.Sprintf("kubectl label service -n %s %s --overwrite %s=", svc.Namespace, svc.Name, LabelClass)
	if class := svc.Labels[LabelClass]; class != "" {
		return refuse(ReasonClassChanged, "The label %s names class %s: this writer's slices are deleted once that one's list a ready endpoint, after a minute at the latest. To keep them: %s%s", LabelClass, class, again, cfg.Class)
	}
	return refuse(ReasonLabelRemoved, "The label %s was removed: the Service is managed as before for one minute, then its slices are deleted. To keep them: %s%s. To delete them now: %s%s", LabelClass, again, cfg.Class, again, classNone)
}

// leftBehind rejects a Service at which slices of this class were found for no known reason.
func (cfg *Config) leftBehind(left []*discoveryv1.EndpointSlice) *Refusal {
	names := make([]string, len(left))
	for i, slice := range left {
		names[i] = slice.Name
	}
	slices.Sort(names)
	return &Refusal{ReasonSlicesLeftBehind, list(fmt.Sprintf(
		"Slices of ours are left of this Service, which is not ours: label it %s: %s to have them kept up again, or %s: %s to have them deleted", LabelClass, cfg.Class, LabelClass, classNone), names)}
}

// left reports whether a slice is one that we wrote for this very Service. One whose
// service-name label was altered to another Service's may be that one's by now.
func (cfg *Config) left(slice *discoveryv1.EndpointSlice, svc *corev1.Service) bool {
	if slice.Namespace != svc.Namespace || slice.DeletionTimestamp != nil ||
		slice.Labels[discoveryv1.LabelManagedBy] != cfg.managedBy() || slice.Labels[planner.LabelWriter] != cfg.Writer {
		return false
	}
	owned, byUs := false, false
	for _, owner := range slice.OwnerReferences {
		if isService(owner) {
			owned, byUs = true, byUs || owner.UID == svc.UID
		}
	}
	switch slice.Labels[discoveryv1.LabelServiceName] {
	case svc.Name:
		return byUs || !owned
	case "":
		return byUs
	}
	return false
}

// ofAnotherClass reports whether another installation writes a slice.
func ofAnotherClass(slice *discoveryv1.EndpointSlice) bool {
	return strings.HasPrefix(slice.Labels[discoveryv1.LabelManagedBy], classPrefix)
}

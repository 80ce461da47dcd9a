package targets

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// mirroring manages the slices that Kubernetes makes of a legacy Endpoints object.
const mirroring = "endpointslicemirroring-controller.k8s.io"

// maxNote is the longest note that an Event may have.
const maxNote = 1024

// Found is what the consuming cluster has of one target.
type Found struct {
	Key     Key
	Service *corev1.Service              // nil: there is none
	Slices  []*discoveryv1.EndpointSlice // at least those that concern it; see View
	Before  Memory
}

// Memory is what a View rests upon besides the cluster. It may be lost: then less is
// forgiven and nothing is deleted on doubt.
type Memory struct {
	Settings *Settings // the last that could be read; nil: none ever
	Labelled bool      // the Service was seen with our label
}

// Resolve judges a Service: all of a View but Synced, ResourceVersion and ClusterIPs, and
// what is to be remembered. It is pure. Of the Config, only what describes our own settings
// matters.
func Resolve(cfg Config, found Found) (View, Memory) {
	key, svc := found.Key, found.Service
	view := View{
		Service: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name},
		Target:  cfg.target(key),
		Slices:  found.Slices,
	}
	if svc == nil {
		// The slices of a Service that is gone go with it, by their owner reference.
		if view.Ours = cfg.names(key); view.Ours {
			view.Refusal = refuse(ReasonServiceNotFound, "There is no Service %s in the namespace %s: create it, without a selector.", key.Name, key.Namespace)
		}
		return view, Memory{}
	}
	view.Service.UID, view.Target.UID = svc.UID, svc.UID
	view.Target.Owner = metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}
	settings, problems := read(cfg.Defaults, svc.Annotations)
	view.Paused = settings.Paused
	if !cfg.belongs(svc) {
		return cfg.leave(view, svc, found.Before)
	}
	view.Ours = true
	memory := Memory{Settings: &settings, Labelled: svc.Labels[LabelClass] == cfg.Class}
	if len(problems) > 0 {
		memory.Settings = found.Before.Settings
		if memory.Settings != nil {
			view.Mistake = &Refusal{ReasonInvalidAnnotation, list("Annotations that cannot be read, so the Service keeps the settings that it had", problems)}
			settings = *memory.Settings
			settings.Paused = view.Paused
		}
	}
	readable := memory.Settings != nil
	if len(settings.Sources) == 0 && len(cfg.Sources) == 1 {
		settings.Sources = []string{cfg.Sources[0].Name}
	}
	if readable {
		view.Target.Settings = settings
	}
	view.Refusal = refuseShape(svc)
	switch {
	case view.Refusal != nil:
	case !readable:
		view.Refusal = &Refusal{ReasonInvalidAnnotation, list("The Service is not served, since annotations cannot be read", problems)}
	default:
		view.Refusal = cfg.complete(&view.Target, svc, found.Slices)
	}
	return view, memory
}

// belongs reports whether the Service is ours: by its label, or as the one named.
func (cfg *Config) belongs(svc *corev1.Service) bool {
	return cfg.Class != "" && svc.Labels[LabelClass] == cfg.Class || cfg.names(Key{svc.Namespace, svc.Name})
}

// names reports whether the Service is the one given by name.
func (cfg *Config) names(key Key) bool { return key.Name != "" && key == cfg.Named.key() }

func (cfg *Config) managedBy() string { return "slicefeed-" + cfg.Class }

// target is what can be said without having seen the Service.
func (cfg *Config) target(key Key) Target {
	t := Target{Key: key, ManagedBy: cfg.managedBy(), Writer: cfg.Writer, FirstName: key.Name + firstSuffix}
	if cfg.names(key) {
		t.ManagedBy = cmp.Or(cfg.Named.ManagedBy, t.ManagedBy)
		t.FirstName = cmp.Or(cfg.Named.FirstName, t.FirstName)
	}
	return t
}

// leave finds what is left of ours at a Service that is not ours. Slices are deleted only if
// it is certain that someone opted out: the label was seen, or it now names another class.
// Otherwise a mistyped TARGET_SERVICE_NAME would empty the Service that it used to name.
func (cfg *Config) leave(view View, svc *corev1.Service, before Memory) (View, Memory) {
	left := slices.DeleteFunc(slices.Clone(view.Slices), func(slice *discoveryv1.EndpointSlice) bool {
		return !cfg.left(slice, svc)
	})
	view.Slices = left
	if len(left) == 0 {
		return view, Memory{}
	}
	view.Ours = true
	if _, labelled := svc.Labels[LabelClass]; labelled || before.Labelled {
		view.Leaving = true
		return view, Memory{Labelled: true}
	}
	names := make([]string, len(left))
	for i, slice := range left {
		names[i] = slice.Name
	}
	slices.Sort(names)
	view.Refusal = &Refusal{ReasonSlicesLeftBehind, list(fmt.Sprintf(
		"Slices of ours are left of this Service, which is not ours: label it %s: %s to have them kept up again, or with any other class to have them deleted", LabelClass, cfg.Class), names)}
	return view, Memory{}
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

func isService(owner metav1.OwnerReference) bool {
	return owner.Kind == "Service" && owner.APIVersion == "v1"
}

// complete fills in what a target is served with, or refuses it.
func (cfg *Config) complete(t *Target, svc *corev1.Service, existing []*discoveryv1.EndpointSlice) *Refusal {
	sources, refusal := cfg.sources(t)
	if refusal != nil {
		return refusal
	}
	fence := fence{sources: sources}
	if cfg.names(t.Key) {
		fence.written = cfg.Named.Port
	}
	t.Families = families(&svc.Spec)
	if t.Ports, refusal = ports(svc.Spec.Ports, fence); refusal != nil {
		return refusal
	}
	if t.ProbePort, refusal = probePort(t.Settings, t.Ports, fence); refusal != nil {
		return refusal
	}
	t.Foreign, refusal = neighbours(*t, existing)
	return refusal
}

// sources are those that the target is fed by.
func (cfg *Config) sources(t *Target) ([]Source, *Refusal) {
	all := make([]string, len(cfg.Sources))
	for i, source := range cfg.Sources {
		all[i] = source.Name
	}
	slices.Sort(all)
	if len(t.Settings.Sources) == 0 {
		return nil, &Refusal{ReasonSourceNotGiven, list(fmt.Sprintf("There are several sources: annotate the Service %ssource with one of them, or several with commas between", prefix), all)}
	}
	var given []Source
	for _, name := range t.Settings.Sources {
		at := slices.IndexFunc(cfg.Sources, func(s Source) bool { return s.Name == name })
		if at < 0 {
			return nil, &Refusal{ReasonUnknownSource, list(fmt.Sprintf("There is no source %.64q: mend the annotation %ssource, or add it to SOURCES_FILE; there are", name, prefix), all)}
		}
		source := cfg.Sources[at]
		if len(source.Namespaces) > 0 && !slices.Contains(source.Namespaces, t.Namespace) {
			return nil, refuse(ReasonNamespaceOutsideFence, "Services of the namespace %s may not point to source %s: use another source, or allow the namespace among that source's namespaces in SOURCES_FILE.", t.Namespace, name)
		}
		given = append(given, source)
	}
	return given, nil
}

// neighbours looks at the Service's other slices: those that would be mixed with ours, and
// ours if another installation writes them.
func neighbours(t Target, existing []*discoveryv1.EndpointSlice) ([]string, *Refusal) {
	desired := t.Desired()
	var foreign []string
	for _, slice := range existing {
		if desired.Owns(slice) {
			if writer := slice.Labels[planner.LabelWriter]; t.Writer != "" && writer != "" && writer != t.Writer {
				return nil, refuse(ReasonOtherWriter, "EndpointSlice %s is written by the installation in namespace %s, under the same managed-by label: give one of the two another CLASS.", slice.Name, writer)
			}
			continue
		}
		if slice.Namespace != t.Namespace || slice.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		if slice.Labels[discoveryv1.LabelManagedBy] == mirroring && slice.DeletionTimestamp == nil {
			return nil, refuse(ReasonLegacyEndpoints, "The Service has a legacy Endpoints object, whose mirrored slice %s would be mixed with ours: delete the Endpoints object %s.", slice.Name, t.Name)
		}
		foreign = append(foreign, slice.Name)
	}
	return foreign, nil
}

func refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: clip(fmt.Sprintf(format, args...), maxNote)}
}

// list is a sentence that ends with as many of the parts as a note has room for.
func list(head string, parts []string) string {
	const room = len("; and 1000000 more.")
	text, n := head+": ", 0
	for ; n < len(parts); n++ {
		part := parts[n]
		if n > 0 {
			part = "; " + part
		}
		if len(text)+len(part)+room > maxNote {
			break
		}
		text += part
	}
	if more := len(parts) - n; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	return clip(text, maxNote)
}

// clip shortens a text to so many bytes, never within a letter.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const end = "…"
	cut := most - len(end)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + end
}

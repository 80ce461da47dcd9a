package targets

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// mirroringController manages the slices that Kubernetes makes of a legacy Endpoints object.
const mirroringController = "endpointslicemirroring-controller.k8s.io"

// maxEventNote is the longest note that an Event may have.
const maxEventNote = 1024

// Input is what the consuming cluster has of one target.
type Input struct {
	Key      Key
	Service  *corev1.Service              // nil: there is none
	Slices   []*discoveryv1.EndpointSlice // at least those that concern it; see View
	Previous Memory
	Now      time.Time
}

// Memory is what a View rests upon besides the cluster. It may be lost: then less is
// forgiven and nothing is deleted on doubt.
type Memory struct {
	Settings       *Settings // accepted last; nil: none yet
	ProbePort      uint16    // that followed from them
	Labeled        bool      // the Service was seen with our label
	UnlabeledSince time.Time // since when the label does not name our class; zero: it does
}

// Resolve judges a Service: all of a View but Synced, ResourceVersion and ClusterIPs, and
// what is to be remembered. It is pure. Of the Config, only what describes our own settings
// matters.
func Resolve(cfg Config, in Input) (Resolution, Memory) {
	key, svc := in.Key, in.Service
	resolution := Resolution{
		ServiceRef: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name},
		Target:     cfg.newTarget(key),
		Slices:     in.Slices,
	}
	if svc == nil {
		// The slices of a Service that is gone go with it, by their owner reference.
		if resolution.Relevant = cfg.isNamedTarget(key); resolution.Relevant {
			resolution.Rejection = newRejection(ReasonServiceNotFound, "There is no Service %s in the namespace %s: create it, without a selector.", key.Name, key.Namespace)
		}
		return resolution, Memory{}
	}
	resolution.ServiceRef.UID, resolution.Target.UID = svc.UID, svc.UID
	resolution.Target.Owner = metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}
	settings, problems := parseAnnotations(cfg.Defaults, svc.Annotations)
	resolution.Paused = settings.Paused
	resolution.Relevant = true
	if !cfg.isTarget(svc) {
		return cfg.resolveOptOut(resolution, svc, in)
	}
	o := settingsCandidates{annotated: &settings, problems: problems, accepted: in.Previous.acceptedSettings(settings.Paused)}
	if len(problems) > 0 {
		o.annotated = nil
	}
	memory := cfg.resolveService(&resolution, svc, in, o)
	memory.Labeled = svc.Labels[LabelClass] == cfg.Class
	return resolution, memory
}

// resolveOptOut is Resolve for a Service that does not belong to this class.
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
		} else { // nothing says how it was managed
			resolution.Rejection = resolution.PendingOptOut
		}
	}
	return resolution, d.memory
}

// acceptedSettings are the settings accepted last, but for whether the Service is paused; nil: none.
func (m Memory) acceptedSettings(paused bool) *Settings {
	if m.Settings == nil {
		return nil
	}
	last := *m.Settings
	last.Paused = paused
	return &last
}

// settingsCandidates is what a Service could be served with.
type settingsCandidates struct {
	annotated *Settings // by its annotations; nil: they cannot be read, or do not count
	problems  []string  // why they cannot be read
	accepted  *Settings // accepted last; nil: none
}

// resolveService completes the view of a Service that is managed, or rejects it. It returns what is accepted.
func (cfg *Config) resolveService(resolution *Resolution, svc *corev1.Service, in Input, o settingsCandidates) Memory {
	accepted := Memory{Settings: in.Previous.Settings, ProbePort: in.Previous.ProbePort}
	settings, annotationError, rejection := cfg.chooseSettings(&resolution.Target, svc, o)
	resolution.Target.PublishNotReadyAddresses = svc.Spec.PublishNotReadyAddresses
	if d := svc.Spec.TrafficDistribution; d != nil {
		resolution.Target.TrafficDistribution = *d
	}
	resolution.Target.Labels, resolution.Target.Headless = copyLabels(svc.Labels), isHeadless(&svc.Spec)
	if rejection == nil && annotationError == nil && o.annotated != nil {
		accepted.Settings, accepted.ProbePort = settings, resolution.Target.ProbePort
	}
	if invalid := validateService(svc); invalid != nil {
		rejection = invalid
	}
	if rejection == nil {
		rejection = checkOtherSlices(&resolution.Target, in.Slices)
	}
	if rejection == nil {
		resolution.AnnotationError = annotationError
		return accepted
	}
	resolution.Rejection = rejection
	if rejection.Reason != ReasonServiceTerminating && rejection.Reason != ReasonOwnedByOtherWriter {
		resolution.ProbesOnly = cfg.resolveProbesOnly(&resolution.Target, in, o)
	}
	return accepted
}

// chooseSettings completes a target with the first settings that can be used: those given, or else those
// accepted last. A mistake says why the former cannot. Whatever was accepted is checked again, so
// that the operator's limits of now count.
func (cfg *Config) chooseSettings(target *Target, svc *corev1.Service, o settingsCandidates) (chosen *Settings, annotationError, rejection *Rejection) {
	switch {
	case o.annotated != nil:
		target.Settings = cfg.withOnlySource(*o.annotated)
		if rejection = cfg.resolveTarget(target, svc); rejection == nil {
			return &target.Settings, nil, nil
		}
		annotationError = &Rejection{rejection.Reason, truncate(rejection.Message, maxEventNote-len(settingsKept)) + settingsKept}
	case len(o.problems) > 0:
		rejection = &Rejection{ReasonInvalidAnnotation, formatList("The Service is not served, since annotations cannot be read", o.problems)}
		annotationError = &Rejection{ReasonInvalidAnnotation, formatList("Annotations that cannot be read, so the Service keeps the settings that it had", o.problems)}
	}
	if o.accepted == nil {
		return nil, nil, rejection
	}
	kept := cfg.newTarget(target.Key)
	kept.UID, kept.Owner, kept.Settings = target.UID, target.Owner, *o.accepted
	if problem := cfg.resolveTarget(&kept, svc); problem != nil {
		if o.annotated == nil {
			*target, rejection = kept, problem
		}
		return nil, nil, rejection
	}
	*target = kept
	return &target.Settings, annotationError, nil
}

// settingsKept ends the message of a mistake.
const settingsKept = " Until then the Service keeps the settings that it had."

// withOnlySource has a Service use the only source that there is, unless it names one.
func (cfg *Config) withOnlySource(s Settings) Settings {
	if len(s.Sources) == 0 && len(cfg.Sources) == 1 {
		s.Sources = []string{cfg.Sources[0].Name}
	}
	return s
}

// resolveProbesOnly completes the target of a Service that is rejected so far that what its slices list
// can follow its probes: with the first usable settings, and at a port that the slices list.
func (cfg *Config) resolveProbesOnly(target *Target, in Input, o settingsCandidates) bool {
	for _, settings := range []*Settings{o.annotated, o.accepted} {
		if settings == nil || settings.Probe.Mode == prober.Off {
			continue
		}
		t := *target
		t.Settings = cfg.withOnlySource(*settings)
		sources, rejection := cfg.resolveSources(&t)
		t.ProbePort = t.listedProbePort(in)
		if _, denied := cfg.allowedPorts(t.Key, sources).deniedBy(t.ProbePort); rejection == nil && !denied && t.ProbePort != 0 {
			*target = t
			return true
		}
	}
	return false
}

// listedProbePort is where endpoints that the owned slices list are probed: at the port of the settings,
// or at the TCP port that was probed before, or at the first one. Zero: nowhere.
func (t Target) listedProbePort(in Input) (port uint16) {
	desired, owned := t.Desired(), false
	for _, slice := range in.Slices {
		if !desired.Owns(slice) || slice.DeletionTimestamp != nil {
			continue
		}
		owned = true
		for _, p := range slice.Ports {
			if p.Port == nil || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
				continue
			}
			if number := uint16(*p.Port); port == 0 || number == in.Previous.ProbePort {
				port = number
			}
		}
	}
	if owned && t.Settings.ProbePort != 0 {
		return t.Settings.ProbePort
	}
	return port
}

// isTarget reports whether the Service is ours: by its label, or as the one named.
func (cfg *Config) isTarget(svc *corev1.Service) bool {
	return cfg.Class != "" && svc.Labels[LabelClass] == cfg.Class || cfg.isNamedTarget(Key{svc.Namespace, svc.Name})
}

// isNamedTarget reports whether the Service is the one given by name.
func (cfg *Config) isNamedTarget(key Key) bool { return key.Name != "" && key == cfg.NamedTarget.key() }

func (cfg *Config) managedBy() string { return managedByPrefix + cfg.Class }

// newTarget is what can be said without having seen the Service.
func (cfg *Config) newTarget(key Key) Target {
	t := Target{Key: key, ManagedBy: cfg.managedBy(), Writer: cfg.Writer, FirstName: key.Name + firstNameSuffix}
	if cfg.isNamedTarget(key) {
		t.ManagedBy = cmp.Or(cfg.NamedTarget.ManagedBy, t.ManagedBy)
		t.FirstName = cmp.Or(cfg.NamedTarget.FirstName, t.FirstName)
	}
	return t
}

func isServiceOwner(owner metav1.OwnerReference) bool {
	return owner.Kind == "Service" && owner.APIVersion == "v1"
}

// resolveTarget fills in what a target is served with by its settings, or rejects it.
func (cfg *Config) resolveTarget(t *Target, svc *corev1.Service) *Rejection {
	sources, rejection := cfg.resolveSources(t)
	if rejection != nil {
		return rejection
	}
	fence := cfg.allowedPorts(t.Key, sources)
	t.Families = addressTypes(&svc.Spec)
	if t.Ports, rejection = resolvePorts(svc.Spec.Ports, fence); rejection != nil {
		return rejection
	}
	t.ProbePort, rejection = resolveProbePort(t.Settings, t.Ports, fence)
	return rejection
}

// allowedPorts is which ports a target of these sources may have.
func (cfg *Config) allowedPorts(key Key, sources []Source) portAllowlist {
	f := portAllowlist{sources: sources}
	if cfg.isNamedTarget(key) {
		f.targetPort = cfg.NamedTarget.Port
	}
	return f
}

// resolveSources are those that the target is fed by.
func (cfg *Config) resolveSources(t *Target) ([]Source, *Rejection) {
	all := make([]string, len(cfg.Sources))
	for i, source := range cfg.Sources {
		all[i] = source.Name
	}
	slices.Sort(all)
	if len(t.Settings.Sources) == 0 {
		return nil, &Rejection{ReasonSourceRequired, formatList(fmt.Sprintf("There are several sources: annotate the Service %ssource with one of them, or several with commas between", annotationPrefix), all)}
	}
	var given []Source
	for _, name := range t.Settings.Sources {
		at := slices.IndexFunc(cfg.Sources, func(s Source) bool { return s.Name == name })
		if at < 0 {
			return nil, &Rejection{ReasonUnknownSource, formatList(fmt.Sprintf("There is no source %.64q: mend the annotation %ssource, or add it to SOURCES_FILE; there are", name, annotationPrefix), all)}
		}
		source := cfg.Sources[at]
		if len(source.Namespaces) > 0 && !slices.Contains(source.Namespaces, t.Namespace) {
			return nil, newRejection(ReasonNamespaceNotAllowed, "Services of the namespace %s may not point to source %s: use another source, or allow the namespace among that source's namespaces in SOURCES_FILE.", t.Namespace, name)
		}
		given = append(given, source)
	}
	return given, nil
}

// checkOtherSlices looks at the Service's other slices: those that would be mixed with ours, and
// ours if another installation writes them.
func checkOtherSlices(t *Target, existing []*discoveryv1.EndpointSlice) *Rejection {
	desired := t.Desired()
	for _, slice := range existing {
		if desired.Owns(slice) {
			if writer := slice.Labels[planner.LabelWriter]; t.Writer != "" && writer != "" && writer != t.Writer {
				return newRejection(ReasonOwnedByOtherWriter, "EndpointSlice %s is written by the installation in namespace %s, under the same managed-by label: give one of the two another CLASS.", slice.Name, writer)
			}
			continue
		}
		if slice.Namespace != t.Namespace || slice.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		switch {
		case slice.Labels[discoveryv1.LabelManagedBy] == mirroringController && slice.DeletionTimestamp == nil:
			return newRejection(ReasonLegacyEndpoints, "The Service has a legacy Endpoints object, whose mirrored slice %s would be mixed with ours: delete the Endpoints object %s.", slice.Name, t.Name)
		case isOtherClass(slice):
			t.OtherClassSlices = append(t.OtherClassSlices, slice.Name)
		default:
			t.ForeignSlices = append(t.ForeignSlices, slice.Name)
		}
	}
	return nil
}

func newRejection(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: truncate(fmt.Sprintf(format, args...), maxEventNote)}
}

// formatList is a sentence that ends with as many of the parts as a note has room for.
func formatList(head string, parts []string) string {
	const room = len("; and 1000000 more.")
	text, n := head+": ", 0
	for ; n < len(parts); n++ {
		part := parts[n]
		if n > 0 {
			part = "; " + part
		}
		if len(text)+len(part)+room > maxEventNote {
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
	return truncate(text, maxEventNote)
}

// truncate shortens a text to so many bytes, never within a letter.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const end = "…"
	cut := limit - len(end)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + end
}

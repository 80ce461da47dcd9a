package targets

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// mirroringController manages the slices that Kubernetes creates for a legacy Endpoints object.
const mirroringController = "endpointslicemirroring-controller.k8s.io"

// maxEventNote is the maximum length of an Event's note.
const maxEventNote = 1024

// Input is what the consuming cluster has of one target.
type Input struct {
	Key      Key
	Service  *corev1.Service              // nil: it does not exist
	Slices   []*discoveryv1.EndpointSlice // at least those that affect it; see Resolution
	Previous Memory
	Now      time.Time
}

// Memory is what a Resolution depends on besides the cluster. It may be lost: then fewer mistakes are
// tolerated, and nothing is deleted without certainty.
type Memory struct {
	Settings       *Settings // accepted last; nil: none yet
	ProbePort      uint16    // derived from them
	Labeled        bool      // the Service was seen with the label of this class
	UnlabeledSince time.Time // since when the label has not named this class; zero: it does
}

// Resolve evaluates a Service. It returns all of a Resolution except Synced, ResourceVersion and
// ClusterIPs, and what to remember. It is pure, and reads only the settings of the Config.
func Resolve(cfg Config, in Input) (Resolution, Memory) {
	key, svc := in.Key, in.Service
	resolution := Resolution{
		ServiceRef: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name},
		Target:     cfg.newTarget(key),
		Slices:     in.Slices,
	}
	if svc == nil {
		// The slices of a deleted Service are deleted with it, by their owner reference.
		if resolution.Relevant = cfg.isNamedTarget(key); resolution.Relevant {
			resolution.Rejection = newRejection(ReasonServiceNotFound, "Service %s does not exist in namespace %s. Create it without a selector.", key.Name, key.Namespace)
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
	candidates := settingsCandidates{annotated: &settings, problems: problems, accepted: in.Previous.acceptedSettings(settings.Paused)}
	if len(problems) > 0 {
		candidates.annotated = nil
	}
	memory := cfg.resolveService(&resolution, svc, in, candidates)
	memory.Labeled = svc.Labels[LabelClass] == cfg.Class
	return resolution, memory
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

// acceptedSettings returns the settings accepted last, with the current value of Paused; nil: none.
func (m Memory) acceptedSettings(paused bool) *Settings {
	if m.Settings == nil {
		return nil
	}
	last := *m.Settings
	last.Paused = paused
	return &last
}

// settingsCandidates are the settings that a Service could be managed with.
type settingsCandidates struct {
	annotated *Settings // by its annotations; nil: invalid or ignored
	problems  []string  // why the annotations are invalid
	accepted  *Settings // accepted last; nil: none
}

// resolveService completes the resolution of a target, or rejects it. It returns what to remember as
// accepted.
func (cfg *Config) resolveService(resolution *Resolution, svc *corev1.Service, in Input, candidates settingsCandidates) Memory {
	accepted := Memory{Settings: in.Previous.Settings, ProbePort: in.Previous.ProbePort}
	settings, annotationError, rejection := cfg.chooseSettings(&resolution.Target, svc, candidates)
	resolution.Target.PublishNotReadyAddresses = svc.Spec.PublishNotReadyAddresses
	if d := svc.Spec.TrafficDistribution; d != nil {
		resolution.Target.TrafficDistribution = *d
	}
	resolution.Target.Labels, resolution.Target.Headless = copyLabels(svc.Labels), isHeadless(&svc.Spec)
	if rejection == nil && annotationError == nil && candidates.annotated != nil {
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
		resolution.ProbesOnly = cfg.resolveProbesOnly(&resolution.Target, in, candidates)
	}
	return accepted
}

// chooseSettings completes a target with the first usable settings: those of its annotations, or else
// those accepted last. An annotation error says why the former are not usable. Accepted settings are
// checked again, so that the operator's current limits apply.
func (cfg *Config) chooseSettings(target *Target, svc *corev1.Service, candidates settingsCandidates) (chosen *Settings, annotationError, rejection *Rejection) {
	switch {
	case candidates.annotated != nil:
		target.Settings = cfg.withOnlySource(*candidates.annotated)
		if rejection = cfg.resolveTarget(target, svc); rejection == nil {
			return &target.Settings, nil, nil
		}
		annotationError = &Rejection{rejection.Reason, display.Truncate(rejection.Message, maxEventNote-len(settingsKept)) + settingsKept}
	case len(candidates.problems) > 0:
		rejection = &Rejection{ReasonInvalidAnnotation, formatList("Service is not managed because of invalid annotations", candidates.problems)}
		annotationError = &Rejection{ReasonInvalidAnnotation, formatList("Invalid annotations; previous settings stay in effect", candidates.problems)}
	}
	if candidates.accepted == nil {
		return nil, nil, rejection
	}
	kept := cfg.newTarget(target.Key)
	kept.UID, kept.Owner, kept.Settings = target.UID, target.Owner, *candidates.accepted
	if problem := cfg.resolveTarget(&kept, svc); problem != nil {
		if candidates.annotated == nil {
			*target, rejection = kept, problem
		}
		return nil, nil, rejection
	}
	*target = kept
	return &target.Settings, annotationError, nil
}

// settingsKept ends the message of an annotation error.
const settingsKept = " Until then previous settings stay in effect."

// withOnlySource sets the only configured source, unless the settings name one.
func (cfg *Config) withOnlySource(s Settings) Settings {
	if len(s.Sources) == 0 && len(cfg.Sources) == 1 {
		s.Sources = []string{cfg.Sources[0].Name}
	}
	return s
}

// resolveProbesOnly completes the target of a rejected Service so far that its listed endpoints can
// follow their probes: with the first usable settings, and at a port that the slices list. It reports
// whether that is possible.
func (cfg *Config) resolveProbesOnly(target *Target, in Input, candidates settingsCandidates) bool {
	for _, settings := range []*Settings{candidates.annotated, candidates.accepted} {
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

// listedProbePort is the port at which endpoints in owned slices are probed: that of the settings, or
// the TCP port that was probed before, or the first one. Zero: none.
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

// isTarget reports whether the Service is a target, by its label or by name.
func (cfg *Config) isTarget(svc *corev1.Service) bool {
	return cfg.Class != "" && svc.Labels[LabelClass] == cfg.Class || cfg.isNamedTarget(Key{svc.Namespace, svc.Name})
}

// isNamedTarget reports whether the Service is the named target.
func (cfg *Config) isNamedTarget(key Key) bool { return key.Name != "" && key == cfg.NamedTarget.key() }

func (cfg *Config) managedBy() string { return managedByPrefix + cfg.Class }

// newTarget returns what is known of a target without its Service.
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

// resolveTarget derives sources, families and ports from the settings of a target, or rejects it.
func (cfg *Config) resolveTarget(t *Target, svc *corev1.Service) *Rejection {
	sources, rejection := cfg.resolveSources(t)
	if rejection != nil {
		return rejection
	}
	allowlist := cfg.allowedPorts(t.Key, sources)
	t.Families = addressTypes(&svc.Spec)
	if t.Ports, rejection = resolvePorts(svc.Spec.Ports, allowlist); rejection != nil {
		return rejection
	}
	t.ProbePort, rejection = resolveProbePort(t.Settings, t.Ports, allowlist)
	return rejection
}

// allowedPorts returns the ports that a target of these sources may use.
func (cfg *Config) allowedPorts(key Key, sources []Source) portAllowlist {
	f := portAllowlist{sources: sources}
	if cfg.isNamedTarget(key) {
		f.targetPort = cfg.NamedTarget.Port
	}
	return f
}

// resolveSources returns the sources that the target uses.
func (cfg *Config) resolveSources(t *Target) ([]Source, *Rejection) {
	all := make([]string, len(cfg.Sources))
	for i, source := range cfg.Sources {
		all[i] = source.Name
	}
	slices.Sort(all)
	if len(t.Settings.Sources) == 0 {
		return nil, &Rejection{ReasonSourceRequired, formatList(fmt.Sprintf("Several sources are configured. Set annotation %ssource to one or more of", annotationPrefix), all)}
	}
	var given []Source
	for _, name := range t.Settings.Sources {
		at := slices.IndexFunc(cfg.Sources, func(s Source) bool { return s.Name == name })
		if at < 0 {
			return nil, &Rejection{ReasonUnknownSource, formatList(fmt.Sprintf("Source %.64q does not exist. Correct %ssource or add it to SOURCES_FILE. Available", name, annotationPrefix), all)}
		}
		source := cfg.Sources[at]
		if len(source.Namespaces) > 0 && !slices.Contains(source.Namespaces, t.Namespace) {
			return nil, newRejection(ReasonNamespaceNotAllowed, "Services in namespace %s may not use source %s. Use another source, or add the namespace to it in SOURCES_FILE.", t.Namespace, name)
		}
		given = append(given, source)
	}
	return given, nil
}

// checkOtherSlices collects the other slices of the Service, and rejects the target if they must not be
// mixed with owned ones or if another installation writes the owned ones.
func checkOtherSlices(t *Target, existing []*discoveryv1.EndpointSlice) *Rejection {
	desired := t.Desired()
	for _, slice := range existing {
		if desired.Owns(slice) {
			if writer := slice.Labels[planner.LabelWriter]; t.Writer != "" && writer != "" && writer != t.Writer {
				return newRejection(ReasonOwnedByOtherWriter, "EndpointSlice %s is written by the installation in namespace %s with the same managed-by label. Give one of them another CLASS.", slice.Name, writer)
			}
			continue
		}
		if slice.Namespace != t.Namespace || slice.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		switch {
		case slice.Labels[discoveryv1.LabelManagedBy] == mirroringController && slice.DeletionTimestamp == nil:
			return newRejection(ReasonLegacyEndpoints, "Service has a legacy Endpoints object; its mirrored slice %s would be mixed with ours. Delete Endpoints %s.", slice.Name, t.Name)
		case isOtherClass(slice):
			t.OtherClassSlices = append(t.OtherClassSlices, slice.Name)
		default:
			t.ForeignSlices = append(t.ForeignSlices, slice.Name)
		}
	}
	return nil
}

func newRejection(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: display.Truncate(fmt.Sprintf(format, args...), maxEventNote)}
}

// formatList returns a sentence that ends with as many of the parts as fit into an Event's note.
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
	return display.Truncate(text, maxEventNote)
}

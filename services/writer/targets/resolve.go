package targets

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// resolveService completes the resolution of a target, or rejects it. It returns what to remember as
// accepted.
func (cfg *Config) resolveService(resolution *Resolution, svc *corev1.Service, in Input, candidates settingsCandidates) Memory {
	memory := Memory{Settings: in.Previous.Settings, ProbePort: in.Previous.ProbePort}
	chosen := cfg.chooseSettings(resolution.Target, svc, candidates)
	if chosen.annotated {
		settings := chosen.target.Settings
		memory.Settings, memory.ProbePort = &settings, chosen.target.ProbePort
	}
	resolution.Target = chosen.target
	copyServiceFields(&resolution.Target, svc)
	rejection := validateService(svc)
	if rejection == nil {
		rejection = chosen.rejection
	}
	if rejection == nil {
		rejection = checkOtherSlices(&resolution.Target, in.Slices)
	}
	if rejection == nil {
		resolution.AnnotationError = chosen.annotationError
		return memory
	}
	resolution.Rejection = rejection
	if rejection.Reason != ReasonServiceTerminating && rejection.Reason != ReasonOwnedByOtherWriter {
		resolution.ProbesOnly = cfg.resolveProbesOnly(&resolution.Target, in, candidates)
	}
	return memory
}

// copyServiceFields sets the fields of a target that do not depend on settings.
func copyServiceFields(t *Target, svc *corev1.Service) {
	t.PublishNotReadyAddresses = svc.Spec.PublishNotReadyAddresses
	if d := svc.Spec.TrafficDistribution; d != nil {
		t.TrafficDistribution = *d
	}
	t.Labels, t.Headless = copyLabels(svc.Labels), isHeadless(&svc.Spec)
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

// isTarget reports whether the Service is a target, by its label or by name.
func (cfg *Config) isTarget(svc *corev1.Service) bool {
	return cfg.Class != "" && svc.Labels[LabelClass] == cfg.Class || cfg.isNamedTarget(Key{svc.Namespace, svc.Name})
}

// isNamedTarget reports whether the Service is the named target.
func (cfg *Config) isNamedTarget(key Key) bool { return key.Name != "" && key == cfg.NamedTarget.key() }

// newTarget returns what is known of a target without its Service.
func (cfg *Config) newTarget(key Key) Target {
	t := Target{Key: key, ManagedBy: cfg.managedBy(), Writer: cfg.Writer, FirstName: key.Name + firstNameSuffix}
	if cfg.isNamedTarget(key) {
		t.ManagedBy = cmp.Or(cfg.NamedTarget.ManagedBy, t.ManagedBy)
		t.FirstName = cmp.Or(cfg.NamedTarget.FirstName, t.FirstName)
	}
	return t
}

func (cfg *Config) managedBy() string { return managedByPrefix + cfg.Class }

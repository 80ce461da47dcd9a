package targets

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// Input is what the consuming cluster has of one target.
type Input struct {
	Key      Key
	Service  *corev1.Service              // nil: it does not exist
	Slices   []*discoveryv1.EndpointSlice // at least those that affect it; see Resolution
	Previous Memory
	Now      time.Time
	// LeadingSince is when this writer began to lead; zero: it does not. A leader loses its Lease while the API server is
	// away, so the minute after a label was removed begins again after that.
	LeadingSince time.Time
}

// Memory is what a Resolution depends on besides the cluster. It may be lost: then fewer mistakes are
// tolerated, and nothing is deleted without certainty.
type Memory struct {
	UID            types.UID // of the Service: one that is created again starts without
	Settings       *Settings // accepted last; nil: none yet
	ProbePort      uint16    // derived from them
	Labeled        bool      // the Service was seen with the label of this class
	UnlabeledSince time.Time // since when the label has not named this class; zero: it does
}

// settingsCandidates are the settings that a Service could be managed with.
type settingsCandidates struct {
	annotated *Settings // by its annotations; nil: invalid or ignored
	problems  []string  // why the annotations are invalid
	accepted  *Settings // accepted last, with the current value of Paused; nil: none
}

// Resolve evaluates a Service. It returns all of a Resolution except ResourceVersion and ClusterIPs, and what to remember.
func Resolve(cfg Config, in Input) (Resolution, Memory) {
	svc := in.Service
	resolution := Resolution{Target: cfg.newTarget(in.Key), Slices: in.Slices}
	if svc == nil {
		// The slices of a deleted Service are deleted with it, by their owner reference.
		resolution.State = Gone
		if in.Key == cfg.NamedTarget.Key {
			resolution.reject(newRejection("ServiceNotFound", "The Service does not exist."))
		}
		return resolution, Memory{}
	}
	resolution.Owner.UID = svc.UID
	if in.Key.Import {
		resolution.Owner.APIVersion = svc.APIVersion
	}
	if in.Previous.UID != svc.UID {
		in.Previous = Memory{UID: svc.UID}
	}
	defaults := cfg.Defaults
	if len(cfg.Sources) == 1 {
		defaults.Sources = []string{cfg.Sources[0].Name}
	}
	settings, problems := parseAnnotations(defaults, svc.Annotations)
	resolution.Settings.Paused = settings.Paused
	var candidates settingsCandidates
	if in.Previous.Settings != nil {
		accepted := *in.Previous.Settings
		accepted.Paused = settings.Paused
		candidates.accepted = &accepted
	}
	resolution.Type, resolution.ServicePorts = string(svc.Spec.Type), servicePorts(svc)
	if !cfg.isLabeled(svc) {
		resolution, memory := cfg.resolveOptOut(resolution, in, candidates)
		if resolution.State == Gone && !in.Key.Import {
			resolution.publish(svc)
		}
		return resolution, memory
	}
	if candidates.problems = problems; len(problems) == 0 {
		candidates.annotated = &settings
	}
	memory := cfg.resolveService(&resolution, in, candidates)
	memory.Labeled, memory.UnlabeledSince = true, time.Time{}
	return resolution, memory
}

// resolveService completes the resolution of a target, or rejects it. It returns what to remember as
// accepted.
func (cfg *Config) resolveService(resolution *Resolution, in Input, candidates settingsCandidates) Memory {
	svc, memory := in.Service, in.Previous
	target, warning, rejection := cfg.chooseSettings(resolution.Target, svc, candidates)
	if candidates.annotated != nil && warning == nil && rejection == nil {
		settings := target.Settings
		memory.Settings, memory.ProbePort = &settings, target.ProbePort
	}
	target.PublishNotReadyAddresses = svc.Spec.PublishNotReadyAddresses
	if d := svc.Spec.TrafficDistribution; d != nil {
		target.TrafficDistribution = *d
	}
	// The in-tree controller also treats an empty cluster IP as none, but only Services of type
	// ExternalName have that, and those are rejected.
	target.Labels, target.Headless = copyLabels(svc.Labels), svc.Spec.ClusterIP == corev1.ClusterIPNone
	if invalid := validateService(svc); invalid != nil {
		rejection = invalid
	}
	if rejection == nil {
		rejection = checkOtherSlices(&target, in.Slices)
	}
	resolution.Rejection = rejection
	switch {
	case rejection == nil:
		target.State, resolution.Warning = Managed, warning
	case rejection.Reason == reasonServiceTerminating || rejection.Reason == reasonOwnedByOtherWriter:
		target.State = Rejected
	default:
		cfg.resolveProbesOnly(&target, in, candidates)
	}
	resolution.Target = target
	return memory
}

// chooseSettings completes a target with the first usable settings: those of its annotations, or else those accepted
// last. Accepted settings are checked again, so that the operator's current limits apply. The warning is why the
// annotations do not apply although the target is not rejected.
func (cfg *Config) chooseSettings(
	t Target,
	svc *corev1.Service,
	candidates settingsCandidates,
) (chosen Target, warning, rejection *Rejection) {
	annotated := t
	switch {
	case candidates.annotated != nil:
		if annotated, rejection = cfg.resolveTarget(t, svc, *candidates.annotated); rejection == nil {
			return annotated, nil, nil
		}
	case len(candidates.problems) > 0:
		rejection = newAnnotationRejection(candidates.problems)
	}
	if candidates.accepted == nil {
		return annotated, nil, rejection
	}
	accepted, problem := cfg.resolveTarget(t, svc, *candidates.accepted)
	switch {
	case problem == nil:
		return accepted, rejection, nil
	case candidates.annotated == nil:
		return accepted, nil, problem
	}
	return annotated, nil, rejection
}

// resolveTarget derives families and ports of a target from settings, or rejects it.
func (cfg *Config) resolveTarget(t Target, svc *corev1.Service, settings Settings) (Target, *Rejection) {
	t.Settings = settings
	rejection := cfg.checkSources(&t)
	if rejection != nil {
		return t, rejection
	}
	t.Families = addressTypes(&svc.Spec)
	if t.Ports, rejection = t.resolvePorts(svc.Spec.Ports); rejection != nil {
		return t, rejection
	}
	if t.ProbePort = t.probePortAmong(t.Ports); t.ProbePort == 0 && settings.Probe.Mode != probe.Off {
		return t, newRejection("NoProbePort", "%s has no TCP port to probe.", t.kind())
	}
	return t, t.checkSourcePorts(svc.Spec.Ports)
}

// checkSources rejects a target that uses no source, or one that it may not use.
func (cfg *Config) checkSources(t *Target) *Rejection {
	all := make([]string, len(cfg.Sources))
	for i := range cfg.Sources {
		all[i] = cfg.Sources[i].Name
	}
	slices.Sort(all)
	used := t.Settings.AllSources()
	if len(t.Settings.Sources) == 0 {
		return newRejection("SourceRequired", "It names none of the sources: %s.", display.List(all))
	}
	for i, name := range used {
		if slices.Contains(used[:i], name) {
			return newRejection(
				reasonInvalidAnnotation, "Source %.40q is named twice in %[2]ssource and %[2]sfailover.", name, annotationPrefix,
			)
		}
		at := slices.IndexFunc(cfg.Sources, func(s sources.Source) bool { return s.Name == name })
		if at < 0 {
			return newRejection("UnknownSource", "Source %.40q does not exist; there are %s.", name, display.List(all))
		}
		if allowed := cfg.Sources[at].Namespaces; len(allowed) > 0 && !slices.Contains(allowed, t.Namespace) {
			return newRejection("NamespaceNotAllowed", "Source %s may not be used in namespace %s.", name, t.Namespace)
		}
	}
	return nil
}

// resolveProbesOnly completes a rejected target so far that its listed endpoints can follow their probes, if that is
// possible: with the first usable settings, and at ports that the slices list.
func (cfg *Config) resolveProbesOnly(target *Target, in Input, candidates settingsCandidates) {
	target.State = Rejected
	for _, settings := range []*Settings{candidates.annotated, candidates.accepted} {
		if settings == nil || settings.Probe.Mode == probe.Off {
			continue
		}
		t := *target
		t.State, t.Settings, t.ProbePort = ProbesOnly, *settings, in.Previous.ProbePort
		desired := t.Desired()
		if cfg.checkSources(&t) == nil && slices.ContainsFunc(in.Slices, func(slice *discoveryv1.EndpointSlice) bool {
			_, problem := t.PortsOf(SourceOf(slice), ListedPorts(slice))
			return desired.Owns(slice) && problem == ""
		}) {
			*target = t
			return
		}
	}
}

// isLabeled reports whether the Service has the label of this class, or counts as if it had.
func (cfg *Config) isLabeled(svc *corev1.Service) bool {
	return cfg.Class != "" && svc.Labels[LabelClass] == cfg.Class || keyOf(svc) == cfg.NamedTarget.Key
}

// newTarget returns what is known of a target without its Service.
func (cfg *Config) newTarget(key Key) Target {
	t := Target{
		Key: key, Owner: metav1.OwnerReference{APIVersion: "v1", Kind: key.kind(), Name: key.Name},
		ManagedBy: cfg.managedBy(), Writer: cfg.Writer, FirstName: key.TargetName() + firstNameSuffix, Configured: cfg.Sources,
	}
	if named := cfg.NamedTarget; key == named.Key {
		t.ManagedBy, t.FirstName, t.FixedPort = cmp.Or(named.ManagedBy, t.ManagedBy), cmp.Or(named.FirstName, t.FirstName), named.FixedPort
	}
	return t
}

func (cfg *Config) managedBy() string { return managedByPrefix + cfg.Class }

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
	Now     time.Time
}

// Memory is what a View rests upon besides the cluster. It may be lost: then less is
// forgiven and nothing is deleted on doubt.
type Memory struct {
	Settings   *Settings // accepted last; nil: none yet
	ProbePort  uint16    // that followed from them
	Labelled   bool      // the Service was seen with our label
	Unlabelled time.Time // since when the label does not name our class; zero: it does
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
	view.Ours = true
	if !cfg.belongs(svc) {
		return cfg.resolveDeparture(view, svc, found)
	}
	o := offer{given: &settings, problems: problems, last: found.Before.accepted(settings.Paused)}
	if len(problems) > 0 {
		o.given = nil
	}
	memory := cfg.serve(&view, svc, found, o)
	memory.Labelled = svc.Labels[LabelClass] == cfg.Class
	return view, memory
}

// resolveDeparture is Resolve for a Service that does not belong to this class.
func (cfg *Config) resolveDeparture(view View, svc *corev1.Service, found Found) (View, Memory) {
	d := cfg.depart(svc, found)
	switch {
	case d == nil:
		view.Ours = false
		return view, Memory{}
	case d.leaves:
		view.Leaving, view.Slices = true, d.slices
	case d.until.IsZero():
		view.Refusal, view.Slices = cfg.leftBehind(d.slices), d.slices
	default:
		view.Wake, view.Departing = d.until, cfg.notice(svc)
		if last := found.Before.accepted(view.Paused); last != nil {
			cfg.serve(&view, svc, found, offer{last: last})
		} else { // nothing says how it was managed
			view.Refusal = view.Departing
		}
	}
	return view, d.memory
}

// accepted are the settings accepted last, but for whether the Service is paused; nil: none.
func (m Memory) accepted(paused bool) *Settings {
	if m.Settings == nil {
		return nil
	}
	last := *m.Settings
	last.Paused = paused
	return &last
}

// offer is what a Service could be served with.
type offer struct {
	given    *Settings // by its annotations; nil: they cannot be read, or do not count
	problems []string  // why they cannot be read
	last     *Settings // accepted last; nil: none
}

// serve completes the view of a Service that is managed, or rejects it. It returns what is accepted.
func (cfg *Config) serve(view *View, svc *corev1.Service, found Found, o offer) Memory {
	accepted := Memory{Settings: found.Before.Settings, ProbePort: found.Before.ProbePort}
	settings, mistake, refusal := cfg.choose(&view.Target, svc, o)
	view.Target.PublishesNotReady = svc.Spec.PublishNotReadyAddresses
	if d := svc.Spec.TrafficDistribution; d != nil {
		view.Target.TrafficDistribution = *d
	}
	view.Target.Labels, view.Target.Headless = copiedLabels(svc.Labels), headless(&svc.Spec)
	if refusal == nil && mistake == nil && o.given != nil {
		accepted.Settings, accepted.ProbePort = settings, view.Target.ProbePort
	}
	if shape := refuseShape(svc); shape != nil {
		refusal = shape
	}
	if refusal == nil {
		refusal = neighbours(&view.Target, found.Slices)
	}
	if refusal == nil {
		view.Mistake = mistake
		return accepted
	}
	view.Refusal = refusal
	if refusal.Reason != ReasonServiceTerminating && refusal.Reason != ReasonOtherWriter {
		view.ProbesOnly = cfg.followsProbes(&view.Target, found, o)
	}
	return accepted
}

// choose completes a target with the first settings that can be used: those given, or else those
// accepted last. A mistake says why the former cannot. Whatever was accepted is checked again, so
// that the operator's limits of now count.
func (cfg *Config) choose(target *Target, svc *corev1.Service, o offer) (chosen *Settings, mistake, refusal *Refusal) {
	switch {
	case o.given != nil:
		target.Settings = cfg.withOnlySource(*o.given)
		if refusal = cfg.complete(target, svc); refusal == nil {
			return &target.Settings, nil, nil
		}
		mistake = &Refusal{refusal.Reason, clip(refusal.Message, maxNote-len(keeps)) + keeps}
	case len(o.problems) > 0:
		refusal = &Refusal{ReasonInvalidAnnotation, list("The Service is not served, since annotations cannot be read", o.problems)}
		mistake = &Refusal{ReasonInvalidAnnotation, list("Annotations that cannot be read, so the Service keeps the settings that it had", o.problems)}
	}
	if o.last == nil {
		return nil, nil, refusal
	}
	kept := cfg.target(target.Key)
	kept.UID, kept.Owner, kept.Settings = target.UID, target.Owner, *o.last
	if unusable := cfg.complete(&kept, svc); unusable != nil {
		if o.given == nil {
			*target, refusal = kept, unusable
		}
		return nil, nil, refusal
	}
	*target = kept
	return &target.Settings, mistake, nil
}

// keeps ends the message of a mistake.
const keeps = " Until then the Service keeps the settings that it had."

// withOnlySource has a Service use the only source that there is, unless it names one.
func (cfg *Config) withOnlySource(s Settings) Settings {
	if len(s.Sources) == 0 && len(cfg.Sources) == 1 {
		s.Sources = []string{cfg.Sources[0].Name}
	}
	return s
}

// followsProbes completes the target of a Service that is rejected so far that what its slices list
// can follow its probes: with the first usable settings, and at a port that the slices list.
func (cfg *Config) followsProbes(target *Target, found Found, o offer) bool {
	for _, settings := range []*Settings{o.given, o.last} {
		if settings == nil || settings.Probe.Mode == prober.Off {
			continue
		}
		t := *target
		t.Settings = cfg.withOnlySource(*settings)
		sources, refusal := cfg.sources(&t)
		t.ProbePort = t.listedPort(found)
		if _, refused := cfg.allows(t.Key, sources).refuses(t.ProbePort); refusal == nil && !refused && t.ProbePort != 0 {
			*target = t
			return true
		}
	}
	return false
}

// listedPort is where endpoints that the owned slices list are probed: at the port of the settings,
// or at the TCP port that was probed before, or at the first one. Zero: nowhere.
func (t Target) listedPort(found Found) (port uint16) {
	desired, owned := t.Desired(), false
	for _, slice := range found.Slices {
		if !desired.Owns(slice) || slice.DeletionTimestamp != nil {
			continue
		}
		owned = true
		for _, p := range slice.Ports {
			if p.Port == nil || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
				continue
			}
			if number := uint16(*p.Port); port == 0 || number == found.Before.ProbePort {
				port = number
			}
		}
	}
	if owned && t.Settings.ProbePort != 0 {
		return t.Settings.ProbePort
	}
	return port
}

// belongs reports whether the Service is ours: by its label, or as the one named.
func (cfg *Config) belongs(svc *corev1.Service) bool {
	return cfg.Class != "" && svc.Labels[LabelClass] == cfg.Class || cfg.names(Key{svc.Namespace, svc.Name})
}

// names reports whether the Service is the one given by name.
func (cfg *Config) names(key Key) bool { return key.Name != "" && key == cfg.Named.key() }

func (cfg *Config) managedBy() string { return classPrefix + cfg.Class }

// target is what can be said without having seen the Service.
func (cfg *Config) target(key Key) Target {
	t := Target{Key: key, ManagedBy: cfg.managedBy(), Writer: cfg.Writer, FirstName: key.Name + firstSuffix}
	if cfg.names(key) {
		t.ManagedBy = cmp.Or(cfg.Named.ManagedBy, t.ManagedBy)
		t.FirstName = cmp.Or(cfg.Named.FirstName, t.FirstName)
	}
	return t
}

func isService(owner metav1.OwnerReference) bool {
	return owner.Kind == "Service" && owner.APIVersion == "v1"
}

// complete fills in what a target is served with by its settings, or rejects it.
func (cfg *Config) complete(t *Target, svc *corev1.Service) *Refusal {
	sources, refusal := cfg.sources(t)
	if refusal != nil {
		return refusal
	}
	fence := cfg.allows(t.Key, sources)
	t.Families = families(&svc.Spec)
	if t.Ports, refusal = ports(svc.Spec.Ports, fence); refusal != nil {
		return refusal
	}
	t.ProbePort, refusal = probePort(t.Settings, t.Ports, fence)
	return refusal
}

// allows is which ports a target of these sources may have.
func (cfg *Config) allows(key Key, sources []Source) fence {
	f := fence{sources: sources}
	if cfg.names(key) {
		f.written = cfg.Named.Port
	}
	return f
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
func neighbours(t *Target, existing []*discoveryv1.EndpointSlice) *Refusal {
	desired := t.Desired()
	for _, slice := range existing {
		if desired.Owns(slice) {
			if writer := slice.Labels[planner.LabelWriter]; t.Writer != "" && writer != "" && writer != t.Writer {
				return refuse(ReasonOtherWriter, "EndpointSlice %s is written by the installation in namespace %s, under the same managed-by label: give one of the two another CLASS.", slice.Name, writer)
			}
			continue
		}
		if slice.Namespace != t.Namespace || slice.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		switch {
		case slice.Labels[discoveryv1.LabelManagedBy] == mirroring && slice.DeletionTimestamp == nil:
			return refuse(ReasonLegacyEndpoints, "The Service has a legacy Endpoints object, whose mirrored slice %s would be mixed with ours: delete the Endpoints object %s.", slice.Name, t.Name)
		case ofAnotherClass(slice):
			t.OtherClasses = append(t.OtherClasses, slice.Name)
		default:
			t.Foreign = append(t.Foreign, slice.Name)
		}
	}
	return nil
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

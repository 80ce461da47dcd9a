package targets

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// Settings are what the annotations of a Service may change.
type Settings struct {
	Sources      []string        // names, sorted
	NodeSelector labels.Selector // of members; nil: all
	Probe        prober.Spec
	ProbePort    uint16 // 0: the first TCP port of the Service
	MaxStaleness time.Duration
	ShrinkWindow time.Duration
	// EmptyThreshold is the number of complete observations that confirm an empty source.
	EmptyThreshold int
	ListUnready    bool      // list endpoints that are not ready
	Paused         bool      // no write of any kind
	Resync         time.Time // when a resync is requested; zero: never
}

// settingsCandidates are the settings that a Service could be managed with.
type settingsCandidates struct {
	annotated *Settings // by its annotations; nil: invalid or ignored
	problems  []string  // why the annotations are invalid
	accepted  *Settings // accepted last; nil: none
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

// settingsChoice is a target with the settings that it is managed with, or why it is rejected.
type settingsChoice struct {
	target          Target
	annotated       bool       // the settings are those of the annotations
	annotationError *Rejection // why they are not, although the target is not rejected
	rejection       *Rejection
}

// chooseSettings completes a target with the first usable settings: those of its annotations, or else
// those accepted last. Accepted settings are checked again, so that the operator's current limits apply.
func (cfg *Config) chooseSettings(target Target, svc *corev1.Service, candidates settingsCandidates) settingsChoice {
	var annotationError, rejection *Rejection
	kept := target
	switch {
	case candidates.annotated != nil:
		target.Settings = cfg.withOnlySource(*candidates.annotated)
		if rejection = cfg.resolveTarget(&target, svc); rejection == nil {
			return settingsChoice{target: target, annotated: true}
		}
		annotationError = &Rejection{rejection.Reason, display.Truncate(rejection.Message, maxEventNote-len(settingsKept)) + settingsKept}
	case len(candidates.problems) > 0:
		rejection = &Rejection{ReasonInvalidAnnotation, formatList("Service is not managed because of invalid annotations", candidates.problems)}
		annotationError = &Rejection{ReasonInvalidAnnotation, formatList("Invalid annotations; previous settings stay in effect", candidates.problems)}
	}
	if candidates.accepted == nil {
		return settingsChoice{target: target, rejection: rejection}
	}
	kept.Settings = *candidates.accepted
	if problem := cfg.resolveTarget(&kept, svc); problem != nil {
		if candidates.annotated == nil {
			return settingsChoice{target: kept, rejection: problem}
		}
		return settingsChoice{target: target, rejection: rejection}
	}
	return settingsChoice{target: kept, annotationError: annotationError}
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

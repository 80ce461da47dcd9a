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

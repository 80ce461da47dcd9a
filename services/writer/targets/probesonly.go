package targets

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/writer/prober"
)

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

package reconciler

import (
	"cmp"
	"slices"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// setProbes requests the probes of the target's endpoints, and reports whether they are others than before.
func (r *Reconciler) setProbes(s *state) (changed bool) {
	target := &s.basis.view.Target
	requests := requests(target.Settings.Probe, s.decision.Endpoints, s.basis.input.Current, target.Allows)
	if slices.Equal(requests, s.probed) {
		return false
	}
	s.probed = requests
	r.Prober.Set(s.key.String(), requests)
	return true
}

// requests returns the probes of endpoints, sorted by address and port: not of those that an allowlist denies, nor of
// those that are removed from the slices too. An endpoint that leaves is probed as long as it is listed. Without a probe
// it might be kept, probed again, and so on without end, since the decision may depend on its probe.
//
// It is the last gate before a probe: none goes to a port that is not allowed.
func requests(
	spec probe.Spec,
	decided []verdict.Endpoint,
	current []verdict.CurrentEndpoint,
	allows func(source string, port uint16) bool,
) (all []probe.Request) {
	if spec.Mode == probe.Off {
		return nil
	}
	all = make([]probe.Request, 0, len(decided))
	for i := range decided {
		e := &decided[i]
		for len(current) > 0 && current[0].Address.Less(e.Address) {
			current = current[1:]
		}
		listed := len(current) > 0 && current[0].Address == e.Address
		if e.Rule == verdict.RuleAllowlist || e.Verdict == verdict.Remove && !listed {
			continue
		}
		first := len(all)
		add := func(ports verdict.Ports) {
			if ports.Probe != 0 && allows(e.Source, ports.Probe) {
				all = append(all, probe.Request{Key: probe.Key{Address: e.Address, Port: ports.Probe, Spec: spec}, Source: e.Source})
			}
		}
		add(e.Ports)
		for _, other := range e.Others {
			if other.Probe != e.Ports.Probe {
				add(other)
			}
		}
		slices.SortFunc(all[first:], func(a, b probe.Request) int { return cmp.Compare(a.Key.Port, b.Key.Port) })
	}
	return all
}

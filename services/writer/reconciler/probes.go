package reconciler

import (
	"iter"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// setProbes requests the probes of the target's endpoints, and reports whether they are others than before.
func (r *Reconciler) setProbes(key targets.Key, s *state, view targets.Resolution, current []verdict.CurrentEndpoint) (changed bool) {
	spec := view.Target.Settings.Probe
	decided := s.decision.Endpoints
	if spec.Mode == probe.Off {
		decided = nil
	}
	request := func(e *verdict.Endpoint) prober.Request {
		return prober.Request{
			Key:    probe.Key{Address: e.Address, Port: view.Target.ProbePortAt(e.Address, e.Source), Spec: spec},
			Source: e.Source,
		}
	}
	n := 0
	for e := range probed(decided, current) {
		changed = changed || n == len(s.probed) || s.probed[n] != request(e)
		n++
	}
	if !changed && n == len(s.probed) {
		return false
	}
	s.probed = make([]prober.Request, 0, n)
	for e := range probed(decided, current) {
		s.probed = append(s.probed, request(e))
	}
	r.Prober.Set(key.String(), s.probed)
	return true
}

// probed returns the endpoints to probe: not those that an allowlist denies, nor those that are removed from the slices
// too. An endpoint that leaves is probed as long as it is listed. Without a probe it might be kept, probed again, and so
// on without end, since the decision may depend on its probe.
func probed(decided []verdict.Endpoint, current []verdict.CurrentEndpoint) iter.Seq[*verdict.Endpoint] {
	return func(yield func(*verdict.Endpoint) bool) {
		current := current
		for i := range decided {
			e := &decided[i]
			for len(current) > 0 && current[0].Address.Less(e.Address) {
				current = current[1:]
			}
			listed := len(current) > 0 && current[0].Address == e.Address
			if e.Rule != verdict.RuleAllowlist && (e.Verdict != verdict.Remove || listed) && !yield(e) {
				return
			}
		}
	}
}

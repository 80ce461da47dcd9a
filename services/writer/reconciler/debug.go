package reconciler

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// logDecision logs each address that the decision changes in the slices, and each that a guard holds.
// Both lists are sorted by address.
func (r *Reconciler) logDecision(key targets.Key, current []verdict.CurrentEndpoint, decided []verdict.Endpoint) {
	for i := range decided {
		e := &decided[i]
		n, listed := slices.BinarySearchFunc(current, e.Address, func(h verdict.CurrentEndpoint, a netip.Addr) int { return h.Address.Compare(a) })
		if e.Verdict != verdict.Hold && e.Listed == listed && (!listed || current[n].Conditions == e.Conditions) {
			continue
		}
		tracepoint.Log(r.Logger, tracepoint.Decision, slog.String("service", key.String()), slog.String("source", e.Source),
			slog.String("address", e.Address.String()), slog.String("verdict", e.Verdict.String()),
			slog.String("rule", string(e.Rule)), slog.String("reason", e.Reason))
	}
}

package collector

import (
	"log/slog"
	"net/netip"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// logUpdate logs what the source delivered, one line per node.
func logUpdate(log *slog.Logger, update roster.Update) {
	for i := range update.Changed {
		c := &update.Changed[i]
		attrs := []slog.Attr{slog.String("node", c.Name), slog.String("state", c.State.String())}
		if c.Invalid != "" {
			attrs = append(attrs, slog.String("error", c.Invalid))
		}
		tracepoint.Log(log, tracepoint.UpdateReceived, attrs...)
	}
	for _, name := range update.Removed {
		tracepoint.Log(log, tracepoint.UpdateReceived, slog.String("node", name), slog.Bool("removed", true))
	}
}

// logChanges logs how each node changed in the roster: its state and address, or its removal.
func logChanges(log *slog.Logger, changes []roster.Change) {
	for _, c := range changes {
		if c.Node == nil {
			tracepoint.Log(log, tracepoint.NodeResolved, slog.String("node", c.Name), slog.Bool("removed", true))
			continue
		}
		tracepoint.Log(log, tracepoint.NodeResolved, slog.String("node", c.Name), slog.String("state", c.Node.State.String()),
			slog.String("address", joinAddresses(c.Node.Addresses)))
	}
}

func joinAddresses(all []netip.Addr) string {
	text := make([]string, len(all))
	for i, a := range all {
		text[i] = a.String()
	}
	return strings.Join(text, ",")
}

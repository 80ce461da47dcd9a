package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"text/tabwriter"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// listedNode is a node in the format that sources of kind file and command read.
type listedNode struct {
	Name      string     `json:"name"`
	PrivateIP netip.Addr `json:"private_ip"`
	Ready     bool       `json:"ready"`
	Worker    bool       `json:"worker"`
}

// runList makes its own observation and prints the nodes that would be published.
func runList(ctx context.Context, inv command.Invocation[Config]) error {
	c, err := newNodeCollector(inv.Config, inv.Version, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return settings.NewConfigError(err)
	}
	timeout := collector.ObservationTimeout
	if inv.Config.UsesCloud() {
		timeout += inv.Config.CloudPollInterval // in which it is confirmed that a node has no address
	}
	missing, err := c.ObserveOnce(ctx, timeout, func(text string) { fmt.Fprintln(inv.Err, text) })
	if err != nil {
		return err
	}
	if missing != nil { // a reader of the list would conclude that a missing node has left
		return fmt.Errorf("nothing to publish after %s: %w", timeout, missing)
	}
	nodes := toListed(c.Snapshot(roster.Filter{}).Members)
	if !inv.Format.IsTable() {
		return inv.Format.Write(inv.Out, nodes)
	}
	w := tabwriter.NewWriter(inv.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tREADY")
	for _, n := range nodes {
		fmt.Fprintf(w, "%s\t%s\t%t\n", display.Sanitize(n.Name), n.PrivateIP, n.Ready)
	}
	return w.Flush()
}

// toListed converts nodes. The format has one address; a draining node is not ready in it.
func toListed(members []roster.Member) []listedNode {
	list := []listedNode{}
	for _, n := range members {
		if n.IsPublished() {
			list = append(list, listedNode{Name: n.Name, PrivateIP: n.Addresses[0], Ready: n.State == roster.Ready, Worker: true})
		}
	}
	return list
}

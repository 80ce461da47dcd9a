// Package report builds the report of an inventory: what it reads, what it publishes of that and to which clients,
// and what is wrong. It guarantees that a report is bounded whatever the state, and that building one holds up no
// decision. It decides nothing about nodes, nor how a report is printed.
package report

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Limits of a report, which states how much it omits. The lines are limited by the page.
const (
	maxProblems    = 100
	maxSubscribers = 200
)

// Builder builds reports, and implements InventoryReportService. Only one of Set and Exports is set.
type Builder struct {
	inventoryv1.UnimplementedInventoryReportServiceServer

	Version, Instance string // of this replica
	Kind              string // SOURCE_KIND

	Set         Set                                        // the only set
	Exports     Exports                                    // the exported Services
	Find        func(service string) (set Set, found bool) // one of them
	Subscribers func() []feed.Subscriber
	Cloud       Cloud // nil if addresses come from elsewhere
}

// Set is what is published as one set.
type Set interface {
	Snapshot(f roster.Filter) collector.Snapshot
	Summary() collector.Snapshot // without the nodes
}

// Exports are the exported Services in use.
type Exports interface {
	InUse() []string       // sorted
	CheckReachable() error // nil once the secured cluster has responded
}

// Cloud reports the request budget and the token of the IONOS API.
type Cloud interface {
	Budget() ionos.Budget
	TokenExpiry() (at time.Time, known bool, err error)
}

// GetReport returns a report. Its error is for the client.
func (b *Builder) GetReport(_ context.Context, req *reportv1.GetReportRequest) (*inventoryv1.InventoryReport, error) {
	f, err := parseFilter(req.GetFilter(), b.Exports != nil)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out, lines := b.collect(now, f)
	problems := Problems(out)
	out.Problems = problems[:min(len(problems), maxProblems)]
	out.ProblemsOmitted = uint32(max(len(problems)-maxProblems, 0))
	out.SubscribersOmitted = uint32(max(len(out.GetSubscribers())-maxSubscribers, 0))
	out.Subscribers = out.GetSubscribers()[:min(len(out.GetSubscribers()), maxSubscribers)]
	if b.Exports != nil && !f.Detailed() {
		encode := func(s *inventoryv1.ServiceReport) *inventoryv1.ServiceReport { return s }
		out.Services, out.NextPageToken, err = page.Cut(req, out.GetServices(), (*inventoryv1.ServiceReport).GetName, encode)
		return out, err
	}
	out.Nodes, out.NextPageToken, err = page.Cut(req, lines, nodeLine.key, func(l nodeLine) *inventoryv1.NodeReport {
		if f.Detailed() {
			l.addDetails(now)
		}
		return l.NodeReport
	})
	return out, err
}

// CheckServing is the readiness check. Its error says why the inventory cannot serve.
func (b *Builder) CheckServing() error {
	if all := Problems(b.collectStatus(time.Now())); len(all) > 0 && all[0].GetLevel() == report.CannotServe {
		return errors.New(all[0].GetMessage())
	}
	return nil
}

// collectStatus returns a report of the replica, without nodes, Services and clients.
func (b *Builder) collectStatus(now time.Time) *inventoryv1.InventoryReport {
	out := &inventoryv1.InventoryReport{Version: b.Version, Instance: b.Instance, SourceKind: b.Kind, Time: timestamppb.New(now)}
	if b.Set != nil {
		s := b.Set.Summary()
		out.Status, out.Totals, out.Published = encodeStatus(s.Status, now), countNodes(s.Counts), new(s.Status.Publishable)
		out.Cloud = b.describeCloud(s.Listing, now)
	} else {
		out.SourceError = errorText(b.Exports.CheckReachable())
	}
	return out
}

// collect returns what a filter selects: a report with all lines and all subscribers, and the lines of its nodes.
func (b *Builder) collect(now time.Time, f report.Filter) (*inventoryv1.InventoryReport, []nodeLine) {
	out := b.collectStatus(now)
	out.Filter = f.Text
	streams := map[string]uint32{}
	for _, s := range b.Subscribers() {
		streams[s.Service]++
		if b.Exports == nil || f.SelectsService(s.Service) {
			out.Subscribers = append(out.Subscribers, &inventoryv1.SubscriberReport{
				Name: truncate(
					s.Name,
				),
				Service: s.Service,
				Age:     report.Age(s.Since, now),
				SentAge: report.Age(s.LastSentAt, now),
				Behind:  new(s.Lag),
			})
		}
	}
	var lines []nodeLine
	if b.Set != nil {
		lines = describeNodes(b.Set.Snapshot(members(f)), "", now)
	} else {
		lines = b.addServices(out, f, streams, now)
	}
	for _, l := range lines {
		out.Nodes = append(out.Nodes, l.NodeReport)
	}
	return out, lines
}

// addServices adds the totals, and the Services that a filter selects. It returns their nodes if it selects any.
func (b *Builder) addServices(
	out *inventoryv1.InventoryReport,
	f report.Filter,
	streams map[string]uint32,
	now time.Time,
) (lines []nodeLine) {
	var all roster.Counts
	for _, name := range b.Exports.InUse() {
		set, found := b.Find(name)
		if !found {
			continue // freed since
		}
		s := set.Summary()
		all.Add(s.Counts)
		if !f.SelectsService(name) {
			continue
		}
		if f.Detailed() {
			s = set.Snapshot(members(f))
			nodes := describeNodes(s, name, now)
			if lines = append(lines, nodes...); f.ByNode() && len(nodes) == 0 {
				continue
			}
		}
		out.Services = append(out.Services, &inventoryv1.ServiceReport{
			Name: name, Totals: countNodes(s.Counts), Status: encodeStatus(s.Status, now), Subscribers: new(streams[name]),
		})
	}
	out.Totals = countNodes(all)
	return lines
}

func countNodes(c roster.Counts) *inventoryv1.NodeTotals {
	count := map[bool]int{} // by whether the omission is intended
	for reason, n := range c.Omitted {
		count[reason.IsIntended()] += n
	}
	return &inventoryv1.NodeTotals{
		Ready: new(uint32(c.States[roster.Ready])), Draining: new(uint32(c.States[roster.Draining])),
		NotReady: new(uint32(c.States[roster.NotReady])), Omitted: new(uint32(count[false])), Excluded: new(uint32(count[true])),
	}
}

func (b *Builder) describeCloud(listing collector.Listing, now time.Time) *inventoryv1.CloudReport {
	if b.Cloud == nil {
		return nil
	}
	budget := b.Cloud.Budget()
	expiry, known, err := b.Cloud.TokenExpiry()
	out := &inventoryv1.CloudReport{
		ListingAge: report.Age(listing.StartedAt, now), Servers: new(uint32(listing.Servers)), Error: errorText(listing.Err),
		RequestsLeft: new(uint32(budget.Free)), RequestsPerMinute: uint32(budget.PerMinute), TokenError: errorText(err),
	}
	if known {
		out.TokenExpiresIn = durationpb.New(expiry.Sub(now).Truncate(time.Second))
	}
	return out
}

// encodeStatus encodes a status with ages in whole seconds.
func encodeStatus(s roster.Status, now time.Time) *inventoryv1.SourceStatus {
	out := feed.EncodeStatus(s, now)
	for _, d := range []*durationpb.Duration{out.GetMembership().GetAge(), out.GetAddresses().GetAge(), out.GetObservationAge()} {
		if d != nil {
			d.Nanos = 0
		}
	}
	return out
}

// errorText is the text of an error, or "".
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return truncate(err.Error())
}

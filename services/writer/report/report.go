// Package report says how the Services of a writer are: it builds the report that people read, and keeps the metrics
// of problems and the last writes. It has the only definition of a problem, and so of healthy. It guarantees that a
// report fits into a message and that building one holds no lock that decisions need. It does not decide about
// endpoints, and does not print: package internal/report does.
package report

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/ptr"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Limits of a report.
const (
	maxProblems  = 100
	maxSources   = 1000
	maxAddresses = 1000 // of a Service
)

// Builder builds reports, and serves them to operators.
type Builder struct {
	writerv1.UnimplementedWriterReportServiceServer

	Version, Instance string // of the program, and of this replica

	Store   *endpoints.Store
	Writes  *Writes
	Sources func() []subscriber.Snapshot
	Leading func() bool
	Holder  func() string // the known holder of the Lease; nil: a dry run, without a Lease

	Synced        func() error // nil: the caches of the consuming cluster are synced
	ImportsServed func() error // nil: ServiceImports are served, or not wanted

	whole bool // a report has all Services in full, without limits
}

// Register registers WriterReportService.
func (b *Builder) Register(to grpc.ServiceRegistrar) {
	writerv1.RegisterWriterReportServiceServer(to, b)
}

// GetReport implements WriterReportService.
func (b *Builder) GetReport(_ context.Context, req *reportv1.GetReportRequest) (*writerv1.WriterReport, error) {
	return b.Build(req, time.Now())
}

// Ready returns why this writer cannot serve, or nil: the condition of its readiness. Inventories do not count:
// endpoints must stay available while an inventory is down, however long that lasts.
func (b *Builder) Ready() error {
	if report.Worst(b.ownProblems(endpoints.Status{})).GetLevel() < report.CannotServe {
		return nil
	}
	return errors.Join(b.Synced(), b.ImportsServed()) // the causes in full
}

// Build returns the report that a request asks for. Its error is for the client.
func (b *Builder) Build(req *reportv1.GetReportRequest, now time.Time) (*writerv1.WriterReport, error) {
	f, err := report.ParseFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	views, state := b.Store.Views(nil)
	snapshots := b.Sources()
	r := &writerv1.WriterReport{
		Version: b.Version, Instance: b.Instance, Time: timestamppb.New(now), Filter: req.GetFilter(),
		Leading: new(b.Leading()), DryRun: b.Holder == nil, Totals: &writerv1.ServiceTotals{},
	}
	if b.Holder != nil {
		r.Leader = b.Holder()
	}
	problems, since := b.ownProblems(state), map[*report.Problem]time.Time{}
	var selected []*endpoints.View
	for i := range views {
		v := &views[i]
		addToTotals(r.GetTotals(), v)
		if selects(&f, v) {
			selected = append(selected, v)
			problems = append(problems, v.Target.Problems...)
			for n, p := range v.Target.Problems {
				since[p] = v.Target.Since[n]
			}
		}
	}
	if len(selected) == 0 {
		problems = append(problems, report.NewProblem(report.Warning, "NoServices", "", "No Service of this writer is selected."))
	}
	r.Sources = sourceStates(snapshots, views, selected, f.Text != "", now)
	for _, s := range r.GetSources() {
		if s.GetProblem() != nil && f.Text == "" {
			problems = append(problems, s.GetProblem())
		}
	}
	encode := func(v *endpoints.View) *writerv1.ServiceReport { return b.serviceReport(v, &f, now) }
	services, next, err := page.Cut(req, selected, serviceKey, encode)
	if err != nil {
		return nil, err
	}
	for _, v := range selected[len(services):] {
		if b.whole {
			services, next = append(services, encode(v)), ""
		}
	}
	r.Services, r.NextPageToken = services, next
	if f.ByNode() {
		problems = append(problems, addressProblems(services, &f)...)
	}
	report.Sort(problems)
	for _, p := range problems[:b.limit(len(problems), maxProblems)] {
		r.Problems = append(r.Problems, withAge(p, since[p], now))
	}
	r.ProblemsOmitted = uint32(len(problems) - len(r.GetProblems()))
	return r, nil
}

// addressProblems returns the problems of the addresses that a filter selects.
func addressProblems(services []*writerv1.ServiceReport, f *report.Filter) (all []*report.Problem) {
	for _, s := range services {
		for _, a := range s.GetAddresses() {
			if a.GetProblem() != nil {
				all = append(all, a.GetProblem())
			}
		}
		unsynced := slices.ContainsFunc(s.GetProblems(), func(p *report.Problem) bool { return p.GetReason() == "SourceNotSynced" })
		if len(s.GetAddresses()) == 0 && !unsynced { // else the source may list it
			all = append(all, report.NewProblem(report.Warning, "NotReported", objectName(s.GetNamespace(), s.GetName()),
				"No source of the Service reports node %s.", f.Node))
		}
	}
	return all
}

// withAge returns a problem with its age: problems are shared by all reports.
func withAge(p *report.Problem, since, now time.Time) *report.Problem {
	aged := proto.CloneOf(p)
	aged.Age = report.Age(since, now)
	return aged
}

// limit returns how many of n items a report has.
func (b *Builder) limit(n, most int) int {
	if b.whole {
		return n
	}
	return min(n, most)
}

// serviceKey is a key by which Services are sorted: no name has a zero byte.
func serviceKey(v *endpoints.View) string { return v.Namespace + "\x00" + v.Service }

// ownProblems returns the problems of the writer itself.
func (b *Builder) ownProblems(state endpoints.Status) (all []*report.Problem) {
	if err := b.Synced(); err != nil {
		all = append(all, report.NewProblem(report.CannotServe, "CachesNotSynced", "", "%v", err))
	}
	if err := b.ImportsServed(); err != nil {
		all = append(all, report.NewProblem(report.CannotServe, "ServiceImportsMissing", "",
			"The API server does not serve serviceimports.%s.", targets.GroupServiceImport))
	}
	if !state.Synced {
		all = append(all, report.NewProblem(report.Warning, "InitialSyncIncomplete", "", "Not every Service has a decision yet."))
	}
	return all
}

func addToTotals(t *writerv1.ServiceTotals, v *endpoints.View) {
	add := func(total **uint32, n int) { *total = new(ptr.Deref(*total, 0) + uint32(n)) }
	add(&t.Services, 1)
	add(&t.Healthy, map[bool]int{true: 1}[report.IsHealthy(v.Target.Problems)])
	add(&t.Ready, v.Ready)
	add(&t.Draining, v.Draining)
	add(&t.NotReady, v.NotReady)
	add(&t.OutOfSync, v.OutOfSync)
	add(&t.Held, v.Held)
}

// sourceStates returns the state of each source; with a filter, of those of the selected Services.
func sourceStates(
	snapshots []subscriber.Snapshot,
	views []endpoints.View,
	selected []*endpoints.View,
	filtered bool,
	now time.Time,
) (all []*writerv1.SourceState) {
	ignoring, used := map[string]int{}, map[string]bool{}
	for i := range views {
		for _, g := range views[i].Target.Decision.Guards {
			if g.Rule != verdict.RuleTrust && g.Rule != verdict.RuleInitialSync {
				continue
			}
			for _, s := range views[i].Target.Sources {
				if s.Source == g.Source {
					ignoring[s.FeedName()]++
				}
			}
		}
	}
	for _, v := range selected {
		for _, s := range v.Target.Sources {
			used[s.FeedName()] = true
		}
	}
	slices.SortFunc(snapshots, func(a, b subscriber.Snapshot) int { return cmp.Compare(a.FeedName(), b.FeedName()) })
	for i := range snapshots {
		s := &snapshots[i]
		name := s.FeedName()
		if filtered && !used[name] || len(all) == maxSources {
			continue
		}
		all = append(all, &writerv1.SourceState{
			Name:           name,
			Connected:      new(s.Connected && s.SyncedInStream),
			Trusted:        new(ignoring[name] == 0),
			Nodes:          new(uint32(s.Nodes)),
			MembershipAge:  report.Age(s.MembershipSyncedAt, now),
			Observation:    s.Observation,
			ObservationAge: report.Age(s.ObservationReceivedAt, now),
			Problem:        ofSource(s, ignoring[name]),
		})
	}
	return all
}

func selects(f *report.Filter, v *endpoints.View) bool {
	return f.SelectsService(v.Namespace+"/"+v.Service) && (f.Service != "" || !f.ByNode() || len(addressesOf(v, f)) > 0)
}

// text returns text from elsewhere as a report may have it: in one line, and limited.
func text(s string) string { return display.Truncate(display.Sanitize(s), maxText) }

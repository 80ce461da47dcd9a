package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Preview is a decision about one target that is not written.
type Preview struct {
	Key  targets.Key
	View targets.Resolution // that it rests on

	// Of a target that is managed:
	Desired       planner.Desired
	Decision      verdict.Decision
	PendingProbes int           // endpoints without a probe status yet
	ProbeTimeout  time.Duration // for which they were awaited
	Unsynced      error         // names a source that is not synced yet
}

// Managed reports whether there is anything to decide about the target.
func (p *Preview) Managed() bool {
	return p.View.State == targets.Managed
}

// Text returns what would be written, for people.
func (p *Preview) Text() string {
	var text strings.Builder
	if s := p.plan(); s != nil {
		report.WritePlan(&text, s) //nolint:errcheck // writes to memory
	}
	return text.String()
}

// Plan returns the report of a dry run: all Services in full, without limits, and with what would be written.
func (b *Builder) Plan(previews []Preview, now time.Time) (report.Report, error) {
	b.whole = true
	all, err := b.Build(&reportv1.GetReportRequest{}, now)
	if err != nil {
		return nil, err
	}
	for i := range previews {
		if s := previews[i].plan(); s != nil {
			addPlan(all, s)
		}
	}
	slices.SortFunc(all.GetServices(), func(a, b *writerv1.ServiceReport) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all, nil
}

func addPlan(all *writerv1.WriterReport, plan *writerv1.ServiceReport) {
	for _, s := range all.GetServices() {
		if s.GetNamespace() == plan.GetNamespace() && s.GetName() == plan.GetName() {
			s.Writes, s.PlanNotes = plan.GetWrites(), plan.GetPlanNotes()
			return
		}
	}
	all.Services = append(all.Services, plan) // it opted out
}

// plan returns what would be written for a target; nil: nothing, because it is rejected or none of this writer's.
func (p *Preview) plan() *writerv1.ServiceReport {
	if p.View.State != targets.Managed && p.View.State != targets.Leaving {
		return nil
	}
	s, plan := &writerv1.ServiceReport{Namespace: p.Key.Namespace, Name: p.Key.TargetName()}, planner.Plan{}
	switch {
	case p.View.State == targets.Leaving:
		plan.Delete = p.View.Slices
		s.PlanNotes = append(s.PlanNotes, "opted out: its slices will be deleted")
	case p.Decision.Write:
		plan = planner.Compute(p.Desired, p.View.Slices)
	default:
		s.PlanNotes = append(s.PlanNotes, "writes blocked by a guard, see its problems")
	}
	current := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range p.View.Slices {
		current[slice.Name] = slice
	}
	for _, slice := range plan.Create {
		s.Writes = append(s.Writes, NewWrite(slice.Name, "create", "planned", nil, slice, nil))
	}
	for _, slice := range plan.Update {
		s.Writes = append(s.Writes, NewWrite(slice.Name, "update", "planned", current[slice.Name], slice, nil))
	}
	for _, slice := range plan.Delete {
		s.Writes = append(s.Writes, NewWrite(slice.Name, "delete", "planned", slice, nil, nil))
	}
	switch {
	case p.View.Settings.Paused:
		s.PlanNotes = append(s.PlanNotes, "paused by annotation slicefeed.dev/paused: nothing of this is written")
	case len(s.GetWrites())+len(s.GetPlanNotes()) == 0:
		s.PlanNotes = append(s.PlanNotes, "nothing to write")
	}
	if p.PendingProbes > 0 && p.ProbeTimeout > 0 { // serve keeps waiting
		s.PlanNotes = append(s.PlanNotes,
			fmt.Sprintf("Probes still pending after %s: %d. A running writer waits for them.", p.ProbeTimeout, p.PendingProbes))
	}
	return s
}

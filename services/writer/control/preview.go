package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Preview is what a writer that takes over now would decide about one target.
type Preview struct {
	View targets.Resolution // that it rests on

	// Of a target that is managed:
	Desired       planner.Desired
	Decision      verdict.Decision // without memory of earlier ones, as after a start
	Warnings      []events.Warning
	PendingProbes int // endpoints without a probe status yet
}

// Managed reports whether there is anything to decide about the target.
func (p *Preview) Managed() bool {
	return p.View.Relevant && !p.View.OptedOut && p.View.Rejection == nil
}

// Previewer decides as a leader does, and writes nothing.
type Previewer struct {
	stages  *stages
	targets map[targets.Key]*control
}

// NewPreviewer returns a Previewer. The configuration's Lease, Applier and Board are not used.
func NewPreviewer(cfg Config) *Previewer {
	cfg.Applier = func() *applier.Applier { return nil }
	return &Previewer{stages: newStages(cfg), targets: map[targets.Key]*control{}}
}

// Decide decides about one target. Its error names a source that is not synced yet.
func (p *Previewer) Decide(key targets.Key, now time.Time) (Preview, error) {
	c := p.targets[key]
	if c == nil {
		c = p.stages.control(key, nil)
		p.targets[key] = c
	}
	preview := Preview{View: p.stages.targets.Get(key)}
	if !preview.Managed() {
		return preview, nil
	}
	for _, name := range preview.View.Target.Settings.Sources {
		if s := p.stages.sources[name].Snapshot(); !s.SyncedInStream {
			return preview, fmt.Errorf("source %s did not sync (%s)", name, s.NotSyncedReason())
		}
	}
	c.preview(&preview, now)
	return preview, nil
}

func (c *control) preview(p *Preview, now time.Time) {
	settings := p.View.Target.Settings
	p.Desired = p.View.Target.Desired()
	held := toCurrent(planner.CurrentEndpoints(p.Desired, p.View.Slices))
	for range 3 { // what is probed follows from a decision, and the decision from the probes
		statuses, probed := c.probeStatuses(), c.probed
		_, p.Decision = verdict.Decide(verdict.Memory{}, verdict.Input{
			Sources: c.sourceInputs(p.View, c.snapshots(p.View)),
			Probes:  statuses,
			Current: held,
			Limits:  limits(settings),

			LeadingSince: now,
		}, now)
		c.follow(settings.Probe, p.View.Target.ProbePort, p.Decision.Endpoints, held)
		p.PendingProbes = 0
		for _, request := range c.probed { // as the decision has it: a probe may have passed since
			if settings.Probe.Mode != prober.Off && statuses[request.Key.Address].Status == verdict.Pending {
				p.PendingProbes++
			}
		}
		if slices.Equal(probed, c.probed) {
			break
		}
	}
	p.Desired.Endpoints = listed(p.Decision.Endpoints)
	p.Warnings = c.targetWarnings(p.View)
}

// Package control has a loop for each Service that is ours: when anything that a decision
// rests upon has changed, it decides anew, and while we lead it has the difference written. It
// promises that a change wakes those whom it concerns and no others, that a write which
// is under way holds no decision up, and that the Lease is released between writes. It refuses
// to judge, to plan and to write: those are verdict, planner and applier.
package control

import (
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Config is what the decisions rest upon, and who carries them out. Who runs the stages in it
// is the caller.
type Config struct {
	Sources  []Source
	Targets  services
	Prober   probes
	Lease    Lease
	Zones    map[string]string // from the secured clusters' names to ours; those of no name here are not written
	Reporter *events.Reporter
	Board    *endpoints.Store        // nil: nothing is published, as in a dry run
	DryRun   bool                    // it decides as a leader does, and what it decides is not sent
	Applier  func() *applier.Applier // makes one for a target

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Source is one inventory: what it tells, and what it may point to.
type Source struct {
	Feed

	Name  string
	CIDRs []netip.Prefix
}

// Feed is what one inventory tells.
type Feed interface {
	Snapshot() subscriber.Snapshot
	Changed() <-chan struct{} // it says something else; one reader
	ObserveNow()              // asks for complete observations
}

// services are the Services that are ours.
type services interface {
	Get(key targets.Key) targets.Resolution
	TakeChanged() []targets.Key // those that may have changed since it was called last
	Changed() <-chan struct{}   // Take may have some; one reader
	Synced() error              // nil: all that was there at the start is known
}

// probes are the words of the probes.
type probes interface {
	Set(target string, requests []prober.Request) // replaces what is probed for a target
	Status(key prober.Key) prober.Status
	TakeChanged() []string    // targets with a word that changed since it was called last
	Changed() <-chan struct{} // Take may have some; one reader
}

// Lease says who writes.
type Lease interface {
	Leading() bool
	// Term is which of our terms with it this is, counted from 1; 0: it is not surely ours.
	Term() int
	Changed() <-chan struct{} // it has been taken or lost; one reader
	// Release has this writer stop leading at once. The Lease stays its own until handOver is called, once
	// no write is under way: another one may take it then and begin at once.
	Release() (handOver func())
}

// maxWrites is how many Services are written at a time. One change may concern hundreds, and an
// API server turns away by 429 what neither fits among the some 245 requests that it serves the
// service accounts at a time, unless it is set otherwise, nor into a few queues behind. Far fewer
// keep it busy, and they share a connection. Those whose writes hang, in a namespace with a webhook
// that does not answer for one, must not take all places from the others.
const maxWrites = 64

// stages are what all controls share.
type stages struct {
	sources  map[string]Source
	targets  services
	prober   probes
	lease    Lease
	zones    map[string]string
	reporter *events.Reporter
	board    *endpoints.Store
	dryRun   bool
	applier  func() *applier.Applier
	metrics  *metrics
	log      *slog.Logger

	// turns has a place for each write that is under way. Who holds all places knows that there is none.
	turns chan struct{}
}

func newStages(cfg Config) *stages {
	s := &stages{
		sources: map[string]Source{}, targets: cfg.Targets, prober: cfg.Prober, lease: cfg.Lease, zones: cfg.Zones,
		reporter: cfg.Reporter, board: cfg.Board, dryRun: cfg.DryRun, applier: cfg.Applier, metrics: newMetrics(cfg.Registerer), log: cfg.Logger,
		turns: make(chan struct{}, maxWrites),
	}
	for _, one := range cfg.Sources {
		s.sources[one.Name] = one
	}
	return s
}

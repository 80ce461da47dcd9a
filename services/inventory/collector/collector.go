// Package collector runs the inventory's event loop: it passes updates of the source and listings of the
// cloud to the roster, publishes the roster's changes in a set, and sends the requests
// that the roster asks for. It guarantees that one goroutine at a time uses the roster, and that each
// request is answered once. It does not decide anything about nodes, nor when to send requests: package
// roster does.
package collector

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Config holds what a collector connects.
type Config struct {
	Source      roster.Source
	Cloud       Cloud // nil if the roster never requests a listing
	Roster      roster.Config
	Set         *feed.Set
	Registerer  prometheus.Registerer
	Propagation *prometheus.HistogramVec // of NewPropagation
	Log         *slog.Logger
}

// Cloud lists the servers of the cloud.
type Cloud interface {
	List(ctx context.Context) (roster.Listing, error)
}

// Collector observes the secured cluster and the cloud, and publishes in a set.
type Collector struct {
	Set *feed.Set

	source  roster.Source
	cloud   Cloud
	metrics *metrics
	log     *slog.Logger

	mu          sync.Mutex // reports read the roster concurrently
	roster      *roster.Roster
	lastListing Listing
}

// Listing describes the last listing of the cloud.
type Listing struct {
	StartedAt time.Time // zero if there was none
	Servers   int
	Err       error // nil if it succeeded
}

// Snapshot is the state of the roster and of the last listing at one moment.
type Snapshot struct {
	Status  roster.Status
	Counts  roster.Counts
	Members []roster.Member // sorted by name; only from Snapshot
	Listing Listing
}

// New returns a collector that does not run yet.
func New(cfg Config) *Collector {
	c := &Collector{
		source: cfg.Source, cloud: cfg.Cloud, metrics: newMetrics(cfg.Registerer, cfg.Propagation), log: cfg.Log,
		Set: cfg.Set, roster: roster.New(cfg.Roster),
	}
	c.metrics.update(c.roster.Counts(), roster.Status{}, time.Time{}) // so that the first scrape has all series
	return c
}

// Run follows the source and updates the set until ctx is done.
func (c *Collector) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.source.Run(ctx) })
	g.Go(func() error { return c.runLoop(ctx) })
	return g.Wait()
}

// Cloud returns the client of the cloud; nil if addresses come from elsewhere.
func (c *Collector) Cloud() Cloud { return c.cloud }

// runLoop updates the set until ctx is done, and waits for requests that are in flight.
func (c *Collector) runLoop(ctx context.Context) error {
	results := make(chan roster.Input)
	var requests sync.WaitGroup
	defer requests.Wait()
	startRequest := func(request func() roster.Input) {
		requests.Go(func() {
			result := request()
			select {
			case results <- result:
			case <-ctx.Done():
			}
		})
	}

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var update roster.Input
		select {
		case <-ctx.Done():
			return nil
		case <-c.source.Changed():
		case update = <-results:
		case <-timer.C:
		}
		next := c.step(update)
		if next.Verify != roster.NoVerification {
			startRequest(func() roster.Input { return c.verifySource(ctx, next.Verify) })
		}
		if next.List {
			startRequest(func() roster.Input { return c.listCloud(ctx) })
		}
		timer.Reset(time.Until(next.Wake))
	}
}

// step applies the result of a request, if there is one, and the source's update to the roster and then
// to the set. It returns the requests to send next.
func (c *Collector) step(update roster.Input) roster.Actions {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	update.Source = c.source.Take()
	if l := update.Listing; l != nil {
		c.lastListing = Listing{StartedAt: l.StartedAt, Servers: len(l.Listing.Servers), Err: l.Err}
	}
	changes := c.roster.Apply(now, update)
	if len(changes) > 0 {
		c.metrics.changedAt.Store(&update.Source.ChangedAt)
	}
	debug := tracepoint.Enabled(c.log)
	if debug {
		logUpdate(c.log, update.Source)
		logChanges(c.log, changes)
	}
	oldRevision, status := c.Set.Revision(), c.roster.Status(now)
	c.Set.Publish(status, changes)
	if len(changes) > 0 {
		tracepoint.Mark(tracepoint.DeltaPublished)
		c.metrics.observePropagation(stageStored)
	}
	if revision := c.Set.Revision(); debug && status.Publishable && revision != oldRevision {
		tracepoint.Log(c.log, tracepoint.DeltaPublished, slog.String("epoch", c.Set.Epoch()),
			slog.Uint64("revision", revision), slog.Uint64("observation", status.Observation))
	}
	c.metrics.update(c.roster.Counts(), status, update.Source.LastContact)
	return c.roster.NextActions(now)
}

func (c *Collector) verifySource(ctx context.Context, mode roster.Verification) roster.Input {
	result := roster.VerificationResult{StartedAt: time.Now(), Mode: mode}
	result.Number, result.Err = c.source.Verify(ctx, mode)
	if result.Err != nil {
		c.log.Warn("source verification failed", "mode", mode.String(), "error", result.Err)
	}
	return roster.Input{Verification: &result}
}

func (c *Collector) listCloud(ctx context.Context) roster.Input {
	result := roster.ListingResult{StartedAt: time.Now()}
	result.Listing, result.Err = c.cloud.List(ctx)
	if result.Err != nil {
		result.RetryAfter, _ = ionos.RetryAfter(result.Err)
		c.log.Warn("cloud listing failed, keeping known addresses", "error", result.Err, "retryAfter", result.RetryAfter)
	}
	return roster.Input{Listing: &result}
}

// Summary returns the state without the nodes. Its cost does not depend on their number.
func (c *Collector) Summary() Snapshot {
	status, _ := c.Set.Status()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Status: status, Counts: c.roster.Counts(), Listing: c.lastListing}
}

// Snapshot returns the state with the nodes of the source that a filter selects. Only copying and describing them holds
// up the collector.
func (c *Collector) Snapshot(f roster.Filter) Snapshot {
	status, _ := c.Set.Status()
	c.mu.Lock()
	s := Snapshot{Status: status, Counts: c.roster.Counts(), Listing: c.lastListing, Members: c.roster.Members(f)}
	c.mu.Unlock()
	slices.SortFunc(s.Members, func(a, b roster.Member) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// RecordSent records that the last changes were sent to a subscriber.
func (c *Collector) RecordSent() {
	tracepoint.Mark(tracepoint.DeltaSent)
	c.metrics.observePropagation(stageSent)
}

package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/overview"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// collector drives the roster. It passes updates of the source and listings of the cloud to the
// roster, passes the roster's changes to the stores of the views, and sends the requests that the
// roster returns.
type collector struct {
	source  source.Source
	cloud   cloud // nil if the roster never requests a listing
	metrics *metrics
	log     *slog.Logger

	mu          sync.Mutex // calls of clients and the status page use the roster concurrently
	intake      feed.Intake
	lastListing overview.Listing
	wakeCh      chan struct{} // capacity 1; receives a signal after a request of a subscriber
}

// cloud lists the servers of the cloud.
type cloud interface {
	List(ctx context.Context) (source.Listing, error)
}

func newCollector(s source.Source, c cloud, cfg roster.Config, stores *feed.Stores, m *metrics, log *slog.Logger) *collector {
	return &collector{
		source: s, cloud: c, metrics: m, log: log,
		intake: feed.Intake{Roster: roster.New(cfg), Stores: stores}, wakeCh: make(chan struct{}, 1),
	}
}

// requestResult applies the result of a request to the roster.
type requestResult func(*roster.Roster)

// Run updates the stores until ctx is done, and waits for requests that are in flight.
func (c *collector) Run(ctx context.Context) error {
	results := make(chan requestResult)
	var requests sync.WaitGroup
	defer requests.Wait()
	startRequest := func(request func() requestResult) {
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
		var result requestResult
		select {
		case <-ctx.Done():
			return nil
		case <-c.source.Changed():
		case result = <-results:
		case <-c.wakeCh:
		case <-timer.C:
		}
		next := c.step(result)
		if next.Look != source.NoVerification {
			startRequest(func() requestResult { return c.verifySource(ctx, next.Look) })
		}
		if next.List {
			startRequest(func() requestResult { return c.listCloud(ctx) })
		}
		timer.Reset(time.Until(next.Wake))
	}
}

// step updates the roster and then the stores, and returns the requests to send next.
func (c *collector) step(result requestResult) roster.Ask {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	update := c.source.Take()
	changes := c.intake.Ingest(now, update, result)
	if len(changes) > 0 {
		c.metrics.recordChange(update.ChangedAt)
	}
	debug := tracepoint.Enabled(c.log)
	var oldRevisions map[string]uint64
	if debug {
		logUpdate(c.log, update)
		logChanges(c.log, changes)
		oldRevisions = c.intake.Stores.Revisions()
	}
	status, next := c.intake.Publish(now, changes)
	if len(changes) > 0 {
		tracepoint.Mark(tracepoint.DeltaPublished)
		c.metrics.recordStored()
	}
	if debug && status.Publishable {
		c.logPublished(oldRevisions, status.Observation)
	}
	c.metrics.update(c.intake.Roster.Counts(), status, update.LastContact)
	return next
}

func (c *collector) verifySource(ctx context.Context, mode source.Verification) requestResult {
	startedAt := time.Now()
	number, err := c.source.Verify(ctx, mode)
	if err != nil {
		c.log.Warn("source verification failed", "mode", mode.String(), "error", err)
	}
	return func(r *roster.Roster) { r.Looked(time.Now(), startedAt, mode, number, err) }
}

func (c *collector) listCloud(ctx context.Context) requestResult {
	startedAt := time.Now()
	listing, err := c.cloud.List(ctx)
	retryAfter, _ := ionos.RetryAfter(err)
	if err != nil {
		c.log.Warn("cloud listing failed, keeping known addresses", "error", err, "retryAfter", retryAfter)
	}
	return func(r *roster.Roster) {
		c.lastListing = overview.Listing{StartedAt: startedAt, Duration: time.Since(startedAt), Servers: len(listing.Servers), Err: err}
		r.Listed(time.Now(), startedAt, listing, err, retryAfter)
	}
}

// RequestObservations requests complete observations in close succession on behalf of a
// subscriber. It returns how many this adds to those that were requested already.
func (c *collector) RequestObservations(observations int) (added int) {
	c.mu.Lock()
	added = c.intake.Roster.Doubt(time.Now(), observations)
	c.mu.Unlock()
	c.wakeUp()
	return added
}

// SetConfirmations sets how many observations subscribers need to confirm an anomaly.
func (c *collector) SetConfirmations(observations int) {
	c.mu.Lock()
	c.intake.SetConfirmations(observations)
	c.mu.Unlock()
	c.wakeUp()
}

// Omitted returns the omitted nodes.
func (c *collector) Omitted() []roster.Omission {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.intake.Roster.Omitted()
}

// Explain returns the steps and the conclusion about the node of this name: published or omitted.
func (c *collector) Explain(name string) (e roster.Explanation, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.intake.Roster.Explain(name)
}

func (c *collector) wakeUp() {
	select {
	case c.wakeCh <- struct{}{}:
	default:
	}
}

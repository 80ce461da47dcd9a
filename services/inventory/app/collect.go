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
)

// collector drives the roster: what the source and the cloud say goes in, what changed
// goes to the stores of the views, and what the roster wants to know is asked.
type collector struct {
	source  source
	cloud   cloud // nil where the roster never asks for a listing
	metrics *metrics
	log     *slog.Logger

	mu          sync.Mutex // the roster is also asked by operators' calls
	intake      feed.Intake
	lastListing overview.Listing // the last one
	wakeCh      chan struct{}    // capacity 1: a subscriber has changed what the roster wants
}

// cloud is a source of whole listings.
type cloud interface {
	List(ctx context.Context) (roster.Listing, error)
}

func newCollector(s source, c cloud, cfg roster.Config, stores *feed.Stores, m *metrics, log *slog.Logger) *collector {
	return &collector{
		source: s, cloud: c, metrics: m, log: log,
		intake: feed.Intake{Roster: roster.New(cfg), Stores: stores}, wakeCh: make(chan struct{}, 1),
	}
}

// rosterUpdate takes what was asked for into the roster.
type rosterUpdate func(*roster.Roster)

// Run collects until ctx is done, and waits for questions that are under way.
func (c *collector) Run(ctx context.Context) error {
	updates := make(chan rosterUpdate)
	var requests sync.WaitGroup
	defer requests.Wait()
	startRequest := func(request func() rosterUpdate) {
		requests.Go(func() {
			update := request()
			select {
			case updates <- update:
			case <-ctx.Done():
			}
		})
	}

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var update rosterUpdate
		select {
		case <-ctx.Done():
			return nil
		case <-c.source.Changed():
		case update = <-updates:
		case <-c.wakeCh:
		case <-timer.C:
		}
		next := c.step(update)
		if next.Look != roster.NoLook {
			startRequest(func() rosterUpdate { return c.verifySource(ctx, next.Look) })
		}
		if next.List {
			startRequest(func() rosterUpdate { return c.listCloud(ctx) })
		}
		timer.Reset(time.Until(next.Wake))
	}
}

// step brings the roster and then the stores up to date.
func (c *collector) step(result rosterUpdate) roster.Ask {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	update := c.source.Take()
	changes := c.intake.Ingest(now, update, result)
	if len(changes) > 0 {
		c.metrics.changeReceived(update.ChangedAt)
	}
	status, next := c.intake.Publish(now, changes)
	if len(changes) > 0 {
		tracepoint.Log(tracepoint.Stored)
		c.metrics.recordStored()
	}
	c.metrics.update(c.intake.Roster.Counts(), status, update.HeardAt)
	return next
}

func (c *collector) verifySource(ctx context.Context, verifySource roster.Look) rosterUpdate {
	began := time.Now()
	mark, err := c.source.Verify(ctx, verifySource)
	if err != nil {
		c.log.Warn("look at the source gave no answer", "look", verifySource.String(), "error", err)
	}
	return func(r *roster.Roster) { r.Looked(time.Now(), began, verifySource, mark, err) }
}

func (c *collector) listCloud(ctx context.Context) rosterUpdate {
	began := time.Now()
	listing, err := c.cloud.List(ctx)
	retryAfter, _ := ionos.RetryAfter(err)
	if err != nil {
		c.log.Warn("listing of the cloud failed, every known address stays", "error", err, "retryAfter", retryAfter)
	}
	return func(r *roster.Roster) {
		c.lastListing = overview.Listing{StartedAt: began, Duration: time.Since(began), Servers: len(listing.Servers), Err: err}
		r.Listed(time.Now(), began, listing, err, retryAfter)
	}
}

// RequestObservations asks for a series of complete observations on behalf of a subscriber, and returns how many
// that adds to those that are going to be made anyway.
func (c *collector) RequestObservations(observations int) (added int) {
	c.mu.Lock()
	added = c.intake.Roster.Doubt(time.Now(), observations)
	c.mu.Unlock()
	c.wakeUp()
	return added
}

// SetConfirmations says how many observations subscribers want of a series.
func (c *collector) SetConfirmations(observations int) {
	c.mu.Lock()
	c.intake.SetConfirmations(observations)
	c.mu.Unlock()
	c.wakeUp()
}

// Omitted are the Nodes that are left out at present.
func (c *collector) Omitted() []roster.Omission {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.intake.Roster.Omitted()
}

// Explain says why the node of this name is told as it is, or left out.
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

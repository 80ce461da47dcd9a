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

	mu     sync.Mutex // the roster is also asked by operators' calls
	intake feed.Intake
	listed overview.Listing // the last one
	wake   chan struct{}    // capacity 1: a subscriber has changed what the roster wants
}

// cloud is a source of whole listings.
type cloud interface {
	List(ctx context.Context) (roster.Listing, error)
}

func newCollector(s source, c cloud, cfg roster.Config, stores *feed.Stores, m *metrics, log *slog.Logger) *collector {
	return &collector{
		source: s, cloud: c, metrics: m, log: log,
		intake: feed.Intake{Roster: roster.New(cfg), Stores: stores}, wake: make(chan struct{}, 1),
	}
}

// answer takes what was asked for into the roster.
type answer func(*roster.Roster)

// Run collects until ctx is done, and waits for questions that are under way.
func (c *collector) Run(ctx context.Context) error {
	answers := make(chan answer)
	var asking sync.WaitGroup
	defer asking.Wait()
	ask := func(question func() answer) {
		asking.Go(func() {
			a := question()
			select {
			case answers <- a:
			case <-ctx.Done():
			}
		})
	}

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var in answer
		select {
		case <-ctx.Done():
			return nil
		case <-c.source.Changed():
		case in = <-answers:
		case <-c.wake:
		case <-timer.C:
		}
		next := c.step(in)
		if next.Look != roster.NoLook {
			ask(func() answer { return c.look(ctx, next.Look) })
		}
		if next.List {
			ask(func() answer { return c.list(ctx) })
		}
		timer.Reset(time.Until(next.Wake))
	}
}

// step brings the roster and then the stores up to date.
func (c *collector) step(in answer) roster.Ask {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	news := c.source.Take()
	changes := c.intake.Ingest(now, news, in)
	if len(changes) > 0 {
		c.metrics.seen(news.ChangedAt)
	}
	status, ask := c.intake.Publish(now, changes)
	if len(changes) > 0 {
		tracepoint.Log(tracepoint.Stored)
		c.metrics.stored()
	}
	c.metrics.set(c.intake.Roster.Counts(), status, news.HeardAt)
	return ask
}

func (c *collector) look(ctx context.Context, look roster.Look) answer {
	began := time.Now()
	mark, err := c.source.Verify(ctx, look)
	if err != nil {
		c.log.Warn("look at the source gave no answer", "look", look.String(), "error", err)
	}
	return func(r *roster.Roster) { r.Looked(time.Now(), began, look, mark, err) }
}

func (c *collector) list(ctx context.Context) answer {
	began := time.Now()
	listing, err := c.cloud.List(ctx)
	after, _ := ionos.RetryAfter(err)
	if err != nil {
		c.log.Warn("listing of the cloud failed, every known address stays", "error", err, "retryAfter", after)
	}
	return func(r *roster.Roster) {
		c.listed = overview.Listing{At: began, Took: time.Since(began), Servers: len(listing.Servers), Err: err}
		r.Listed(time.Now(), began, listing, err, after)
	}
}

// Doubt asks for a series of complete observations on behalf of a subscriber, and returns how many
// that adds to those that are going to be made anyway.
func (c *collector) Doubt(observations int) (added int) {
	c.mu.Lock()
	added = c.intake.Roster.Doubt(time.Now(), observations)
	c.mu.Unlock()
	c.rouse()
	return added
}

// SetDoubtDepth says how many observations subscribers want of a series.
func (c *collector) SetDoubtDepth(observations int) {
	c.mu.Lock()
	c.intake.SetDoubtDepth(observations)
	c.mu.Unlock()
	c.rouse()
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

func (c *collector) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

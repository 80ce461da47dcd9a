package collector

import (
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Publisher publishes the changes of a roster to the stores. It guarantees that no store publishes the
// number of an observation with an older set. It is pure, and not safe for concurrent use.
type Publisher struct {
	Roster *roster.Roster
	Stores *feed.Stores
}

// Publish applies the changes and the status of the roster to the stores. It returns the status and the
// requests that the roster needs next.
func (p *Publisher) Publish(now time.Time, changes []roster.Change) (source.Status, observe.Actions) {
	p.Stores.FreeUnused(now)
	p.Stores.Apply(changes)
	status := p.Roster.Status(now)
	p.Stores.SetStatus(status)
	return status, p.Roster.NextActions(now)
}

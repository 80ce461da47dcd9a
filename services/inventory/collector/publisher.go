package collector

import (
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Publisher publishes the changes of a roster in a set. It guarantees that the number of an observation is
// never published with an older set. It is pure, and not safe for concurrent use.
type Publisher struct {
	Roster *roster.Roster
	Set    *feed.Set
}

// Publish applies the changes and the status of the roster to the set. It returns the status and the
// requests that the roster needs next.
func (p *Publisher) Publish(now time.Time, changes []roster.Change) (source.Status, observe.Actions) {
	p.Set.Apply(changes)
	status := p.Roster.Status(now)
	p.Set.SetStatus(status)
	return status, p.Roster.NextActions(now)
}

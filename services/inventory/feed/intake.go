package feed

import (
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Intake applies updates of the source to a roster (Ingest), and the roster's changes to the stores
// (Publish). It guarantees that no store publishes the number of an observation with an older set. It
// is pure, and not safe for concurrent use.
type Intake struct {
	Roster *roster.Roster
	Stores *Stores

	confirmations int // number of observations to request after an anomaly; 0: one
}

// Ingest applies an update of the source and then the result of a request of the roster, or nil. It
// returns the changes of the roster. The update comes first: the result is about the set that the source
// had when the request ended.
func (i *Intake) Ingest(now time.Time, update source.Update, result func(*roster.Roster)) []roster.Change {
	i.Roster.Hear(now, update)
	if result != nil {
		result(i.Roster)
	}
	return i.Roster.Take()
}

// Publish applies the changes and the status to the stores. It returns the status and the requests that
// the roster needs next.
func (i *Intake) Publish(now time.Time, changes []roster.Change) (source.Status, roster.Ask) {
	i.Stores.FreeUnused(now)
	anomaly := i.Stores.Apply(changes)
	status := i.Roster.Status(now)
	if i.Stores.SetStatus(status) || anomaly {
		i.Roster.Doubt(now, max(1, i.confirmations))
	}
	return status, i.Roster.Ask(now)
}

// SetConfirmations sets the number of observations that the subscribers require to confirm an anomaly.
func (i *Intake) SetConfirmations(observations int) {
	i.confirmations = observations
	i.Roster.SetDoubtDepth(observations)
}

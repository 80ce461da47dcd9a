package feed

import (
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Intake applies updates of the source to a roster (Ingest), and the roster's changes to the stores
// (Publish). It guarantees that no store publishes an observation with a set that is older. It is
// pure, and not safe for concurrent use.
type Intake struct {
	Roster *roster.Roster
	Stores *Stores

	confirmations int // number of observations that an anomaly requests; 0: one
}

// Ingest applies an update of the source and, unless it is nil, the result of what the roster
// requested. It returns the changes of the roster. The update comes first, because the result describes
// an earlier moment.
func (i *Intake) Ingest(now time.Time, update roster.News, result func(*roster.Roster)) []roster.Change {
	i.Roster.Hear(now, update)
	if result != nil {
		result(i.Roster)
	}
	return i.Roster.Take()
}

// Publish brings the stores up to date, and returns the status and the requests that the roster needs
// now.
func (i *Intake) Publish(now time.Time, changes []roster.Change) (roster.Status, roster.Ask) {
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

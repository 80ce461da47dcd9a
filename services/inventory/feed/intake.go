package feed

import (
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Intake takes what the outside says into a roster (Hear), and what the roster makes of it into
// the stores (Tell). It promises that a store never tells an observation with a set from before
// it. It is pure, and not safe for concurrent use.
type Intake struct {
	Roster *roster.Roster
	Stores *Stores

	confirmations int // how many observations a series has that nobody asked for by name; 0: one
}

// Ingest takes in the news of the source, and an answer of the outside if there is one, and returns
// what became of it. The news go first: an answer is about a time before it came.
func (i *Intake) Ingest(now time.Time, update roster.News, result func(*roster.Roster)) []roster.Change {
	i.Roster.Hear(now, update)
	if result != nil {
		result(i.Roster)
	}
	return i.Roster.Take()
}

// Publish brings the stores up to date, and returns what is to be asked of the outside now.
func (i *Intake) Publish(now time.Time, changes []roster.Change) (roster.Status, roster.Ask) {
	i.Stores.FreeUnused(now)
	anomaly := i.Stores.Apply(changes)
	status := i.Roster.Status(now)
	if i.Stores.SetStatus(status) || anomaly {
		i.Roster.Doubt(now, max(1, i.confirmations))
	}
	return status, i.Roster.Ask(now)
}

// SetConfirmations says how many observations subscribers want of a series.
func (i *Intake) SetConfirmations(observations int) {
	i.confirmations = observations
	i.Roster.SetDoubtDepth(observations)
}

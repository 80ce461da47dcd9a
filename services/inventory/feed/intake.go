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

	depth int // how many observations a series has that nobody asked for by name; 0: one
}

// Hear takes in the news of the source, and an answer of the outside if there is one, and returns
// what became of it. The news go first: an answer is about a time before it came.
func (i *Intake) Hear(now time.Time, news roster.News, answer func(*roster.Roster)) []roster.Change {
	i.Roster.Hear(now, news)
	if answer != nil {
		answer(i.Roster)
	}
	return i.Roster.Take()
}

// Tell brings the stores up to date, and returns what is to be asked of the outside now.
func (i *Intake) Tell(now time.Time, changes []roster.Change) (roster.Status, roster.Ask) {
	i.Stores.FreeUnread(now)
	anomaly := i.Stores.Apply(changes)
	status := i.Roster.Status(now)
	if i.Stores.SetStatus(status) || anomaly {
		i.Roster.Doubt(now, max(1, i.depth))
	}
	return status, i.Roster.Ask(now)
}

// SetDoubtDepth says how many observations subscribers want of a series.
func (i *Intake) SetDoubtDepth(observations int) {
	i.depth = observations
	i.Roster.SetDoubtDepth(observations)
}

package control

import (
	"time"
)

// term is the one with the Lease that was noticed last; zero: there is none now. Whether we lead
// is not enough: the Lease may be lost, be another's and be ours again between two looks.
type term struct {
	number int
	since  time.Time // we noticed it
}

// turns takes in which term it is now, and reports whether that is another one.
func (t *term) turns(number int, now time.Time) bool {
	if number == t.number {
		return false
	}
	*t = term{number: number}
	if number != 0 {
		t.since = now
	}
	return true
}

func (t *term) leads() bool { return t.number != 0 }

package roster

import (
	"context"
	"time"
)

// Source reports which nodes exist. docs/use/sources/README.md has its contract, which package
// sourcetest tests for every kind.
type Source interface {
	// Run follows the nodes until ctx is done; its error is then nil.
	Run(ctx context.Context) error
	// Changed receives a signal when there is something to take. One signal stands for any number of changes.
	Changed() <-chan struct{}
	// Take returns the changes since the last Take. It does no I/O.
	Take() Update
	// Verify proves with a new request that the reported nodes are current, and returns the number of
	// the verification: from 1, higher than those before. For FullVerification, a nil error means that
	// everything that was read equals what the source has reported. A light one is complete when
	// Update.Verified reaches its number.
	Verify(ctx context.Context, mode Verification) (number uint64, err error)
}

// Signal sends a signal to a channel of capacity 1. One that is pending stands for this one too.
func Signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// Verification is a way to prove that a source is current.
type Verification uint8

// The verifications. Light: a request that the source has to catch up with, such as a quorum LIST
// with limit=1, whose resourceVersion a watch has to reach. Full: a new read of everything, compared
// with what the source has reported.
const (
	NoVerification Verification = iota
	LightVerification
	FullVerification
)

// Update is what a source reports at once: everything since the previous update.
type Update struct {
	Changed []Node   // new or changed, sorted by name; of two with one name the later one holds
	Removed []string // sorted; none of them is in Changed

	// LastContact is when the source last received something from its origin; of several things that it
	// follows, the one that has been idle for longest counts. Zero: nothing since the previous update.
	LastContact time.Time
	// ChangedAt is when the first of these changes arrived; zero if there is none or it is not known.
	// It is only measured.
	ChangedAt time.Time
	// Verified is the highest number of a verification that the source has caught up with.
	Verified uint64
	// Failure is the last error of following the origin, if there was no contact since.
	Failure string

	// PartialError is what is now invalid in a part of the origin: membership is DEGRADED while there is one.
	PartialError string
	// Withheld is why nothing may be published: the source may not report its nodes. Empty: they may be.
	Withheld string
}

package subscriber

import "fmt"

// ViolationKind is what a breach of the contract consists of; a label of metrics.
type ViolationKind string

// The breaches of rule R13.
const (
	InvalidName          ViolationKind = "name"                 // an upsert without a name, or with one that is too long
	InvalidAddress       ViolationKind = "address"              // an upsert without a valid address
	InvalidFingerprint   ViolationKind = "fingerprint"          // a fingerprint that is not 16 bytes long
	DuplicateName        ViolationKind = "duplicate_name"       // two nodes of one name in a message
	DuplicateAddress     ViolationKind = "duplicate_address"    // two nodes of one address in a synced set
	RemovedAndUpserted   ViolationKind = "removed_and_upserted" // a name that is both, in one message
	UnknownRemoval       ViolationKind = "unknown_removal"      // of a node that the staged set does not have
	CountMismatch        ViolationKind = "count"                // it does not fit the staged set
	DigestMismatch       ViolationKind = "digest"               // it does not fit the staged set
	RevisionDecreased    ViolationKind = "revision"             // goes back within one epoch
	ObservationDecreased ViolationKind = "observation"          // goes back within one epoch
	EpochChanged         ViolationKind = "epoch"                // within a stream, without a reset
	IncompleteSynced     ViolationKind = "incomplete"           // synced without status or cursor
	LimitExceeded        ViolationKind = "limit"                // above a size that the contract states
)

// ViolationKinds are all kinds of breaches, in the order of the constants.
var ViolationKinds = []ViolationKind{
	InvalidName, InvalidAddress, InvalidFingerprint, DuplicateName, DuplicateAddress, RemovedAndUpserted, UnknownRemoval,
	CountMismatch, DigestMismatch, RevisionDecreased, ObservationDecreased, EpochChanged, IncompleteSynced, LimitExceeded,
}

// Violation is what a peer did that the contract rules out. Its stream has to end.
type Violation struct {
	Kind   ViolationKind
	Detail string // for people
}

// Error says what was wrong with the message.
func (b *Violation) Error() string {
	return fmt.Sprintf("breach of the contract (%s): %s", b.Kind, b.Detail)
}

func violationf(kind ViolationKind, format string, args ...any) *Violation {
	return &Violation{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

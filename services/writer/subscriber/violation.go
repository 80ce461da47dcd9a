package subscriber

import "fmt"

// ViolationKind names what a message violates. It is the label kind of the metric of violations.
type ViolationKind string

// The protocol violations of rule R13.
const (
	InvalidName          ViolationKind = "name"                 // an upsert has no name, a name that is too long, or a hostname that is no DNS label
	InvalidAddress       ViolationKind = "address"              // an upsert has no address, or an invalid one
	InvalidFingerprint   ViolationKind = "fingerprint"          // a fingerprint is not 16 bytes long
	DuplicateName        ViolationKind = "duplicate_name"       // two nodes of one message have the same name
	DuplicateAddress     ViolationKind = "duplicate_address"    // two nodes of a synced set have the same address
	RemovedAndUpserted   ViolationKind = "removed_and_upserted" // one message removes and upserts the same name
	UnknownRemoval       ViolationKind = "unknown_removal"      // a removed node is not in the staged set
	CountMismatch        ViolationKind = "count"                // the count differs from the staged set's
	DigestMismatch       ViolationKind = "digest"               // the digest differs from the staged set's
	RevisionDecreased    ViolationKind = "revision"             // the revision decreased within an epoch
	ObservationDecreased ViolationKind = "observation"          // the observation number decreased within an epoch
	EpochChanged         ViolationKind = "epoch"                // the epoch changed within a stream, without a reset
	IncompleteSynced     ViolationKind = "incomplete"           // a synced message has no status or cursor
	LimitExceeded        ViolationKind = "limit"                // a size or number is above the contract's limit
	OtherService         ViolationKind = "service"              // the first message of a stream names another Service than the request
)

// ViolationKinds lists all kinds, in the order of the constants.
var ViolationKinds = []ViolationKind{
	InvalidName, InvalidAddress, InvalidFingerprint, DuplicateName, DuplicateAddress, RemovedAndUpserted, UnknownRemoval,
	CountMismatch, DigestMismatch, RevisionDecreased, ObservationDecreased, EpochChanged, IncompleteSynced, LimitExceeded, OtherService,
}

// Violation is a message that contradicts the contract. The caller must end its stream.
type Violation struct {
	Kind   ViolationKind
	Detail string // for humans
}

// Error returns the kind and the detail.
func (v *Violation) Error() string {
	return fmt.Sprintf("protocol violation (%s): %s", v.Kind, v.Detail)
}

func violationf(kind ViolationKind, format string, args ...any) *Violation {
	return &Violation{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

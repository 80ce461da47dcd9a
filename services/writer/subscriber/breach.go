package subscriber

import "fmt"

// Kind is what a breach of the contract consists of; a label of metrics.
type Kind string

// The breaches of rule R13.
const (
	BadName            Kind = "name"                 // an upsert without a name, or with one that is too long
	BadAddress         Kind = "address"              // an upsert without a valid address
	BadFingerprint     Kind = "fingerprint"          // a fingerprint that is not 16 bytes long
	DuplicateName      Kind = "duplicate_name"       // two nodes of one name in a message
	DuplicateAddress   Kind = "duplicate_address"    // two nodes of one address in a synced set
	RemovedAndUpserted Kind = "removed_and_upserted" // a name that is both, in one message
	UnknownRemoval     Kind = "unknown_removal"      // of a node that the staged set does not have
	BadCount           Kind = "count"                // it does not fit the staged set
	BadDigest          Kind = "digest"               // it does not fit the staged set
	RevisionBack       Kind = "revision"             // goes back within one epoch
	ObservationBack    Kind = "observation"          // goes back within one epoch
	EpochChanged       Kind = "epoch"                // within a stream, without a reset
	Incomplete         Kind = "incomplete"           // synced without status or cursor
	OverLimit          Kind = "limit"                // above a size that the contract states
)

// Kinds are all kinds of breaches, in the order of the constants.
var Kinds = []Kind{
	BadName, BadAddress, BadFingerprint, DuplicateName, DuplicateAddress, RemovedAndUpserted, UnknownRemoval,
	BadCount, BadDigest, RevisionBack, ObservationBack, EpochChanged, Incomplete, OverLimit,
}

// Breach is what a peer did that the contract rules out. Its stream has to end.
type Breach struct {
	Kind   Kind
	Detail string // for people
}

// Error says what was wrong with the message.
func (b *Breach) Error() string {
	return fmt.Sprintf("breach of the contract (%s): %s", b.Kind, b.Detail)
}

func breach(kind Kind, format string, args ...any) *Breach {
	return &Breach{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

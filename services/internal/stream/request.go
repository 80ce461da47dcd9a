package stream

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Cursor is the cursor of a request; nil or a nil pointer: the client has none.
type Cursor interface {
	comparable
	GetEpoch() string
	GetRevision() uint64
}

// ResumePosition returns the position that a request resumes from, or nil if the client has none. An
// error is for the client: the request is malformed.
func ResumePosition[C Cursor](cursor C, digest []byte) (*Position, error) {
	var none C
	if cursor == none {
		if len(digest) != 0 {
			return nil, status.Error(codes.InvalidArgument, "digest without a cursor: send both or neither")
		}
		return nil, nil
	}
	if l := len(cursor.GetEpoch()); l == 0 || l > contract.MaxEpochLength {
		return nil, status.Errorf(codes.InvalidArgument, "cursor.epoch has %d bytes, want 1 to %d", l, contract.MaxEpochLength)
	}
	if l := len(digest); l != contract.DigestSize {
		return nil, status.Errorf(codes.InvalidArgument, "digest has %d bytes, want %d beside a cursor", l, contract.DigestSize)
	}
	return &Position{Epoch: cursor.GetEpoch(), Revision: cursor.GetRevision(), Digest: contract.Digest(digest)}, nil
}

package targets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Reasons that are compared, or that have several causes.
const (
	reasonInvalidAnnotation  = "InvalidAnnotation"
	reasonOwnedByOtherWriter = "OwnedByOtherWriter"
	reasonServiceTerminating = "ServiceTerminating"
)

// Rejection is why a Service is not managed. While it lasts nothing is written and nothing is deleted:
// the slices stay as they are until someone decides.
type Rejection struct {
	Reason  string   // CamelCase, as the reason of the Event
	Message string   // what is wrong
	Parts   []string // of the message, if several things are wrong
}

// Error implements error.
func (r *Rejection) Error() string { return r.Message }

// maxParts is how many invalid annotations a rejection names.
const maxParts = 5

func newRejection(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// newAnnotationRejection returns the rejection for invalid annotations.
func newAnnotationRejection(problems []string) *Rejection {
	parts := slices.Clone(problems)
	if more := len(problems) - maxParts; more > 0 {
		parts = append(parts[:maxParts], display.Count(more, "more annotation is invalid", "more annotations are invalid"))
	}
	return &Rejection{Reason: reasonInvalidAnnotation, Message: strings.Join(parts, "; "), Parts: parts}
}

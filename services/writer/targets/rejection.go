package targets

import (
	"fmt"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Reasons of rejections and annotation errors, as Events have them.
const (
	ReasonServiceNotFound      = "ServiceNotFound"
	ReasonServiceTerminating   = "ServiceTerminating"
	ReasonServiceHasSelector   = "ServiceHasSelector"
	ReasonExternalName         = "ExternalName"
	ReasonLocalTrafficPolicy   = "LocalTrafficPolicy"
	ReasonTooManyPorts         = "TooManyPorts"
	ReasonNamedTargetPort      = "NamedTargetPort"
	ReasonInvalidTargetPort    = "InvalidTargetPort"
	ReasonAmbiguousTargetPort  = "AmbiguousTargetPort"
	ReasonNoProbePort          = "NoProbePort"
	ReasonInvalidServiceImport = "InvalidServiceImport"
	ReasonLegacyEndpoints      = "LegacyEndpoints"
	ReasonOwnedByOtherWriter   = "OwnedByOtherWriter"
	ReasonOrphanedSlices       = "OrphanedSlices"
	ReasonInvalidAnnotation    = "InvalidAnnotation"
	ReasonSourceRequired       = "SourceRequired"
	ReasonUnknownSource        = "UnknownSource"
	ReasonNamespaceNotAllowed  = "NamespaceNotAllowed"
	ReasonPortNotAllowed       = "PortNotAllowed"
	ReasonLabelRemoved         = "LabelRemoved"
	ReasonClassChanged         = "ClassChanged"
)

// Rejection is why a Service is not managed. While it lasts nothing is written and nothing is deleted:
// the slices stay as they are until someone decides.
type Rejection struct {
	Reason  string // CamelCase, as an Event's reason
	Message string // what is wrong and what to do; fits into an Event's note
}

// Error implements error.
func (r *Rejection) Error() string { return r.Message }

// maxEventNote is the maximum length of an Event's note.
const maxEventNote = 1024

func newRejection(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: display.Truncate(fmt.Sprintf(format, args...), maxEventNote)}
}

// newListRejection returns a rejection whose message ends with as many of the parts as fit.
func newListRejection(reason string, parts []string, head string) *Rejection {
	const room = len("; and 1000000 more.")
	text, n := head+": ", 0
	for ; n < len(parts); n++ {
		part := parts[n]
		if n > 0 {
			part = "; " + part
		}
		if len(text)+len(part)+room > maxEventNote {
			break
		}
		text += part
	}
	if more := len(parts) - n; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	return &Rejection{Reason: reason, Message: display.Truncate(text, maxEventNote)}
}

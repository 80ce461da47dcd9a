package query

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

const textWidth = 100 // of what people read

func describeConditions(b *writerv1.Backend) string {
	switch {
	case b.GetReady():
		return "ready"
	case b.GetServing():
		return "draining"
	default:
		return "out"
	}
}

func describeGuard(g *writerv1.Guard) string {
	said := "the guard " + display.Sanitize(g.GetRule())
	if g.GetSource() != "" {
		said += ", source " + display.Sanitize(g.GetSource())
	}
	return fmt.Sprintf("%s, %d in all", said, g.GetHeld())
}

// formatAge is a duration as people read it.
func formatAge(d *durationpb.Duration) string {
	is := d.AsDuration()
	if is < time.Second {
		return is.Round(time.Millisecond).String()
	}
	return is.Round(time.Second).String()
}

package query

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

const textWidth = 100 // columns

func describeConditions(b *writerv1.Backend) string {
	return verdict.Conditions{Ready: b.GetReady(), Serving: b.GetServing(), Terminating: b.GetTerminating()}.String()
}

func describeGuard(g *writerv1.Guard) string {
	name := "guard " + display.Sanitize(g.GetRule())
	if g.GetSource() != "" {
		name += " (source " + display.Sanitize(g.GetSource()) + ")"
	}
	if g.GetHeld() == 1 {
		return name + " holds 1 change"
	}
	return fmt.Sprintf("%s holds %d changes", name, g.GetHeld())
}

// formatAge formats a duration for people.
func formatAge(d *durationpb.Duration) string {
	age := d.AsDuration()
	if age < time.Second {
		return age.Round(time.Millisecond).String()
	}
	return age.Round(time.Second).String()
}

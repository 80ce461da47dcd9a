package control

import (
	"testing"
	"testing/synctest"
)

// A rehearsal decides as a leader does, and says to nobody that it leads.
func TestADryRunDoesNotClaimToLead(t *testing.T) {
	for _, dry := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t, &elected{}, service("blue", "default"))
			o.dryRun = dry
			o.run(t)
			all, status := o.board.List(nil)
			if len(all) != 1 || status.Leading == dry {
				t.Errorf("dry run %t: %d targets, leading: %t", dry, len(all), status.Leading)
			}
		})
	}
}

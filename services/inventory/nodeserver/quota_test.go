package nodeserver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestObservationQuota(t *testing.T) {
	now := time.Unix(0, 0)
	var q observationQuota
	request := func(client string, observations, added int) int {
		return q.request(client, now, observations, func(int) int { return added })
	}
	checkEqual(t, "ten observations", request("a", 10, 10), 10)
	checkEqual(t, "only added observations are charged", request("a", 10, 1), 10)
	checkEqual(t, "the rest of the quota", request("a", 10, 9), 9)
	checkEqual(t, "quota exhausted", request("a", 1, 1), 0)
	checkEqual(t, "another client", request("b", 3, 3), 3)
	now = now.Add(observationRefill)
	checkEqual(t, "after one refill", request("a", 10, 1), 1)
	now = now.Add(time.Hour)
	checkEqual(t, "after an hour", request("a", 10, 10), 10)
	checkEqual(t, "limiters", len(q.clients), 1)
}

// rosterObserver requests observations from a roster whose requests are answered immediately.
type rosterObserver struct {
	*roster.Roster
}

func (o rosterObserver) RequestObservations(n int) int {
	return o.Roster.RequestObservations(time.Now(), n)
}
func (rosterObserver) SetConfirmations(n int) {}

// A subscriber that requests observations in a loop harms only itself (I7).
func TestObservationQuotaLimitsLoopingSubscriber(t *testing.T) {
	runServer(t, func(h *harness) {
		r := roster.New(roster.Config{Method: resolve.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		h.set.Observer = rosterObserver{r}
		full, mark := 0, uint64(0)
		minute := func(request bool, name string) (verifications int) {
			before := full
			for range 12 {
				if request {
					h.requestObservations(10, name)
				}
				now := time.Now()
				r.Apply(now, roster.Update{Source: source.Update{LastContact: now, Verified: mark}})
				if a := r.NextActions(now); a.Verify != source.NoVerification {
					mark++
					if a.Verify == source.FullVerification {
						full++
					}
					r.Apply(now, roster.Update{Verification: &observe.VerificationResult{StartedAt: now, Mode: a.Verify, Number: mark}})
				}
				time.Sleep(5 * time.Second)
			}
			return full - before
		}
		minute(false, "")
		minute(true, "loops")
		minute(true, "loops")
		verifications := 0
		for range 10 {
			verifications += minute(true, "loops")
		}
		if verifications > 25 {
			t.Errorf(
				"%d full verifications in ten minutes for a client that requests them all the time, want about two per minute",
				verifications,
			)
		}
		if got := minute(true, "honest"); got < 10 {
			t.Errorf("%d full verifications for another client that requests ten", got)
		}
	})
}

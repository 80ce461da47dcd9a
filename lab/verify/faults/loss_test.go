package faults

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// lost is how many requests failed, by cause.
type lost struct {
	// wrong: a backend lived, but no endpoint was listed, or the request went to one that never was a backend or had
	// been dead for longer than its detection bound.
	wrong int
	// beyond is what no slice can prevent: the backend had died less than its detection bound ago, or died during the
	// request; or no backend lived.
	beyond int
	// other: the backend lived and was listed.
	other int
}

// lossClassifier finds the cause of each lost request. It runs when the row is over, since the truth is known then.
type lossClassifier struct {
	truth    func(netip.Addr) client.Truth
	anyAlive func(time.Time) bool // whether any backend of a member was alive
	// No writer could write in this time.
	noWritesFrom, noWritesTo time.Time
	allowance                time.Duration // added to the detection bound of each death
}

// classify counts the failed requests, and describes the first few of those that should not be.
func (l lossClassifier) classify(failed []failedRequest) (lost, []string) {
	var n lost
	var examples []string
	for _, r := range failed {
		cause := l.cause(r)
		switch cause {
		case causeBeyond:
			n.beyond++
			continue
		case causeOther:
			n.other++
		default:
			n.wrong++
		}
		if len(examples) < 5 {
			examples = append(examples, fmt.Sprintf("%s %s: %s (%v)", r.began.Format("15:04:05.000"), r.to, cause, r.err))
		}
	}
	return n, examples
}

const (
	causeBeyond = "no slice could prevent it"
	causeOther  = "the backend was alive and listed"
)

func (l lossClassifier) cause(r failedRequest) string {
	if !r.to.IsValid() {
		if l.anyAlive(r.began) {
			return "no endpoint was listed, but a backend was alive"
		}
		return causeBeyond
	}
	truth := l.truth(r.to)
	if !truth.Known {
		return "there never was a backend"
	}
	if r.err == nil {
		return fmt.Sprintf("answered by %s, want %s", r.answeredBy, truth.Name)
	}
	for _, death := range truth.Deaths {
		if death.From.After(r.ended) || !death.To.IsZero() && death.To.Before(r.began) {
			continue
		}
		if due := l.due(death); r.began.After(due) && l.anyAlive(r.began) { // else there was no better endpoint
			return fmt.Sprintf("dead since %s, detection was due at %s", death.From.Format("15:04:05.000"), due.Format("15:04:05.000"))
		}
		return causeBeyond
	}
	return causeOther
}

// due is when the slices have to show a death at the latest. One that was not written before writing became impossible
// may have to wait until it is possible again.
func (l lossClassifier) due(death client.Death) time.Time {
	from, bound := death.From, death.Bound+l.allowance
	if !l.noWritesTo.IsZero() && from.Add(bound).After(l.noWritesFrom) && from.Before(l.noWritesTo) {
		from = l.noWritesTo
	}
	return from.Add(bound)
}

func TestClassifiesLostRequests(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	died := func(from, to float64) client.Truth {
		death := client.Death{From: at(from), Bound: 3 * time.Second}
		if to > 0 {
			death.To = at(to)
		}
		return client.Truth{Known: true, Name: "a", Deaths: []client.Death{death}}
	}
	alive := client.Truth{Known: true, Name: "a"}
	refused := failedRequest{began: at(10), ended: at(11), to: netip.MustParseAddr("10.0.1.1"), err: errors.New("refused")}
	unlisted := failedRequest{began: at(10), ended: at(10)}
	misled := refused
	misled.err, misled.answeredBy = nil, "b"
	wrong, beyond, other := lost{wrong: 1}, lost{beyond: 1}, lost{other: 1}
	for _, c := range []struct {
		name     string
		request  failedRequest
		truth    client.Truth
		allDead  bool
		from, to float64 // no writes
		want     lost
	}{
		{name: "dead for less than the bound", request: refused, truth: died(7.5, 0), want: beyond},
		{name: "dead for longer than the bound", request: refused, truth: died(6.5, 0), want: wrong},
		{name: "dead for longer than the bound, as all are", request: refused, truth: died(6.5, 0), allDead: true, want: beyond},
		{name: "died during the request", request: refused, truth: died(10.5, 0), want: beyond},
		{name: "never a backend", request: refused, want: wrong},
		{name: "alive", request: refused, truth: alive, want: other},
		{name: "dead and back before", request: refused, truth: died(1, 9), want: other},
		{name: "answered by another backend", request: misled, truth: alive, want: wrong},
		{name: "none listed, one alive", request: unlisted, want: wrong},
		{name: "none listed, none alive", request: unlisted, allDead: true, want: beyond},
		{name: "died while no writer could write", request: refused, truth: died(5, 0), from: 4, to: 9, want: beyond},
		{name: "died just before", request: refused, truth: died(3, 0), from: 4, to: 9, want: beyond},
		{name: "died long before", request: refused, truth: died(0.5, 0), from: 4, to: 9, want: wrong},
		{name: "died meanwhile, written too late", request: refused, truth: died(3, 0), from: 2, to: 6, want: wrong},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lossClassifier{
				truth:    func(netip.Addr) client.Truth { return c.truth },
				anyAlive: func(time.Time) bool { return !c.allDead },
			}
			if c.to > 0 {
				l.noWritesFrom, l.noWritesTo = at(c.from), at(c.to)
			}
			got, examples := l.classify([]failedRequest{c.request})
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if (got.beyond == 0) != (len(examples) == 1) {
				t.Errorf("examples: %q", examples)
			}
		})
	}
}

func TestBrokenBoundFailsItsRow(t *testing.T) {
	for _, c := range []struct {
		name    string
		figures figures
		whyLost string
		want    string // empty: none is broken
	}{
		{name: "within all bounds", figures: figures{requests: 100, writes: 2, lost: lost{beyond: 3}}},
		{name: "lost to a wrong slice", figures: figures{requests: 100, lost: lost{wrong: 1}}, want: "1 requests were lost to a wrong slice"},
		{name: "lost to a wrong slice, with a reason", figures: figures{requests: 100, lost: lost{wrong: 1}}, whyLost: "a reason"},
		{name: "lost for an unknown reason", figures: figures{requests: 100, lost: lost{other: 1}}, whyLost: "a reason", want: "for an unknown reason"},
		{name: "too many writes", figures: figures{requests: 100, writes: 3}, want: "3 writes of slices, want 2 at most"},
		{name: "no request", want: "no request was sent"},
		{name: "a slow machine excuses no loss", figures: figures{requests: 100, lost: lost{wrong: 1}, lag: 5 * time.Second}, want: "lost to a wrong slice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.figures.brokenBounds(row{during: change{writes: 1}, extraWrites: 1, whyLost: c.whyLost})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSlowMachineExtendsBoundsByTwoSecondsAtMost(t *testing.T) {
	for lag, want := range map[time.Duration]time.Duration{
		-time.Millisecond: 0, 0: 0, 300 * time.Millisecond: 300 * time.Millisecond, maxAllowance: maxAllowance, time.Minute: maxAllowance,
	} {
		if got := allowance(lag); got != want {
			t.Errorf("%s late: %s, want %s", lag, got, want)
		}
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := lossClassifier{allowance: time.Second}
	if got, want := l.due(client.Death{From: start, Bound: 3 * time.Second}), start.Add(4*time.Second); !got.Equal(want) {
		t.Errorf("detection of a death is due at %s, want %s", got, want)
	}
}

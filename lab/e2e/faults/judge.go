package faults

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// Lost is how many requests failed, by whose fault it was.
type Lost struct {
	// Wrong were sent by a wrong slice, while a backend lived: to an endpoint that never was one, or that had
	// been dead for longer than it may take to find out; or there was none.
	Wrong int `json:"wrong"`
	// Beyond is what no slice can prevent: the backend had died less than its detection bound ago, or
	// died meanwhile; or no backend lived.
	Beyond int `json:"beyond"`
	// Other failed though the backend lived and was rightly offered: the client's own trouble.
	Other int `json:"other"`
}

// verdicts say whose fault each loss was. The truth is known only afterwards.
type verdicts struct {
	truth func(netip.Addr) client.Truth
	lives func(time.Time) bool // did any member's backend live then
	// blind is the time in which nobody could write what became known.
	blindFrom, blindTo time.Time
	allowance          time.Duration // added to each death's bound
}

// judge counts the losses, with an example of the first few that nobody should be content with.
func (v verdicts) judge(all []loss) (Lost, []string) {
	var lost Lost
	var examples []string
	for _, one := range all {
		why := v.wrong(one)
		switch why {
		case beyond:
			lost.Beyond++
			continue
		case other:
			lost.Other++
		default:
			lost.Wrong++
		}
		if len(examples) < 5 {
			examples = append(examples, fmt.Sprintf("%s %s: %s (%v)", one.began.Format("15:04:05.000"), one.to, why, one.err))
		}
	}
	return lost, examples
}

const (
	beyond = "beyond what slices can promise"
	other  = "the backend lived, and was offered rightly"
)

func (v verdicts) wrong(one loss) string {
	if !one.to.IsValid() {
		if v.lives(one.began) {
			return "no endpoint was offered, though a backend lived"
		}
		return beyond
	}
	truth := v.truth(one.to)
	if !truth.Known {
		return "there never was a backend"
	}
	if one.err == nil {
		return fmt.Sprintf("answered by %s, which is not %s", one.by, truth.Name)
	}
	for _, death := range truth.Deaths {
		if death.From.After(one.ended) || !death.To.IsZero() && death.To.Before(one.began) {
			continue
		}
		if known := v.due(death); one.began.After(known) && v.lives(one.began) { // else there was no better endpoint
			return fmt.Sprintf("dead since %s, and to be out since %s", death.From.Format("15:04:05.000"), known.Format("15:04:05.000"))
		}
		return beyond
	}
	return other
}

// due is when a death has to be known to the slices at the latest.
func (v verdicts) due(death client.Death) time.Time {
	from, bound := death.From, death.Bound+v.allowance
	// One that was not written before the blindness began may have to wait until it is over.
	if !v.blindTo.IsZero() && from.Add(bound).After(v.blindFrom) && from.Before(v.blindTo) {
		from = v.blindTo
	}
	return from.Add(bound)
}

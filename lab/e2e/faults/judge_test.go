package faults

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair/client"
)

func TestJudgesByWhoseFaultARequestIsLost(t *testing.T) {
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
	refused := loss{began: at(10), ended: at(11), to: netip.MustParseAddr("10.0.1.1"), err: errors.New("refused")}
	none := loss{began: at(10), ended: at(10)}
	misled := refused
	misled.err, misled.by = nil, "b"
	for _, row := range []struct {
		name     string
		loss     loss
		truth    client.Truth
		dead     bool    // no backend lives
		from, to float64 // blind
		want     Lost
	}{
		{name: "dead for less than the bound", loss: refused, truth: died(7.5, 0), want: Lost{Beyond: 1}},
		{name: "dead for longer than the bound", loss: refused, truth: died(6.5, 0), want: Lost{Wrong: 1}},
		{name: "dead for longer than the bound, and so was everybody", loss: refused, truth: died(6.5, 0), dead: true, want: Lost{Beyond: 1}},
		{name: "died while the request was under way", loss: refused, truth: died(10.5, 0), want: Lost{Beyond: 1}},
		{name: "never a backend", loss: refused, want: Lost{Wrong: 1}},
		{name: "a backend that lives", loss: refused, truth: alive, want: Lost{Other: 1}},
		{name: "a death that was over before", loss: refused, truth: died(1, 9), want: Lost{Other: 1}},
		{name: "answered by another backend", loss: misled, truth: alive, want: Lost{Wrong: 1}},
		{name: "none offered though one lived", loss: none, want: Lost{Wrong: 1}},
		{name: "none offered and none lived", loss: none, dead: true, want: Lost{Beyond: 1}},
		{name: "died while nobody could write", loss: refused, truth: died(5, 0), from: 4, to: 9, want: Lost{Beyond: 1}},
		{name: "died just before nobody could write", loss: refused, truth: died(3, 0), from: 4, to: 9, want: Lost{Beyond: 1}},
		{name: "died long before nobody could write", loss: refused, truth: died(0.5, 0), from: 4, to: 9, want: Lost{Wrong: 1}},
		{name: "died while nobody could write, and found out too late", loss: refused, truth: died(3, 0), from: 2, to: 6, want: Lost{Wrong: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := verdicts{truth: func(netip.Addr) client.Truth { return row.truth }, lives: func(time.Time) bool { return !row.dead }}
			if row.to > 0 {
				v.blindFrom, v.blindTo = at(row.from), at(row.to)
			}
			got, examples := v.judge([]loss{row.loss})
			if got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
			if told := got.Beyond == 0; told != (len(examples) == 1) {
				t.Errorf("it has the examples %q", examples)
			}
		})
	}
}

package model

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/pair"
)

var update = flag.Bool("update", false, "render the page again from what the last whole run found")

// some are costs of a plausible size.
var some = &Inputs{
	RosterBytes: 2500, NodeEvent: 6, Listing: 8000, WireNode: 124, WireChange: 232, WireBeat: 108, ViewBytes: 300, Apply: 0.01, Decide: 1, Plan: 2,
	SliceBytes: 2300, Base: 50, Stream: 100, Beat: 60, Change: 40, Arrive: 800, Reset: 1000, Probe: 150,
	Nodes: 5000, Subscribers: 800, FewerThanAll: 200, ChangeFewer: 38,
}

func TestThePageSaysWhatTheLastRunFound(t *testing.T) {
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	found, err := report.Load(filepath.Join(root, "lab/bench/results/latest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := Save(root, found); err != nil {
			t.Fatal(err)
		}
	}
	want, err := Render(found)
	if err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile(filepath.Join(root, Page))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(is)); diff != "" {
		t.Errorf("%s (render it with `go test ./lab/bench/model -update`):\n%s", Page, diff)
	}
}

func TestAReportWithoutTheSectionLeavesThePage(t *testing.T) {
	for name, r := range map[string]*report.Report{
		"it was never measured": {},
		"it has failed":         {Sections: []*report.Section{{Name: Name, Error: "no memory"}}},
	} {
		if page, err := Render(r); page != "" || err != nil {
			t.Errorf("%s: %q, %v", name, page, err)
		}
	}
}

func TestWhatASectionKeepsIsReadAgain(t *testing.T) {
	got, err := readInputs(some.section(50_000, report.Table{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(some, got); diff != "" {
		t.Error(diff)
	}
	if _, err := readInputs(&report.Section{}); err == nil {
		t.Error("a section that says nothing was read")
	}
}

func TestTheGoalIsHowFarThePredictionIsOffEitherWay(t *testing.T) {
	for _, fewer := range []float64{20, 80} {
		in := *some
		in.ChangeFewer = fewer
		if g := in.section(50_000, report.Table{}).Goals[0]; g.Figure != 2 || g.Met() {
			t.Errorf("%.0f µs where 40 are measured: %.3f, met: %t", fewer, g.Figure, g.Met())
		}
	}
}

func TestWhatTheServerDoesAnywayIsNoMessages(t *testing.T) {
	alone := phase{cpu: 1000, messages: 10, took: time.Second}
	busy := phase{cpu: 1000 + 2*500 + 100*40, messages: 110, took: 3 * time.Second}
	if got := busy.beyond(alone, 500); got != 40 {
		t.Errorf("%.1f µs a message, want 40", got)
	}
}

func TestALimitHoldsUpToItsThresholdAndNoFurther(t *testing.T) {
	for _, u := range uses {
		at, of := some.threshold(u, 50e3)
		size := func(n float64) Size {
			if of == "nodes" {
				return Size{n, 1e3}
			}
			return Size{50e3, n}
		}
		if within, beyond := u.Of(some, size(at)), u.Of(some, size(at+2)); within > 1 || beyond <= 1 && at < 9e7 {
			t.Errorf("%s: %.4f of it at %.0f %s, %.4f at two more", u.Limit, within, at, of, beyond)
		}
	}
}

// Servers come and go at random while pages are read, one after the other, as the inventory does.
func TestHowOftenAListingIsTornIsWhatReadingPagesGives(t *testing.T) {
	for _, nodes := range []float64{5e3, 15e3, 25e3} {
		s := Size{Nodes: nodes}
		random := rand.New(rand.NewPCG(1, uint64(nodes)))
		reading := func() (torn bool) {
			for now := 0.0; ; {
				now += random.ExpFloat64() / (2 * nodes / lives) // one comes, or one goes
				if now > listing(s) {
					return false
				}
				// What has been read is up to the page that is being read; the last one has none after it.
				last := math.Floor(now/pageTakes) * (pageSize - 1)
				if place := random.Float64() * nodes; place < last+pageSize-1 && last+pageSize < nodes {
					return true
				}
			}
		}
		const times = 20_000
		twice := 0
		for range times {
			if first, second := reading(), reading(); first && second {
				twice++
			}
		}
		if got, want := float64(twice)/times, 1-untorn(s); math.Abs(got-want) > 0.02+0.25*want {
			t.Errorf("%.0f servers: %.4f are torn twice, the model says %.4f", nodes, got, want)
		}
	}
}

func TestFiguresHaveTheDigitsThatMatter(t *testing.T) {
	for got, want := range map[string]string{
		count(1234567): "1,234,567", count(999): "999", figure(0.01234): "0.012", figure(1.26): "1.3", figure(12.6): "13", figure(1260): "1,260",
		percent(0): "0 %", percent(0.00001): "< 0.01 %", percent(0.5): "50 %", bytes(1.26e9): "1.3 GB", duration(0.0126): "13 ms", duration(240): "4.0 min",
		upTo(6093): "6,000", upTo(244): "240", upTo(1e7): "more than a million",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

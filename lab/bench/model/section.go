package model

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/netns"
)

// Name is that of the section.
const Name = "model"

// goalPrediction is by how much the model may be wrong where it can be held against a measurement.
const goalPrediction = 1.5

// Run measures what the model rests upon, and tells what follows from it.
func Run(ctx context.Context, env report.Env) (*report.Section, error) {
	if err := netns.Enter(ctx); err != nil {
		return nil, err
	}
	nodes, targets, of := 50_000, 2000, crowd{nodes: 5000, subscribers: 800, changes: 50, rest: 15 * time.Second}
	if env.Quick {
		nodes, targets, of = 5000, 500, crowd{nodes: 1000, subscribers: 200, changes: 5, rest: 3 * time.Second}
	}
	in := &Inputs{}
	fmt.Fprintf(env.Out, "the product's cores with %d nodes\n", nodes)
	in.pure(nodes)
	fmt.Fprintf(env.Out, "%d probe targets\n", targets)
	if err := in.probes(ctx, targets, of.rest/2); err != nil {
		return nil, err
	}
	if err := in.program(ctx, env, of); err != nil {
		return nil, err
	}
	fmt.Fprintln(env.Out, "a tree of relays")
	return in.section(nodes, in.relays()), nil
}

func (in *Inputs) section(nodes int, relays report.Table) *report.Section {
	return &report.Section{
		Title: "Past this machine: 50,000 nodes and 100,000 subscribers, by a model",
		Settings: fmt.Sprintf("The pure cores of both halves were run with %s nodes; the inventory's own program with %s nodes and %s subscribers, then %s; the rest is calculated. "+
			"What it assumes, what breaks first, and what helps is in [scaling.md](scaling.md).", count(float64(nodes)), count(in.Nodes), count(in.FewerThanAll), count(in.Subscribers)),
		Goals: []report.Goal{{
			Text:   fmt.Sprintf("CPU of a message to %s subscribers, over what %s predict (or the inverse)", count(in.Subscribers), count(in.FewerThanAll)),
			Figure: max(in.Change/in.ChangeFewer, in.ChangeFewer/in.Change), AtMost: goalPrediction, Unit: "×",
			Remark: fmt.Sprintf("one message costs %s µs with %s subscribers and %s µs with %s; the model takes the latter",
				figure(in.ChangeFewer), count(in.FewerThanAll), figure(in.Change), count(in.Subscribers)),
		}},
		Tables: []report.Table{in.quantities(), in.limits(), relays, in.table()},
	}
}

// quantities are what the pair takes at each size.
func (in *Inputs) quantities() report.Table {
	t := report.Table{Title: "Nodes × subscribers, one inventory for all of them:", Columns: []string{""}}
	for _, s := range sizes() {
		t.Columns = append(t.Columns, s.String())
	}
	row := func(text string, of func(Size) string) {
		cells := []string{text}
		for _, s := range sizes() {
			cells = append(cells, of(s))
		}
		t.Rows = append(t.Rows, cells)
	}
	row("changes of the set a second", func(s Size) string { return figure(changes(s)) })
	row("inventory: cores busy at rest", func(s Size) string { return figure(in.CPU(s)) })
	row("inventory: memory", func(s Size) string { return bytes(in.Memory(s)) })
	row("inventory: egress at rest, bit/s", func(s Size) string { return unit(in.Egress(s), 1000, "", "k", "M", "G", "T") })
	row("all back after a restart, by digest", func(s Size) string { d, _ := in.Return(s); return duration(d) })
	row("the same, reading the whole set", func(s Size) string { _, r := in.Return(s); return duration(r) })
	row("secured API server: a LIST of all Nodes", func(s Size) string { return bytes(s.Nodes * nodeObject) })
	row("secured API server: reports of kubelets, a second", func(s Size) string { return bytes(s.Nodes / nodeStatus * nodeObject) })
	row("names in ALLOWED_CLIENTS_FILE, 16 connections each", func(s Size) string { return count(math.Ceil(s.Subscribers / perName)) })
	row("cloud: requests of a listing, pages and LANs", func(s Size) string { return count(pages(s) + lans(s)) })
	row("cloud: a listing takes", func(s Size) string { return duration(listing(s) + lans(s)*lanTakes) })
	row("cloud: listings torn twice", func(s Size) string { return percent(1 - untorn(s)) })
	row("cloud: the same, if ten inventories list a tenth each", func(s Size) string { return percent(1 - untorn(Size{Nodes: s.Nodes / 10})) })
	row("writer: view of the source", func(s Size) string { return bytes(s.Nodes * in.ViewBytes) })
	row("writer: probes a second", func(s Size) string { return count(s.Nodes / probeEvery) })
	row("writer: cores busy with them", func(s Size) string { return figure(s.Nodes / probeEvery * in.Probe / 1e6) })
	row("writer: deciding on a Service of all nodes, once", func(s Size) string { return duration(in.Decision(s) / 1e6) })
	row("writer: slices of such a Service", func(s Size) string { return count(math.Ceil(s.Nodes / perSlice)) })
	row("consuming API server: sent to 1,000 kube-proxies, a second", func(s Size) string { return bytes(changes(s) * in.SliceBytes * proxies) })
	return t
}

// limits are up to where each limit holds, and how far the largest size is beyond it.
func (in *Inputs) limits() report.Table {
	most := sizes()[len(sizes())-1]
	t := report.Table{
		Title:   "Where the limits lie (in subscribers: of a set of 50,000 nodes), and how much of each the largest size takes:",
		Columns: []string{"limit", "holds up to", "at " + most.String(), "what helps"},
	}
	for _, u := range uses {
		at, of := in.threshold(u, most.Nodes)
		t.Rows = append(t.Rows, []string{u.Limit, upTo(at) + " " + of, figure(u.Of(in, most)) + " ×", u.Way})
	}
	return t
}

// upTo says no more than can be meant.
func upTo(n float64) string {
	if n >= 1e6 {
		return "more than a million"
	}
	step := math.Pow(10, math.Floor(math.Log10(max(n, 1)))-1)
	return count(math.Floor(n/step) * step)
}

// first are the limits that each size exceeds, the one that it exceeds most first.
func (in *Inputs) first() report.Table {
	t := report.Table{Columns: []string{"nodes × subscribers", "what is exceeded, and by what factor"}}
	for _, s := range sizes() {
		var over []Use
		for _, u := range uses {
			if u.Of(in, s) > 1 {
				over = append(over, u)
			}
		}
		slices.SortStableFunc(over, func(a, b Use) int { return cmp.Compare(b.Of(in, s), a.Of(in, s)) })
		texts := make([]string, len(over))
		for i, u := range over {
			texts[i] = fmt.Sprintf("%s: %s ×", u.Limit, figure(u.Of(in, s)))
		}
		t.Rows = append(t.Rows, []string{s.String(), cmp.Or(strings.Join(texts, "<br>"), "nothing")})
	}
	return t
}

// Relays.

const (
	crowdOfAll = 100_000
	hop        = 500 * time.Microsecond
)

// trees are the shapes that the simulation compares: all of them tell 100,000 subscribers.
var trees = []tree{
	{"one inventory", []int{crowdOfAll}},
	{"ten inventories", []int{crowdOfAll / 10}}, // each tells a tenth, all of them at once
	{"50 relays of 2,000", []int{50, 2000}},
	{"100 relays of 1,000", []int{100, 1000}},
	{"10 relays of 10 relays of 1,000", []int{10, 10, 1000}},
}

// relaysTitle is that of their table, which is kept: the simulation takes seconds.
const relaysTitle = "100,000 subscribers below one inventory, ten, or a tree of relays, simulated:"

// relays are what a tree of relays does to a change: at the pace of 50,000 nodes, and when all of them
// are replaced in a day.
func (in *Inputs) relays() report.Table {
	t := report.Table{Title: relaysTitle, Columns: []string{"shape", "servers", "changes a second", "p50", "p99", "the last subscriber, median", "cores busy with it at the busiest server", "told together with a later change"}}
	p := pace{send: time.Duration(in.Change * 1000), cores: cores * busy, hop: hop}
	for _, rate := range []float64{changes(Size{Nodes: 50e3}), 50e3 * tells / 86400} {
		for _, shape := range trees {
			servers := shape.servers()
			if len(shape.readers) == 1 {
				servers = crowdOfAll / shape.readers[0]
			}
			const followed = 60
			s := shape.simulate(followed, rate, p, 1)
			t.Rows = append(t.Rows, []string{
				shape.name, strconv.Itoa(servers), figure(rate), short(rank(s.delays, 50)), short(rank(s.delays, 99)), short(rank(s.last, 50)),
				figure(rate * in.Change / 1e6 * float64(slices.Max(shape.readers))), percent(float64(s.skipped) / float64(len(s.delays))),
			})
		}
	}
	return t
}

// Words.

func count(n float64) string {
	text := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// figure has two digits that matter.
func figure(n float64) string {
	switch {
	case n >= 100:
		return count(n)
	case n >= 10:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n >= 1:
		return strconv.FormatFloat(n, 'f', 1, 64)
	default:
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
}

func percent(share float64) string {
	if share > 0 && share < 0.0001 {
		return "< 0.01 %"
	}
	return figure(100*share) + " %"
}

func unit(n, step float64, units ...string) string {
	i := 0
	for ; n >= step && i < len(units)-1; i++ {
		n /= step
	}
	return strings.TrimSpace(figure(n) + " " + units[i])
}

func bytes(n float64) string { return unit(n, 1000, "B", "kB", "MB", "GB", "TB") }

func duration(s float64) string {
	switch {
	case s < 1:
		return short(seconds(s))
	case s < 120:
		return figure(s) + " s"
	case s < 7200:
		return figure(s/60) + " min"
	default:
		return figure(s/3600) + " h"
	}
}

func short(d time.Duration) string {
	if d < time.Second {
		return figure(float64(d.Microseconds())/1000) + " ms"
	}
	return figure(d.Seconds()) + " s"
}

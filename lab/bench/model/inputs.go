package model

import (
	"fmt"
	"strconv"

	"github.com/slicefeed/slicefeed/lab/bench/report"
)

// Inputs are the costs that the model rests upon, as measured.
type Inputs struct {
	RosterBytes, NodeEvent, Listing  float64
	WireNode, WireChange, WireBeat   float64
	ViewBytes, Apply, Decide, Plan   float64
	SliceBytes                       float64
	Base, Stream                     float64
	Beat, Change, Arrive, Reset      float64
	Probe                            float64
	Nodes, Subscribers, FewerThanAll float64
	ChangeFewer                      float64
}

// input is one of them as a table has it.
type input struct {
	value *float64
	text  string
	unit  string
}

func (in *Inputs) all() []input {
	return []input{
		{&in.RosterBytes, "inventory: roster, the cloud's index and feed, live", "B per node"},
		{&in.NodeEvent, "inventory: a Node changes, until the feed has it", "µs"},
		{&in.Listing, "inventory: 1,000 servers of the cloud are taken in", "µs"},
		{&in.WireNode, "link: a node of a whole set", "B"},
		{&in.WireChange, "link: a message of one changed node", "B"},
		{&in.WireBeat, "link: a heartbeat", "B"},
		{&in.ViewBytes, "writer: view of a source, live", "B per node"},
		{&in.Apply, "writer: one change is put in force, by size of the view", "µs per node"},
		{&in.Decide, "writer: decision, by endpoint", "µs per endpoint"},
		{&in.Plan, "writer: reading back and planning, by endpoint", "µs per endpoint"},
		{&in.SliceBytes, "slice of 100 endpoints, protobuf", "B"},
		{&in.Base, "inventory's program without subscribers, resident", "MB"},
		{&in.Stream, "inventory's program: a subscriber, resident", "KiB"},
		{&in.Beat, "inventory's program: CPU of a message at rest", "µs"},
		{&in.Change, "inventory's program: CPU of a message while changes are told", "µs"},
		{&in.Arrive, "inventory's program: CPU of a subscriber who connects and resumes by digest", "µs"},
		{&in.Reset, "inventory's program: CPU of 1,000 nodes of a whole set", "µs"},
		{&in.Probe, "prober: CPU of a TCP probe over loopback, with the backend's side", "µs"},
		{&in.Nodes, "nodes of the run with a crowd", ""},
		{&in.Subscribers, "subscribers of it", ""},
		{&in.FewerThanAll, "subscribers of a smaller crowd", ""},
		{&in.ChangeFewer, "inventory's program: CPU of a message while changes are told to the smaller crowd", "µs"},
	}
}

// inputsTitle is that of the table that keeps them.
const inputsTitle = "What was measured for it:"

func (in *Inputs) table() report.Table {
	t := report.Table{Title: inputsTitle, Columns: []string{"", "", "unit"}}
	for _, one := range in.all() {
		t.Rows = append(t.Rows, []string{one.text, strconv.FormatFloat(*one.value, 'g', 4, 64), one.unit})
	}
	return t
}

// readInputs reads them back from the section that keeps them.
func readInputs(s *report.Section) (*Inputs, error) {
	in := &Inputs{}
	texts := map[string]string{}
	for _, row := range tableOf(s, inputsTitle).Rows {
		texts[row[0]] = row[1]
	}
	for _, one := range in.all() {
		value, err := strconv.ParseFloat(texts[one.text], 64)
		if err != nil {
			return in, fmt.Errorf("the section does not say %q: %w", one.text, err)
		}
		*one.value = value
	}
	return in, nil
}

// tableOf is the table of that title; without rows: there is none.
func tableOf(s *report.Section, title string) report.Table {
	for _, t := range s.Tables {
		if t.Title == title {
			return t
		}
	}
	return report.Table{}
}

// Package faults has the pair live through real faults, one row of a table each: real
// processes, API servers, etcd, TLS and TCP, with a client that sends requests all the time
// through what the slices offer. It promises that each lost request is told with whose fault
// it was, and that the figures of the last whole run are in results/latest.json; it refuses to
// look into the halves: it sees what an operator could see.
package faults

import (
	"context"
	"time"
)

// Row is one scenario: a fault is applied, something changes in the secured cluster meanwhile,
// the fault is lifted, and the slices have to tell the truth again.
type Row struct {
	Name  string // unique; what happens, in a few words
	Part  string // the edge or the part that it happens to
	Fault Fault
	// Meanwhile is what changes while the fault lasts. The zero value: nothing does.
	Meanwhile Change
	// Lasts is how long the fault lasts after the change. It lasts longer if Through is set and
	// the truth takes longer. 0: two seconds.
	Lasts time.Duration
	// Through is the longest that the slices may take to tell the truth after the change, while the
	// fault is still on: the design promises progress. 0: it does not.
	Through time.Duration
	// Within is the longest that they may take after the lift. It is mandatory.
	Within time.Duration
	// Writes is the most API writes on slices that may be made, beyond those that the change is
	// worth by itself.
	Writes int
	// Blind says that while the fault lasts no writer can write: a backend that dies meanwhile is found
	// out no sooner than its own bound after the lift, and Recovers after that where a Lease has to
	// expire first.
	Blind    bool
	Recovers time.Duration
	// Explain says why requests may be lost to a wrong slice all the same. Empty: none may be.
	Explain string
	// Spoils says that the scene cannot be used for another row.
	Spoils bool
}

// Fault applies a fault, and returns how to lift it. Where it fails half way it undoes what it
// did. Lift is called once.
type Fault func(ctx context.Context, s *Scene) (lift func(context.Context) error, err error)

// Rows returns all rows, in the order of the table.
func Rows() []Row {
	var all []Row
	for _, some := range tables {
		all = append(all, some()...)
	}
	return all
}

// tables are the parts of the table, each in a file of its own.
var tables = []func() []Row{networkRows, processRows, fileRows, certificateRows, apiServerRows, limitRows, stormRows}

// smoke are the rows that run when nobody asks for all of them.
var smoke = []string{
	"the link is refused, and a node joins",
	"the secured API is a black hole, and a node dies",
}

func (r Row) lasts() time.Duration {
	if r.Lasts == 0 {
		return 2 * time.Second
	}
	return r.Lasts
}

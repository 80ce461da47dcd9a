// Package kubenodes follows the Nodes of the secured cluster and judges which of them
// count. It promises that what it was told is told on in order, coalesced by name, with
// the resourceVersion reached, and that a look compares with exactly that. It refuses to
// change anything there, and to read more of a Node than the roster judges by.
package kubenodes

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Cordoned is what a cordon means.
type Cordoned uint8

// Keep: a cordon changes nothing (draining on cordon has caused outages). Drain: a
// cordoned node is draining.
const (
	Keep Cordoned = iota
	Drain
)

// Rules are what makes a Node a worker that counts. The zero value selects every worker.
type Rules struct {
	Selector labels.Selector // nil: every worker
	Cordoned Cordoned
}

// Judge reduces a Node to what the roster judges by. It never fails: what cannot be read
// of a Node is left out of the candidate.
func Judge(node *corev1.Node, rules Rules) roster.Candidate { return roster.Candidate{} }

// Config is what Nodes needs. All fields are mandatory but Rules.
type Config struct {
	Client     kubernetes.Interface
	Rules      Rules
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Nodes follows the Nodes of a cluster. Its methods are safe for concurrent use.
type Nodes struct{}

// New returns Nodes that have read nothing yet: see Run.
func New(Config) *Nodes { return &Nodes{} }

// Run follows the cluster until ctx is done; its error is then nil.
func (n *Nodes) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Changed receives when there is something to take. It has room for one signal, which
// stands for any number of changes.
func (n *Nodes) Changed() <-chan struct{} { return nil }

// News is what the watch has told since the last Take.
type News struct {
	Changed []roster.Candidate // sorted by name
	Removed []string           // sorted

	HeardAt         time.Time // when the watch last spoke, by an event or bookmark; zero: not since the last Take
	ResourceVersion uint64    // what it has reached by then

	Failure string // what the list or watch failed with last, if it has since the last Take and has not spoken since
}

// Take returns what the watch has told since the last Take. Give the roster first the
// changes, then what was heard: Changed, Removed, Heard or WatchFailed.
func (n *Nodes) Take() News { return News{} }

// Look asks the API server whether the watch can be believed. Light returns the
// resourceVersion of a quorum LIST with limit=1. Full reads all Nodes in pages by quorum
// and returns nil once what the watch has told equals them; if that does not come about
// within 10 s, it is an error and the Nodes are read anew.
// Take after it returned, and before its answer goes to Roster.Looked, holds everything it compared with.
func (n *Nodes) Look(ctx context.Context, look roster.Look) (resourceVersion uint64, err error) {
	return 0, nil
}

// Package records is the source of nodes that are read as one JSON text: a file, the output of a
// command, a setting, or what another Reader returns. It guarantees that only a complete and valid
// read removes a node, and that a failed read changes nothing. It does not fill in missing fields:
// a record without one is invalid.
package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

const (
	// readTimeout is enough for a script that pages through a slow API, and well below the time
	// after which the roster considers the source stale.
	readTimeout = 30 * time.Second
	// watchRetryInterval is the pause after a watch fails.
	watchRetryInterval = 10 * time.Second
	// minDebounce is the pause after a read that a change caused. It makes a burst of changes cause
	// few reads. After each failed read the pause doubles, up to maxDebounce.
	minDebounce = 50 * time.Millisecond
	maxDebounce = 800 * time.Millisecond
)

// Reader reads the records of all nodes, in the format of docs/use/sources/file.md. The result is
// complete and was current at some time during the call. Read returns when ctx is done, and need
// not read more than MaxBytes+1 bytes. It is not called concurrently.
//
// A Reader that can detect changes may have a second method:
//
//	Watch(ctx context.Context, changed func()) error
//
// Until ctx is done it calls changed, which never blocks, once the watch has started and after
// every possible change. An error means that it cannot watch now; Watch is then called again later.
type Reader interface {
	Read(ctx context.Context) ([]byte, error)
}

type watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// Config is what a Source needs. All fields are mandatory.
type Config struct {
	Reader     Reader
	Name       string // describes the origin in messages: "the file /etc/nodes.json"
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Source reports the nodes that a Reader reads. Its methods are safe for concurrent use.
type Source struct {
	cfg           Config
	reads         *prometheus.CounterVec
	reading       *semaphore.Weighted // of 1: one read at a time
	readerChanged chan struct{}       // capacity 1: the Reader may have new data
	changed       chan struct{}       // capacity 1: there is something to take

	mu           sync.Mutex
	nodes        map[string]roster.Node // as last read, by name
	dirty        sets.Set[string]       // names that changed since Take
	lastValid    map[string]roster.Node // valid nodes that became invalid before Take
	partialError string                 // describes the invalid records of the last read; empty: none
	verified     uint64                 // number of the last successful verification
	lastContact  time.Time
	failure      string
}

// New returns a Source that has not read anything yet.
func New(cfg Config) *Source {
	return &Source{
		cfg:     cfg,
		reading: semaphore.NewWeighted(1), readerChanged: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		nodes: map[string]roster.Node{}, dirty: sets.Set[string]{}, lastValid: map[string]roster.Node{},
		reads: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_inventory_source_reads_total",
			Help: "Number of reads of the source, by cause (verify, change) and result (ok, failed). A read after a change may see a partly written file; it is repeated.",
		}, []string{"cause", "result"}),
	}
}

// Run watches until ctx is done, if the Reader can watch, and then returns nil.
func (s *Source) Run(ctx context.Context) error {
	if w, ok := s.cfg.Reader.(watcher); ok {
		var watching sync.WaitGroup
		watching.Go(func() { s.keepWatching(ctx, w) })
		s.readOnChange(ctx)
		watching.Wait()
	}
	<-ctx.Done()
	return nil
}

// keepWatching restarts the Reader's watch when it fails. Without a watch, the next verification
// finds the changes.
func (s *Source) keepWatching(ctx context.Context, w watcher) {
	log := rate.Sometimes{Interval: time.Hour}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := w.Watch(ctx, func() { roster.Signal(s.readerChanged) }); ctx.Err() == nil {
			log.Do(func() { s.cfg.Log.Warn("cannot watch source, polling instead", "source", s.cfg.Name, "error", err) })
		}
	}, watchRetryInterval)
}

// readOnChange reads after every change. If the read fails, the data is probably still being written:
// it tries again a few times, and then leaves the change to the next verification.
func (s *Source) readOnChange(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.readerChanged:
		}
		for pause := minDebounce; ; pause *= 2 {
			_, err := s.refresh(ctx, causeChange)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if err == nil || pause >= maxDebounce {
				break
			}
		}
	}
}

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Take returns the changes since the previous Take. A node whose record was valid and then became
// invalid appears twice, in this order, so that its last valid state is not lost.
func (s *Source) Take() roster.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	update := roster.Update{LastContact: s.lastContact, Verified: s.verified, Failure: s.failure, PartialError: s.partialError}
	for _, name := range sets.List(s.dirty) {
		update.ChangedAt = s.lastContact
		if node, ok := s.lastValid[name]; ok {
			update.Changed = append(update.Changed, node)
		}
		if node, ok := s.nodes[name]; ok {
			update.Changed = append(update.Changed, node)
		} else {
			update.Removed = append(update.Removed, name)
		}
	}
	clear(s.dirty)
	clear(s.lastValid)
	s.lastContact, s.failure = time.Time{}, ""
	return update
}

// Verify reads the records and reports the differences. Both modes are the same here: every read
// is complete.
func (s *Source) Verify(ctx context.Context, _ roster.Verification) (number uint64, err error) {
	number, err = s.refresh(ctx, causeVerify)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.mu.Lock()
		s.failure = err.Error() // the roster keeps it until the next successful read
		s.mu.Unlock()
	}
	return number, err
}

// cause is the reason for a read, a label of the metric.
type cause string

const (
	causeVerify cause = "verify"
	causeChange cause = "change"
)

// refresh reads the records and applies the differences. Only successful verifications are numbered.
func (s *Source) refresh(ctx context.Context, why cause) (number uint64, err error) {
	if err := s.reading.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	defer s.reading.Release(1)
	nodes, flaw, err := s.read(ctx)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			s.reads.WithLabelValues(string(why), "failed").Inc()
		}
		return 0, err
	}
	s.reads.WithLabelValues(string(why), "ok").Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(nodes, flaw)
	if why == causeVerify {
		s.verified++
	}
	s.lastContact, s.failure = time.Now(), ""
	roster.Signal(s.changed)
	return s.verified, nil
}

// read reads and parses the records.
func (s *Source) read(ctx context.Context) (nodes []roster.Node, flaw string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	data, err := s.cfg.Reader.Read(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no data within %s: %w", readTimeout, err)
	}
	if err != nil {
		return nil, "", err
	}
	if nodes, flaw, err = parseRecords(data, s.cfg.Name); err != nil {
		return nil, "", fmt.Errorf("parse %s: %w", s.cfg.Name, err)
	}
	return nodes, flaw, nil
}

// apply replaces the nodes with those of a complete read.
func (s *Source) apply(read []roster.Node, flaw string) {
	nameless, gone := 0, sets.KeySet(s.nodes)
	for _, node := range read {
		if node.Name == "" {
			nameless++
			continue
		}
		gone.Delete(node.Name)
		s.upsert(node)
	}
	s.partialError = flaw
	if nameless > 0 && len(gone) > 0 { // one of the records without a name may be its record
		s.partialError += fmt.Sprintf(
			"; %s kept because %s no valid name",
			display.Count(len(gone), "node without a record is", "nodes without a record are"),
			display.Count(nameless, "record has", "records have"),
		)
		return
	}
	for name := range gone {
		delete(s.nodes, name)
		delete(s.lastValid, name)
		s.dirty.Insert(name)
	}
}

// upsert stores a node. If it became invalid, and Take has not returned its last valid
// state yet, it keeps that state as well.
func (s *Source) upsert(node roster.Node) {
	old, existed := s.nodes[node.Name]
	switch {
	case existed && old.Equal(node):
		return
	case node.Invalid == "":
		delete(s.lastValid, node.Name)
	case existed && old.Invalid == "" && s.dirty.Has(node.Name):
		s.lastValid[node.Name] = old
	}
	s.nodes[node.Name] = node
	s.dirty.Insert(node.Name)
}

// Package records is the source of everything that can be read whole: a file, what a command
// prints, a text, or whatever else a Reader reads. It promises that only a whole, sound reading
// takes a node away, and that what cannot be read leaves all that was told as it is. It refuses to
// guess: a record that lacks a field is a bad one, and says so.
package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

const (
	// readTimeout is how long one read may take: enough for a script that walks through a slow
	// API, and well before the roster calls the source silent.
	readTimeout = 30 * time.Second
	// watchRetryInterval is the time between two attempts to watch.
	watchRetryInterval = 10 * time.Second
	// minDebounce is the least time between two reads that a watch provokes, and the first pause
	// after one that failed; the pauses double, and maxDebounce is the last.
	minDebounce = 50 * time.Millisecond
	maxDebounce = 800 * time.Millisecond
)

// Reader reads the records of all nodes, in the format that docs/sources/file.md describes. Each
// call is a fresh look at the outside: what it returns was the whole truth at some time during
// the call. It gives up when ctx is done, and need read no more than MaxBytes and one byte.
// It is never called twice at the same time.
//
// A Reader that can tell when to read again may have a second method:
//
//	Watch(ctx context.Context, changed func()) error
//
// It calls changed, which never blocks, once it has begun to watch and whenever there may be something
// new, until ctx is done. An error means that it cannot watch for now; it is then called again in a while.
type Reader interface {
	Read(ctx context.Context) ([]byte, error)
}

type watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// Config is what a Source needs. All fields are mandatory.
type Config struct {
	Reader     Reader
	Name       string // what is read, for people: "the file /etc/nodes.json"
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Source tells what a Reader reads. Its methods are safe for concurrent use.
type Source struct {
	reader        Reader
	name          string
	log           *slog.Logger
	reads         *prometheus.CounterVec
	readSlot      chan struct{} // capacity 1: held by whoever reads
	readerChanged chan struct{} // capacity 1: there may be something new to read
	changed       chan struct{} // capacity 1: there is something to take

	mu          sync.Mutex
	tracker     changeTracker
	verified    uint64 // of the last look that read well
	lastContact time.Time
	failure     string
}

// New returns a Source that has read nothing yet.
func New(cfg Config) *Source {
	s := &Source{
		reader:        cfg.Reader,
		name:          cfg.Name,
		log:           cfg.Log,
		readSlot:      make(chan struct{}, 1),
		readerChanged: make(chan struct{}, 1),
		changed:       make(chan struct{}, 1),
		tracker:       newChangeTracker(cfg.Name),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_inventory_source_reads_total",
			Help: "Number of reads of the source, by cause (verify, change) and result (ok, failed). A read after a change may see a partly written file; it is repeated.",
		}, []string{"cause", "result"}),
	}
	cfg.Registerer.MustRegister(s.reads)
	return s
}

// Run watches, if the Reader can, until ctx is done; its error is then nil.
func (s *Source) Run(ctx context.Context) error {
	if w, ok := s.reader.(watcher); ok {
		var watching sync.WaitGroup
		watching.Go(func() { s.keepWatching(ctx, w) })
		s.readOnChange(ctx)
		watching.Wait()
	}
	<-ctx.Done()
	return nil
}

// keepWatching keeps a watch up. Without one, changes are found by the next look: only later.
func (s *Source) keepWatching(ctx context.Context, w watcher) {
	nudge := func() { sendSignal(s.readerChanged) }
	for logged := false; ; {
		began := time.Now()
		err := w.Watch(ctx, nudge)
		if ctx.Err() != nil {
			return
		}
		if !logged || time.Since(began) > watchRetryInterval {
			s.log.Warn("changes of the source are found by polling for now: it cannot be watched", "source", s.name, "error", err)
			logged = true
		}
		sleepContext(ctx, watchRetryInterval)
	}
}

// readOnChange reads whenever the watch tells of something new. What fails is read again a few times
// and then left to the next look: it is most likely being written.
func (s *Source) readOnChange(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.readerChanged:
		}
		for wait := minDebounce; ; wait *= 2 {
			_, err := s.refresh(ctx, causeChange)
			sleepContext(ctx, wait)
			if err == nil || ctx.Err() != nil || wait >= maxDebounce {
				break
			}
		}
	}
}

// Changed receives when there is something to take. It has room for one signal, which
// stands for any number of changes.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Take returns what was told since the last Take, for Roster.Hear. A node whose record was good and
// then bad before it was taken comes twice, in this order: what was good must not be lost.
func (s *Source) Take() roster.News {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := roster.News{HeardAt: s.lastContact, Mark: s.verified, Failure: s.failure, Flaw: s.tracker.partialError}
	if news.Changed, news.Removed = s.tracker.takeChanges(); len(news.Changed)+len(news.Removed) > 0 {
		news.ChangedAt = s.lastContact
	}
	s.lastContact, s.failure = time.Time{}, ""
	return news
}

// Verify reads afresh and tells what differs. Light and full looks are alike here: what can be
// read whole has been caught up with once it was read.
func (s *Source) Verify(ctx context.Context, _ roster.Look) (mark uint64, err error) {
	mark, err = s.refresh(ctx, causeVerify)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.mu.Lock()
		s.failure = err.Error() // so that a good read that a watch provokes has the next look come at once
		s.mu.Unlock()
	}
	return mark, err
}

// cause is why the source is read.
type cause string

const (
	causeVerify cause = "verify"
	causeChange cause = "change"
)

// refresh reads, and tells what differs if the reading is sound. Only a look has a mark of its own.
func (s *Source) refresh(ctx context.Context, why cause) (mark uint64, err error) {
	select {
	case s.readSlot <- struct{}{}:
		defer func() { <-s.readSlot }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	records, err := s.readRecords(ctx)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			s.reads.WithLabelValues(string(why), "failed").Inc()
		}
		return 0, err
	}
	s.reads.WithLabelValues(string(why), "ok").Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracker.apply(records)
	if why == causeVerify {
		s.verified++
	}
	s.lastContact, s.failure = time.Now(), ""
	sendSignal(s.changed)
	return s.verified, nil
}

// readRecords reads and parses.
func (s *Source) readRecords(ctx context.Context) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	data, err := s.reader.Read(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time (%s at most): %w", readTimeout, err)
	}
	if err != nil {
		return nil, err
	}
	records, err := parseRecords(data)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", s.name, err)
	}
	return records, nil
}

func sendSignal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting, and stands for this one too
	}
}

func sleepContext(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

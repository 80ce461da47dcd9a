package sim

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
)

var errKilled = errors.New("the process is gone")

// store is a writer's way to the API server. The applier waits for its answers: it runs as a
// coroutine, which stands still at each request until the queue has come to its answer. So
// anything can happen between any two of them, and nothing at the same time.
type store struct {
	w     *writer
	yield func(*request) bool // of the write that runs; nil: none does
	plan  uint64              // of what it is about; 0: it has sent nothing yet
	dead  bool
}

// write is a write under way.
type write struct {
	next func() (*request, bool)
	stop func()
}

// begin runs a write until its first request.
func (s *store) begin(do func(context.Context)) {
	s.plan = 0
	under := &write{}
	under.next, under.stop = iter.Pull(func(yield func(*request) bool) {
		s.yield = yield
		do(context.Background())
		s.yield = nil
	})
	s.w.write = under
	s.resume()
}

// resume goes on to the next request, or to the end.
func (s *store) resume() {
	under := s.w.write
	r, more := under.next()
	if !more {
		s.w.write = nil
		s.w.mayWrite()
		return
	}
	s.w.consuming.take(r, s.resume)
}

// kill ends what is under way as a killed process does: what was sent is sent.
func (s *store) kill() {
	s.dead = true
	if s.w.write != nil {
		s.w.write.stop()
		s.w.write = nil
	}
}

func (s *store) ask(verb, name string, with *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	r, err := s.send(verb, name, with)
	return r.answer, err
}

func (s *store) send(verb, name string, with *discoveryv1.EndpointSlice) (*request, error) {
	if s.plan == 0 && !s.dead { // what becomes known while it is under way does not count
		s.plan = s.w.planned()
	}
	r := &request{w: s.w, verb: verb, name: name, with: with, sent: time.Now()}
	if with != nil {
		r.plan = s.plan
	}
	if s.dead || !s.yield(r) {
		s.dead = true
		return r, errKilled
	}
	return r, r.err
}

// Create makes a slice.
func (s *store) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.ask("create", slice.Name, slice)
}

// Update alters a slice that nobody has altered since.
func (s *store) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.ask("update", slice.Name, slice)
}

// Delete deletes a slice that nobody has altered since.
func (s *store) Delete(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	_, err := s.ask("delete", slice.Name, slice)
	return err
}

// confirm asks whose the Lease is.
func (s *store) confirm(context.Context) error {
	_, err := s.ask("lease", "", nil)
	if errors.Is(err, applier.ErrNotLeader) {
		s.w.lease.lost()
	}
	return err
}

// Get reads a slice.
func (s *store) Get(_ context.Context, _, name string) (*discoveryv1.EndpointSlice, error) {
	return s.ask("get", name, nil)
}

// List reads all slices of the Service.
func (s *store) List(context.Context, string, map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	r, err := s.send("list", "", nil)
	return r.listed, strconv.FormatUint(r.version, 10), err
}

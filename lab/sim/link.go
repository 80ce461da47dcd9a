package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
)

// wire is the network between a writer and the replicas of one inventory. Its faults outlive the
// processes at its ends.
type wire struct {
	rand      *rand.Rand
	cut, half int // faults in force
	delay     time.Duration
}

func (l *wire) latency() time.Duration {
	d := time.Millisecond + time.Duration(l.rand.IntN(10))*time.Millisecond
	if l.delay > 0 {
		d += time.Duration(l.rand.Int64N(int64(l.delay)))
	}
	return d
}

// stream is one call to WatchNodes. Its messages come in their order, or no more.
type stream struct {
	sub     *subscription
	closed  bool // the writer reads it no more
	stuck   bool // nothing gets through, and nobody knows
	arrival time.Time

	// At the server.
	replica *replica
	reader  *feed.Reader
	spoken  bool
	beat    *event
}

// dial carries a request to a replica: the one that the writer has a connection to, or any that
// answers. As WaitForReady has it, it is tried until somebody gives up.
func (s *stream) dial(req *inventoryv1.WatchNodesRequest) {
	sub, line := s.sub, s.sub.wire
	sub.at(time.Now().Add(line.latency()), func() {
		if s.closed {
			return
		}
		r := sub.replica
		if r == nil || !r.alive || sub.replicaLife != r.lives {
			r = sub.cluster.replicas[line.rand.IntN(len(sub.cluster.replicas))]
		}
		if line.cut+line.half+sub.cutOff > 0 || !r.alive {
			sub.at(time.Now().Add(time.Second), func() { s.dial(req) })
			return
		}
		sub.replica, sub.replicaLife = r, r.lives
		sub.tellf("%s is connected to %s, cursor %s/%d", sub, r.name, req.GetCursor().GetEpoch(), req.GetCursor().GetRevision())
		r.admit(s, req)
	})
}

// pump is the server's loop: all that the reader lacks, and a heartbeat when it is due.
func (s *stream) pump(due bool) {
	for {
		kind, messages := s.reader.Next()
		if !due && s.spoken && kind == "heartbeat" {
			return
		}
		for m := range messages {
			s.send(m.Content)
		}
		s.reader.Sent()
		s.spoken, due = true, false
		s.beat.cancel()
		s.beat = s.replica.at(time.Now().Add(heartbeat), func() { s.pump(true) })
	}
}

// send carries a message to the writer.
func (s *stream) send(m *inventoryv1.WatchNodesResponse) {
	line := s.sub.wire
	if s.stuck = s.stuck || line.cut+line.half+s.sub.cutOff > 0; s.stuck {
		return
	}
	at := time.Now().Add(line.latency())
	if at.Before(s.arrival) {
		at = s.arrival
	}
	s.arrival = at
	s.sub.at(at, func() {
		if s.stuck = s.stuck || line.cut+line.half+s.sub.cutOff > 0; !s.stuck {
			s.sub.receive(s, m)
		}
	})
}

// leave ends it at the server.
func (s *stream) leave() {
	if s.replica != nil {
		s.beat.cancel()
		s.replica.leave(s)
		s.replica = nil
	}
}

// close ends it at the writer. The server learns it, unless the network is down: then much later.
func (s *stream) close() {
	if s == nil || s.closed {
		return
	}
	s.closed = true
	later := s.sub.wire.latency()
	if s.stuck {
		later = 40 * time.Second
	}
	s.sub.after(later, s.leave)
}

// brokenByServer ends it from there; the writer learns it, unless nothing gets through.
func (s *stream) brokenByServer(why string) {
	s.leave()
	if !s.stuck && s.sub.wire.half == 0 {
		at := time.Now().Add(s.sub.wire.latency())
		if at.Before(s.arrival) {
			at = s.arrival
		}
		s.sub.at(at, func() { s.sub.broken(s, errors.New(why)) })
	}
}

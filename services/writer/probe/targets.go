package probe

import (
	"cmp"
	"slices"
	"time"
)

// Request is a key to probe for a target, and the source of the endpoint.
type Request struct {
	Key    Key
	Source string
}

// target is what is probed for one Service.
type target struct {
	name    string
	records []*keyRecord
	sources map[*keyRecord]string
	counts  healthCounts
}

// SetTarget replaces the requests of a target; without requests the target is removed. Keys that stay, or
// that another target has, keep their status and schedule. Keys of mode Off are ignored. The first probe of
// a new key is due immediately, and results of probes of a removed key are ignored.
func (s *Schedule) SetTarget(name string, requests []Request, now time.Time) {
	t := s.targets[name]
	if t == nil {
		t = &target{name: name}
		s.targets[name] = t
	}
	old := t.records
	t.records, t.sources = make([]*keyRecord, 0, len(requests)), make(map[*keyRecord]string, len(requests))
	for _, request := range requests {
		if request.Key.Spec.Mode == Off {
			continue
		}
		r := s.recordFor(request.Key.Canonical(), now)
		if _, repeated := t.sources[r]; !repeated {
			t.records = append(t.records, r)
		}
		t.sources[r] = request.Source
		if !slices.Contains(r.targets, t) {
			r.targets = append(r.targets, t)
		}
	}
	t.counts = healthCounts{}
	for _, r := range t.records {
		t.counts[r.status.Health]++
		s.assignShare(r)
	}
	for _, r := range old {
		if _, requested := t.sources[r]; requested {
			continue
		}
		r.targets = slices.DeleteFunc(r.targets, func(other *target) bool { return other == t })
		if len(r.targets) > 0 {
			s.assignShare(r)
			continue
		}
		delete(s.records, r.key)
		s.healthCounts[r.status.Health]--
		s.removeFromQueue(r)
		s.expiring.remove(r)
	}
	if len(t.records) == 0 {
		delete(s.targets, name)
		delete(s.changedTargets, name)
	}
}

// recordFor returns the record of a key, creating it if necessary.
func (s *Schedule) recordFor(key Key, now time.Time) *keyRecord {
	r := s.records[key]
	if r == nil {
		s.created++
		r = &keyRecord{key: key, number: s.created, nextDue: now, regularDue: now, lastConclusiveAt: now}
		s.records[key] = r
		s.healthCounts[Pending]++
		s.updateExpiry(r)
	}
	return r
}

// assignShare counts a key, from its next probe on, for the target that has the fewest keys, among all that
// request it. So a small Service does not wait for a large one with the same endpoint.
func (s *Schedule) assignShare(r *keyRecord) {
	smallest := slices.MinFunc(r.targets, func(a, b *target) int {
		return cmp.Or(cmp.Compare(len(a.records), len(b.records)), cmp.Compare(a.name, b.name))
	})
	share := Share{smallest.sources[r], smallest.name}
	if r.queue != nil {
		if r.queue.share == share {
			return
		}
		s.removeFromQueue(r)
	}
	r.queue = s.queues[share]
	if r.queue == nil {
		r.queue = &shareQueue{
			share: share,
			due:   indexedHeap[*keyRecord]{before: dueBefore, place: func(r *keyRecord) *int { return &r.duePlace }},
		}
		s.queues[share] = r.queue
	}
	r.queue.due.update(r)
	s.requeue(r.queue)
}
